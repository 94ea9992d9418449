/* The engine of many ranks, on a wire (wire.h): one thread that makes all of the wire's calls. For this module alone.
 *
 * Others hand the thread operations to start (a list) and tasks to run (one at a time, waited for): what makes or frees
 * requests. Active operations are moved on in turn, also while a task waits for other ranks. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/base.h"
#include "collective/lane_tree.h"
#include "collective/schedule.h"
#include "comm/comm.h"
#include "comm/wire.h"

/* Finds silent ranks. Each rank counts its own beats, the operations it has started, and the periods in which it did
 * anything. It passes on everything it knows to ranks 1, 2, 4, … further in turn, so that news of a rank reaches all
 * after log2(ranks) rounds. A rank whose beats have not risen for the allowed time is dead or stopped. The others wait
 * for the rank that has started the fewest operations. As long as it works they wait, however long its step is. If it
 * does nothing for the allowed time, it hangs. mpi_thread.c sends the messages. */

struct heartbeat_entry {
    uint32_t beat, started, worked;
};

struct heartbeat {
    int ranks, me;
    struct heartbeat_entry *entry; /* by rank */
    int64_t *heard_ns;             /* when the beat was last seen to rise */
    int64_t *worked_ns;            /* the same of its work */
    int64_t even_ns; /* since then all have started as many operations as this rank; -1: some rank has not */
    int64_t timeout_ns;
};

enum status heartbeat_create(int ranks, int me, int64_t timeout_ns, int64_t now_ns, struct heartbeat *out);
void heartbeat_free(struct heartbeat *heartbeat);
/* Once a period: one's own. `worked`: it did something since the last beat. A rank that was itself stopped for half the
 * timeout has heard nobody meanwhile: it begins to wait anew. */
void heartbeat_beat(struct heartbeat *heartbeat, uint32_t started, bool worked, int64_t now_ns);
/* Merges another rank's knowledge. */
void heartbeat_merge(struct heartbeat *heartbeat, const struct heartbeat_entry *theirs, int64_t now_ns);
/* The lowest rank of those not heard of for longer than the timeout, or -1. */
int heartbeat_silent(const struct heartbeat *heartbeat, int64_t now_ns);
/* The lowest of the ranks that have started fewest operations, where that is fewer than this rank; else -1. */
int heartbeat_behind(const struct heartbeat *heartbeat);
/* That rank, or one that has started no more, where it has done nothing for longer than the timeout; else -1. */
int heartbeat_hanging(const struct heartbeat *heartbeat, int64_t now_ns);
/* How many ranks each passes on to; the k-th, from 0, is 2^k further. */
int heartbeat_distances(int ranks);

/* Memory that ranks of one node share: a memory file of each rank (memfd), mapped by the others by way of
 * /proc/PID/fd. Such files have no name and no limit but the memory that there is, /dev/shm's size included, and are
 * gone with the last process that has them mapped. */

struct mpi_comm;

struct shared_segment {
    int number;
    int64_t bytes;  /* of this rank's memory */
    int ranks, me;  /* of the node */
    void **base;    /* by place in the node; base[me] is one's own, the others NULL where it is private */
    size_t *mapped; /* the same: whole pages */
    bool shared;
    struct mpi_comm *mpi;
    struct shared_segment *next;
};

/* Together among all ranks. */
enum status shared_segment_open(struct comm *comm, int64_t bytes, struct comm_shared_segment *out);
void shared_segment_close(struct comm_shared_segment *shared_segment);
/* The shared segment whose own memory has [address, address + bytes), or NULL. */
const struct shared_segment *shared_segment_find(const struct mpi_comm *mpi, const void *address, int64_t bytes);

/* Finds the MPI of this process, and its plugin.
 *
 * The launcher determines it: Open MPI's mpirun and srun --mpi=pmix leave OMPI_COMM_WORLD_SIZE or PMIX_RANK in the
 * environment, MPICH's mpiexec and srun --mpi=pmi2 leave PMI_RANK or PMI_FD. Slurm's own variables do not help: a batch
 * script has them too, and it is one process. BALLAST_MPI overrides all of this.
 *
 * Plugins (ballast-mpi-openmpi.so, ballast-mpi-mpich.so) are searched only in the directory BALLAST_PLUGINS if it is
 * set. Otherwise they are searched next to the program or libballast.so, and in lib/ballast of an installation. They
 * are opened with RTLD_GLOBAL, since an MPI library opens parts of itself later, which need its symbols. */

/* *out is NULL if this process is alone. `engine` as in comm_settings. BAD_INPUT, with the package to install, if the
 * plugin or its MPI is missing, or if the plugin has another version. */
enum status mpi_library_find(const char *engine, const struct wire **out);
/* "self", "openmpi" or "mpich", by the environment alone. */
const char *mpi_library_launched_by(void);
/* The engine of this process: BALLAST_MPI, else as above. */
const char *mpi_library_chosen(void);
/* The rank that the launcher gave this process; -1 if there was none. The first is 0 in the mesh too. */
int mpi_library_launched_rank(void);
/* The hint for a process that dies while MPI starts: things that MPI may lack on this machine. "" if nothing is
 * known. */
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
    struct status_copy end;
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

/* An operation on its way: its schedule, its requests, and how far it is. For this module alone. */

enum operation_state { OPERATION_IDLE, OPERATION_STARTED, OPERATION_FAILED };

/* A rank's message to the others of its group when an operation is created. */
struct operation_offer {
    struct comm_offer alike;
    /* Its own. */
    int slot;
    uint64_t met;       /* value of the meeting counter, which continues from there */
    int shared_segment; /* in_place: where its data is */
    int64_t offset;
};

struct operation {
    struct comm_operation base;
    struct comm_spec spec; /* tree, empty and owner are gone */
    struct comm_schedule schedule;
    int me, slot;
    struct operation_offer *offers; /* by position, as the following */
    char **peer_data;               /* in_place: where ranks of the node have theirs; else NULL */
    atomic_ullong **peer_meeting;   /* their counters */
    struct lane_values *lanes;      /* for sums: each rank's values, from the beginning of the step */
    int *message_request;
    int *transfer_request; /* 0 bytes from receiver to sender: go on */
    bool requests_made;

    _Atomic(enum operation_state) state;
    uint64_t generation;          /* starts */
    size_t at;                    /* the step to take next */
    int64_t started_ns, moved_ns; /* the last time that a step was taken */
    struct operation *next;       /* in the queue, then among the active */
};

enum status operation_create(struct comm *comm, const struct comm_spec *spec, struct comm_operation **out);
void operation_free(struct comm_operation *operation);

/* For the thread: takes steps until one has to wait. Whether any was taken. Over when at == steps. */
bool operation_advance(struct operation *operation);
