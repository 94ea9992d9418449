/* Collectives on device memory (comm_spec.on_device), by NCCL. Private to this module.
 *
 * NCCL moves bytes: gathers and broadcasts are its own calls, and sums go up the lane tree as its sends and receives,
 * with the backend's kernels for the sums between them, so that they have the same bits as on the host.
 *
 * ORDER. NCCL requires one order on all ranks for operations of communicators that share ranks. A rank has one stream
 * for all of them, and starts an operation when the one before has ended. So each rank's order is its program's, and
 * program_verify_ranks proves that all ranks of a group reach each operation (compiler/verify/ranks.c).
 *
 * FAILURE. Communicators do not block: calls return while NCCL connects, and are polled afterwards. A thread watches
 * the operation that is waited for. If comm detects a dead or hanging rank, or NCCL an error, the thread aborts all
 * communicators. That ends their work on the device, so the wait ends and the operation fails. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "backend/backend.h"
#include "base/base.h"
#include "comm/comm.h"
#include "comm/nccl_abi.h"

/* NCCL, opened when it is first used: a start without several GPUs neither needs nor looks for it. For this module and
 * tests. */

/* Its functions under their names without "nccl". */
struct nccl_library {
#define NCCL_FUNCTION_FIELD(name, result, parameters) result(*name) parameters;
    NCCL_FUNCTION_LIST(NCCL_FUNCTION_FIELD)
#undef NCCL_FUNCTION_FIELD
    int version;
};

/* Opens libnccl.so.2 from the system loader's path, or the file that BALLAST_NCCL in the environment names. It is
 * opened once in a process; later calls return the same. BAD_INPUT, with the package to install, if it is missing,
 * older than NCCL_VERSION_MIN or lacks a function. */
enum status nccl_library_open(const struct nccl_library **out);

/* OK, or FAILED "ncclSend: the library's words". */
enum status nccl_status(const struct nccl_library *library, ncclResult_t result, const char *function);

/* That of communicators which do not block. */
ncclConfig_t nccl_config(void);

struct nccl_communicator {
    struct comm_group group;
    ncclComm_t handle; /* NULL after an abort */
};

struct nccl_comm {
    struct comm *comm;
    const struct backend *backend;
    const struct nccl_library *library;
    struct nccl_communicator *communicators; /* the first: of all ranks, by their ranks; others by position */
    int count;
    void *stream, *done; /* the backend's; done: the last operation's end */

    pthread_t thread;
    bool watched;         /* there is a thread */
    pthread_mutex_t lock; /* guards NCCL's calls and the following fields */
    pthread_cond_t changed;
    bool waiting, ending;
    struct status_copy failure; /* the first one */
};

/* One call of NCCL's within a group of calls. Peers are positions in the communicator. */
struct nccl_call {
    enum { NCCL_SEND, NCCL_RECEIVE, NCCL_GATHER, NCCL_BROADCAST } kind;
    const void *from;
    void *to;
    int64_t bytes;
    int peer; /* or root */
};

extern const struct comm_engine nccl_engine; /* its operations' part */

/* Collective; comm.h says the rest (comm_device_open). */
enum status nccl_comm_open(struct comm *comm, const struct comm_device_settings *settings, struct nccl_comm **out);
void nccl_comm_close(struct nccl_comm *nccl);
/* That of exactly these ranks; NULL: there is none. */
struct nccl_communicator *nccl_comm_find(struct nccl_comm *nccl, const struct comm_group *group);

/* Queues the calls as one group. FAILED where NCCL refuses one: then all communicators are aborted. */
enum status nccl_comm_group(struct nccl_comm *nccl, struct nccl_communicator *communicator,
                            const struct nccl_call *calls, int count);
/* Between the two nothing else is started; the second blocks until all that is queued is done. */
enum status nccl_comm_begin(struct nccl_comm *nccl);
enum status nccl_comm_finish(struct nccl_comm *nccl);
/* Makes the calling thread's message the failure of all. Returns FAILED. */
enum status nccl_comm_fail(struct nccl_comm *nccl);
