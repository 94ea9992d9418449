/* The engine of many ranks, on a wire (wire.h): one thread that makes all of the wire's calls. For this module alone.
 *
 * Others hand the thread operations to start (a list) and tasks to run (one at a time, waited for): what makes or frees
 * requests. Active operations are moved on in turn, also while a task waits for other ranks. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/base.h"
#include "comm/comm_engine.h"
#include "comm/heartbeat.h"
#include "comm/shared_segment.h"
#include "comm/wire.h"

/* Which MPI this process belongs to, and its plugin.
 *
 * What launched the process says it: Open MPI's mpirun and srun --mpi=pmix leave OMPI_COMM_WORLD_SIZE or PMIX_RANK in
 * the environment, MPICH's mpiexec and srun --mpi=pmi2 leave PMI_RANK or PMI_FD. Slurm's own variables say nothing:
 * they are also there in a batch script, which is one process. BALLAST_MPI overrules all of it.
 *
 * Plugins (ballast-mpi-openmpi.so, ballast-mpi-mpich.so) are looked for in the directory BALLAST_PLUGINS alone where
 * that is set; else next to the program or libballast.so, and in lib/ballast where these are installed. They are opened
 * for all of the process (RTLD_GLOBAL), since parts of an MPI library are opened later by itself and look for its
 * symbols there. */

struct mpi_library {
    const struct wire *wire; /* NULL: this process is alone */
};

/* `engine` as in comm_settings. BAD_INPUT, with what to install, where the plugin or its MPI is missing, and where it
 * is no plugin of this version. */
enum status mpi_library_find(const char *engine, struct mpi_library *out);
/* "self", "openmpi" or "mpich", by the environment alone. */
const char *mpi_library_launched_by(void);
/* The engine of this process: BALLAST_MPI, else as above. */
const char *mpi_library_chosen(void);
/* Which rank the launcher made of this process; -1 where none did. The first is 0 in the mesh too. */
int mpi_library_launched_rank(void);
/* The hint for a process that dies while MPI begins: what of this machine MPI may lack. "" where nothing is known. */
void mpi_library_explain_start(char *hint, size_t bytes);
/* The plugin's path, NULL where there is none; the caller frees. */
char *mpi_library_path(const char *name);

struct operation;

/* Tags: all-gathers, heartbeats, then two an operation, by the number that the receiving rank gave it. */
enum { TAG_ALL_GATHER, TAG_HEARTBEAT, TAG_OPERATION };
/* Operations at a time: those of programs, and a few around them. */
enum { SLOTS = COMM_OPERATIONS_MAX + 256 };

enum status_failure { FAILURE_NONE, FAILURE_HERE, FAILURE_OF_RANK };

/* Something that the thread does for another, which waits for it. */
struct mpi_task {
    enum status (*run)(struct mpi_comm *mpi, void *argument);
    void *argument;
    bool done;
    enum status status;
    char message[600];
};

/* The heartbeat's messages: one send and one receive for each distance. */
struct mpi_heartbeat {
    struct heartbeat heartbeat;
    int64_t period_ns, next_ns;
    int64_t others_ns; /* processor time of the other threads, at the last beat */
    int distances, turn;
    bool beats, ending;
    int *send, *receive;                /* requests */
    struct heartbeat_entry *sent, *got; /* ranks entries each */
};

struct mpi_comm {
    struct comm comm;
    const struct wire *wire;
    void *wire_context;
    struct wire_world world;
    struct comm_settings settings;
    pthread_t thread;

    pthread_mutex_t mutex;
    pthread_cond_t wake;                  /* for the thread: there is something to do */
    pthread_cond_t over;                  /* for the others: an operation or task is over */
    struct operation *queue, **queue_end; /* started, not yet seen by the thread */
    struct mpi_task *task;
    bool ending;
    bool used_slots[SLOTS];
    /* The first failure. The text stays from then on. */
    _Atomic(enum status_failure) failure;
    int failed_rank;
    char failure_text[600];
    atomic_int abort_status; /* abort when not 0 */

    atomic_uint started;            /* operations and all-gathers */
    _Atomic int64_t outside_ns;     /* when an operation of another library was begun, which is waited for; 0: none */
    bool moved;                     /* the thread's: an operation was moved on since the last beat */
    int *all_gather_requests;       /* the thread's, two a rank: so that an all-gather needs no memory */
    int64_t all_gather_ns;          /* the thread's: when the all-gather that it is at was begun; 0: none */
    struct operation *active;       /* the thread's */
    struct mpi_heartbeat heartbeat; /* the thread's */
    _Atomic int64_t traffic[2 * MESH_AXES + 1];
    struct shared_segment *shared_segments; /* all open ones, the newest first */
    int shared_segment_count;               /* ever opened: their numbers */
    struct comm_shared_segment
        control; /* a counter of meetings for each slot of each rank; base NULL: no shared segments */
};

static inline struct mpi_comm *mpi_comm_of(const struct comm *comm) { return comm->context; }

/* The thread, with its mpi_comm. Ends when `ending` is set. */
void *mpi_serve(void *argument);
/* Runs it in the thread; returns its status, with its message. FAILED at once after a failure. */
enum status mpi_run_task(struct mpi_comm *mpi, enum status (*run)(struct mpi_comm *mpi, void *argument),
                         void *argument);
/* For the thread. Records the first failure, which fails everything. */
void mpi_fail(struct mpi_comm *mpi, enum status_failure failure, int rank, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* FAILED with the failure's text. */
enum status mpi_failed(struct mpi_comm *mpi);
/* STATUS_OK, or a failure of the wire here. */
enum status mpi_check(struct mpi_comm *mpi, const char *trouble);
/* For tasks. */
enum status mpi_all_gather(struct mpi_comm *mpi, const struct comm_group *group, const void *mine, size_t bytes,
                           void *all);

/* The same for others. */
enum status mpi_run_all_gather(struct mpi_comm *mpi, const struct comm_group *group, const void *mine, size_t bytes,
                               void *all);

/* For the thread, mpi_thread.c. Keeping it is sending one's own when it is due, and recording the failure of a rank
 * that is silent or keeps operations waiting. Beginning and ending are collective. */
enum status mpi_begin_heartbeat(struct mpi_comm *mpi);
enum status mpi_end_heartbeat(struct mpi_comm *mpi);
