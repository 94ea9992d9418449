/* Communication between ranks. A rank is one process with one device.
 *
 *     struct comm *comm;
 *     TRY(comm_open(&(struct comm_settings){.rank_timeout_s = 30}, &comm));
 *     TRY(comm_shared_segment_open(comm, bytes, &shared_segment)); memory that ranks of the same node can read
 *     struct comm_spec spec = {.kind = COMM_ALL_REDUCE, .group = comm_group_all(comm), .data = shared_segment.base,
 *                              .bytes = bytes, .in_place = shared_segment.shared};
 *     TRY(comm_staging_bytes(comm, &spec, &staging_bytes));        the plan gives it a place, as any buffer
 *     TRY(comm_create(comm, &spec, &operation));                   peers, buffers and requests are fixed here
 *     each step: comm_start(operation); … TRY(comm_wait(operation));
 *     comm_free(operation); comm_shared_segment_close(comm, &shared_segment); TRY(comm_close(comm));
 *
 * Two engines implement it. `self` is one rank: a plain start of the program, which neither links nor opens MPI. `mpi`
 * is a job that mpirun or srun started: a plugin for the MPI library in use (wire.h) sends messages; everything else,
 * the algorithms included, is Ballast's own and the same for every library.
 *
 * Operations, the order of their sums, and their bytes: collective/collective.h.
 *
 * DEVICES. After comm_device_open there are operations on the memory of GPUs too (comm_spec.on_device), which NCCL
 * moves from one to the other. All else, also of these ranks, goes by messages as ever.
 *
 * MEMORY. After comm_create an operation allocates nothing. `data`, `out` and `staging` belong to the caller, who keeps
 * them until comm_free. From comm_start to the end of the operation they may be neither read nor written; only blocks
 * that are valid before and after may be read.
 *
 * THREADS. One thread of comm's makes all MPI calls. It moves any number of started operations on and sleeps when there
 * is none. Any thread may call comm_start and comm_wait, for one operation one thread at a time. Calls
 * marked "collective" are made by all ranks (or all ranks of the group) in the same order. Started operations overlap;
 * ranks may start them in different orders, as long as each rank starts all of them without waiting for one that
 * another rank starts later. Those on devices are the exception: one at a time, in the same order on all ranks.
 *
 * FAILURE. A rank that dies or is stopped is noticed by its silence within rank_timeout_s. So is one that hangs: the
 * others wait for an operation or an all-gather that it has not started, and for that time it neither computed nor
 * moved an operation on. In a step (comm->watch) computing is ending instructions, so that one that never ends is
 * noticed too, rank_timeout_s after ten times what the longest one so far took; without a step it is using processor
 * time. A rank that works is waited for, however long its step or its search takes. From then on every call returns
 * FAILED, with a message that names rank and host. The process unwinds, prints the message if comm_speaks (one rank
 * does) and calls comm_abort, which ends all ranks. comm_close, which ends MPI in the regular way, is for jobs without
 * failure.
 *
 * USERS. The runtime's communication streams start and wait for operations as instructions, whose buffers, staging
 * included, have places in the program; program_verify finds in a schedule what peers read and who waits for whom. The
 * move pass turns a shard's fetch into an all-gather and its store into a reduce-scatter. Training and checkpoints use
 * comm_all_gather, comm_agree and comm_check_same between steps. Profiling times operations on mesh_group_pair and on
 * axes; plan and page compare comm_read_traffic with the schedules' traffic.
 *
 * Files, in the order to read them:
 * comm: the functions of this header, over the table of an engine; the engine of one rank; what the engines share;
 * wire: the table that a message-passing library has to fill;
 * mpi_comm, mpi_thread: the engine of many ranks, its thread, and which rank is silent;
 * operation: an operation that this thread moves on;
 * shared_segment: memory that ranks of a node share;
 * nccl_abi: NCCL's functions; nccl_comm, nccl_operation: how they are found; operations on the memory of devices;
 * mpi_plugin: the wire of MPI, compiled once for each library;
 * launch, launch_report: starting ranks on this machine, and hearing how they end. */
#pragma once

#include <stdatomic.h>

#include "base/base.h"
#include "collective/collective.h"
#include "comm/wire.h"

/* Tracks whether a step makes progress. A thread in an endless loop uses processor time like one that works. So within
 * a step, only the end of an instruction counts as progress. The longest instruction so far limits how long the next
 * may take.
 *
 * The threads that execute a step call the functions above the line; the heartbeat's thread calls those below. */

struct step_watch {
    atomic_bool steps;           /* a step is under way */
    atomic_int held;             /* threads in it that wait for something outside */
    atomic_uint ended;           /* instructions */
    _Atomic int64_t patience_ns; /* as the step asks */
    /* The heartbeat's thread: */
    unsigned seen;
    int64_t moved_ns, looked_ns; /* since when `seen` stands; when it was last looked at */
    int64_t longest_ns;          /* the longest that it was seen to stand in a step, with nobody waited for */
    bool watched, waited;        /* at the last look; whether the rank waited for others since moved_ns */
};

/* `patience_s`: an instruction may take so long, however long others took. */
void step_watch_begin(struct step_watch *watch, double patience_s);
void step_watch_end(struct step_watch *watch);
/* An instruction has ended, or was enqueued. */
static inline void step_watch_note(struct step_watch *watch) {
    atomic_fetch_add_explicit(&watch->ended, 1, memory_order_relaxed);
}

/* Between these a thread of the step waits for a thread that is not of it, such as one that writes a checkpoint. */
void step_watch_hold(struct step_watch *watch);
void step_watch_release(struct step_watch *watch);

/* ---- */

enum step_watch_answer {
    WATCH_NOT,   /* no step is under way: other signs say whether the rank works */
    WATCH_MOVES, /* an instruction ended since it was last asked, or may still take its time */
    WATCH_STANDS /* none has ended for the step's patience, and for ten times the longest so far */
};
/* `waits`: the rank waits for others. */
enum step_watch_answer step_watch_look(struct step_watch *watch, bool waits, int64_t now_ns);

/* Memory that the ranks of a node share. All of it is there from the start, and none outlives the processes. */
struct comm_shared_segment {
    void *base;    /* `bytes` zeros, aligned to pages */
    int64_t bytes; /* may differ from rank to rank */
    /* The same on all ranks. False where the system shares no memory between ranks: the segment is then private, and
     * operations on it are not in_place but use messages. */
    bool shared;
    void *state;
};

struct comm;
struct comm_operation;
struct backend;
struct nccl_comm;

/* The table behind struct comm. Arguments were checked by comm.c. */
struct comm_engine {
    const char *name;
    enum status (*all_gather)(struct comm *comm, const struct comm_group *group, const void *mine, size_t bytes,
                              void *all);
    enum status (*shared_segment_open)(struct comm *comm, int64_t bytes, struct comm_shared_segment *out);
    void (*shared_segment_close)(struct comm_shared_segment *shared_segment);
    enum status (*create)(struct comm *comm, const struct comm_spec *spec, struct comm_operation **out);
    void (*start)(struct comm_operation *operation);
    enum status (*wait)(struct comm_operation *operation);
    void (*free)(struct comm_operation *operation);
    void (*read_traffic)(const struct comm *comm, struct comm_traffic *out);
    bool (*speaks)(const struct comm *comm);
    enum status (*close)(struct comm *comm);
    void (*abort)(struct comm *comm, int exit_status); /* returns only where there is nobody to end */
    /* For operations that another library carries out; NULL: of one rank. This rank begins to wait for others in one,
     * or no longer does. */
    void (*waits)(struct comm *comm, bool begins);
    /* FAILED where a rank is known to have failed. */
    enum status (*check)(struct comm *comm);
    /* The calling thread's message is a failure of this rank, with which all later calls fail. */
    void (*fail)(struct comm *comm);
};

struct comm {
    const struct comm_engine *engine;
    const char *library; /* "none", or the MPI library's own name and version */
    int rank;            /* its place in the mesh: ranks are numbered node by node, by MPI's order within a node */
    struct mesh mesh;
    bool shares_memory; /* shared segments can be had that the ranks of a node share; the same on all ranks */
    char (*host)[MESH_HOST_BYTES]; /* by rank */
    int64_t message_bytes;         /* the longest message */
    bool agreed_failure;           /* all ranks know of it, so one says it */
    struct status_copy *ends;      /* by rank, of comm_agree: a rank without memory says so too; NULL: of one rank */
    struct nccl_comm *devices;     /* NULL: operations work on memory of the process alone */
    struct comm_traffic device_traffic;
    struct step_watch watch; /* of this rank's steps: the runtime tells it */
    void *context;
};

struct comm_settings {
    /* "self", "openmpi", "mpich" or a plugin's path; NULL: BALLAST_MPI in the environment, else the launcher's MPI
     * (mpi_comm.h) */
    const char *engine;
    int nodes;             /* declares so many nodes, of equal numbers of ranks; 0: as MPI finds them */
    double rank_timeout_s; /* 0: 30 */
    bool messages_only;    /* no shared segments, as where the system has none */
    int64_t message_bytes; /* the longest message; 0: 4 MiB; at most 1 GiB */
};

/* Collective. BAD_INPUT, with the package to install, if a plugin is missing or made for another MPI, and if nodes have
 * different numbers of ranks. If other ranks are known, *out is set after a failure too, only for comm_speaks and
 * comm_abort. Otherwise it is NULL, which both accept. */
enum status comm_open(const struct comm_settings *settings, struct comm **out);
/* Collective, with all operations and shared segments gone. Ends MPI and frees comm. FAILED where a rank failed: then
 * nothing is freed, and the process ends by comm_abort. */
enum status comm_close(struct comm *comm);
/* Ends all ranks, this one with `exit_status`: the last call of a process after a failure, by its command (src/cli). */
_Noreturn void comm_abort(struct comm *comm, int exit_status);
/* Whether this rank is the one that tells the user of the failure. */
bool comm_speaks(const struct comm *comm);

static inline struct comm_group comm_group_all(const struct comm *comm) {
    return mesh_group(&comm->mesh, comm->rank, MESH_ALL);
}

/* Collective over all ranks. */
enum status comm_shared_segment_open(struct comm *comm, int64_t bytes, struct comm_shared_segment *out);
void comm_shared_segment_close(struct comm *comm, struct comm_shared_segment *shared_segment);

struct comm_device_settings {
    const struct backend *backend;
    /* This rank's of other groups that gather; at each place all ranks have one, which together are all ranks. Others'
     * gathers go by single messages. All ranks are always a group. */
    const struct comm_group *groups;
    int group_count;
};
/* Collective over several ranks. Opens NCCL, connects the devices and uses each connection once, so that what they take
 * of the device's memory is taken when it returns. BAD_INPUT, on all ranks alike, where that cannot be had here: no
 * NCCL, no device that it knows, or one for two ranks. FAILED where NCCL fails. */
enum status comm_device_open(struct comm *comm, const struct comm_device_settings *settings);
/* Collective, with all operations gone. */
void comm_device_close(struct comm *comm);

/* Bytes that `staging` needs. Needs no peers: a plan for another mesh uses comm_schedule_create. FAILED if out of
 * memory. */
enum status comm_staging_bytes(const struct comm *comm, const struct comm_spec *spec, int64_t *out);
/* Collective within the group. BAD_INPUT, on all ranks of the group, where their specs do not match. */
enum status comm_create(struct comm *comm, const struct comm_spec *spec, struct comm_operation **out);
void comm_start(struct comm_operation *operation);
/* Returns when the started operation has ended; at once if none was started. FAILED leaves the data undefined. */
enum status comm_wait(struct comm_operation *operation);
/* Not started, or over. */
void comm_free(struct comm_operation *operation);

void comm_read_traffic(const struct comm *comm, struct comm_traffic *out);

/* Those below are collective, all but the first over all ranks. They are for set-up and between steps: they allocate.
 */

/* `all` gets `bytes` from each rank of the group, in its order. */
enum status comm_all_gather(struct comm *comm, const struct comm_group *group, const void *mine, size_t bytes,
                            void *all);
/* Returns the first status that is not OK, by rank, with that rank's message and hint, on all ranks; one of them then
 * prints it. The message names the rank unless all ranks have the same. OK if all are OK. This is the only collective
 * that needs no memory, so that a rank without memory can report that. */
enum status comm_agree(struct comm *comm, enum status mine);
/* `data` becomes rank 0's, on all of as many bytes. */
enum status comm_share(struct comm *comm, void *data, size_t bytes);
/* *text is rank 0's, of any length; on the others a copy of it in fresh memory, for mem_free. */
enum status comm_share_text(struct comm *comm, char **text);
/* BAD_INPUT on all ranks, with the same message, unless all have the same bytes of `what` ("the data's checksum"). */
enum status comm_check_same(struct comm *comm, const char *what, const void *bytes, size_t count);

/* Shared by the engines; private to this module. */

enum { COMM_MESSAGE_BYTES = 4 << 20, COMM_MESSAGE_BYTES_MAX = 1 << 30 };

/* The beginning of each engine's own. */
struct comm_operation {
    struct comm *comm;
    const struct comm_engine *engine; /* that made it */
    bool refused;                     /* the last start failed at its fault point */
};

/* A rank's message to the others when an operation is created: whether it could create its part, and the values that
 * must be equal on all ranks. */
struct comm_offer {
    int32_t good, kind, root;
    int32_t in_place, round_bf16, round_sum, flat;
    int32_t nothing; /* 0: there are no bytes between the fields, which are compared as bytes */
    int64_t bytes, block_bytes;
    uint64_t owners; /* hash of the blocks' owners */
};
void comm_offer_make(const struct comm_spec *spec, bool good, struct comm_offer *out);
/* Checks the offers of all ranks of the group, by position, each at the beginning of `each` bytes. FAILED if a rank
 * could not create its part, BAD_INPUT if two offers differ. */
enum status comm_offers_check(const struct comm *comm, const struct comm_spec *spec, const void *offers, size_t each);

/* `context` is the wire's. */
enum status mpi_comm_open(const struct wire *wire, void *context, const struct comm_settings *settings,
                          struct comm **out);
