/* Communication between ranks: a rank is one process with one device.
 *
 *     struct comm *comm;
 *     TRY(comm_open(&(struct comm_settings){.rank_timeout_s = 30}, &comm));
 *     TRY(comm_window_open(comm, bytes, &window));                        at plan time: memory that node peers read
 *     struct comm_spec spec = {.kind = COMM_ALL_REDUCE, .group = comm_group_all(comm), .data = window->base, …};
 *     spec.staging = memory of comm_staging_bytes(comm, &spec) bytes      from the plan, like any buffer
 *     TRY(comm_create(comm, &spec, &operation));                          peers, buffers, requests: fixed here
 *     for each step: comm_start(operation); …; TRY(comm_wait(operation));
 *     comm_free(operation); comm_window_close(window); TRY(comm_close(comm));
 *
 * Two engines stand behind it. `self` is one rank: a plain start of the program, which neither links nor opens MPI.
 * `mpi` is what mpirun or srun started: a plugin for the MPI library in use (wire.h) sends messages, and everything
 * else, the algorithms included, is Ballast's own and the same for every library.
 *
 * Operations. Each works on one buffer, `data`, cut into one block a rank of the group, in the group's order
 * (comm_block says where the blocks lie); only all-to-all has a second one.
 *     all-gather       my block is valid before;  all blocks are valid after
 *     reduce-scatter   all are valid before;      after, my block holds the sum and the others are undefined
 *     all-reduce       all are valid before;      after, all hold the sum
 *     broadcast        the root's are valid;      after, everybody's (uncut)
 *     all-to-all       block i of `data` goes to the group's i-th rank, block j of `out` comes from its j-th
 * Sums are of fp32 and have one order, whatever the number of ranks: that of the tree (lane_tree.h), whose leaves are
 * the group's ranks, cut from the recipe's lanes by lane_tree_top. A rank that has several lanes adds them before, by
 * the subtree that it holds (lane_tree_cut). A rank without anything to add (`empty`) contributes nothing: not even
 * zeros, which would turn -0 into 0. With `round_bf16` each value is rounded to bf16 on each edge of the tree, also
 * within a rank or node, and travels so.
 *
 * How (comm_schedule.h). Reductions halve along the tree: ceil(log2 ranks) stages, in each of which a rank sends the
 * part that its partner goes on with. Gathers are the same backwards, along a tree of nodes over ranks. Between ranks
 * of one node whose data lies in windows there are no messages: each reads the others' data in place, all at once. A
 * receive is posted before its sender is told to send. No message is longer than message_bytes. After comm_create an
 * operation allocates nothing.
 *
 * Bytes. Summed over all ranks, an operation on `bytes` B among n nodes of m ranks moves between nodes (n-1) B and
 * within nodes n (m-1) B; all-reduce twice that, all-to-all B (P-1) / P from each of P ranks. round_bf16 halves what
 * reductions move between ranks by messages. comm_read_traffic counts what was moved.
 *
 * Threads. One thread of comm's makes all MPI calls and serves any number of started operations at a time; it sleeps
 * while there is nothing to do. comm_start, comm_test and comm_wait may be called by any thread, for one operation by
 * one at a time. All ranks create the operations of a group, open windows and call what is marked *together* in the
 * same order. Started operations may overlap and may be started in different orders, as long as each rank gets to start
 * all of them. Between comm_start and the end of the operation its buffers are comm's: `data`, `out` and
 * `staging` may neither be written nor, but for the root's block or one's own in a gather, read.
 *
 * Failure. A rank that is dead or stopped is noticed by its silence within rank_timeout_s, one that does not start what
 * the others wait for within the same time. From then on every call returns FAILED, with a message that names rank and
 * host. The process says so (comm_speaks: one rank's is enough) and ends by comm_abort, which ends all ranks. MPI's own
 * way of ending is only gone by comm_close, when nothing failed.
 *
 * Who uses it: the runtime's communication streams start and wait for operations as instructions; their buffers, the
 * staging included, are the program's, and the schedule tells program_verify what a peer reads and who waits for whom.
 * The move pass turns fetches and stores of shards into all-gathers and reduce-scatters. Checkpoints and
 * training use comm_exchange and comm_agree (who failed, which step to stop after). Profiling times operations on
 * groups of two ranks and of axes, and reads bytes from comm_read_traffic.
 *
 * Files, in the order to read them: lane_tree (the order of sums, as data), lane_sum (adding by it), mesh (ranks by
 * nodes; groups), comm (this), comm_engine (what the engines share), agree (what ranks tell each other before and
 * between steps), comm_schedule, schedule_maker (an operation as one rank's list of steps), self_comm (the engine of
 * one rank), wire (the table of a message-passing library), mpi_comm (the engine of many: its thread), operation (an
 * operation on its way), window (memory that ranks of a node share), pulse (who is silent), mpi_library (which MPI,
 * where its plugin is), mpi/plugin (compiled once for each MPI), launch (starting ranks on this machine), launch_report
 * (how they end). */
#ifndef BALLAST_COMM_COMM_H
#define BALLAST_COMM_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "comm/lane_tree.h"
#include "comm/mesh.h"

enum comm_kind { COMM_ALL_GATHER, COMM_REDUCE_SCATTER, COMM_ALL_REDUCE, COMM_BROADCAST, COMM_ALL_TO_ALL, COMM_KINDS };

/* Zero-initialise, set what applies. */
struct comm_spec {
    enum comm_kind kind;
    struct comm_group group; /* has this rank */
    void *data;
    int64_t bytes;   /* of data; reductions: a multiple of 4; all-to-all: of the group's ranks */
    int root;        /* broadcast: its position in the group */
    void *out;       /* all-to-all: `bytes`, apart from data */
    void *staging;   /* comm_staging_bytes, aligned to 64 bytes */
    bool in_place;   /* data lies in a window whose `shared` is true, on all ranks of the group */
    bool round_bf16; /* reductions */
    /* Reductions: a tree with one leaf for each rank of the group (lane_tree_top); NULL: halves. Borrowed until
     * comm_create returns, as is `empty`. */
    const struct lane_tree *tree;
    const bool *empty; /* by position in the group: has nothing to add; NULL: none. Not all of them. */
};

/* [begin, end) in bytes of a block: ceil(bytes / count) each, rounded up to a multiple of 64; the last ones may be
 * shorter or empty. All-to-all: bytes / count each. */
struct comm_range {
    int64_t begin, end;
};
struct comm_range comm_block(enum comm_kind kind, int64_t bytes, int count, int position);

/* Bytes that this rank has moved since comm_open. */
struct comm_traffic {
    int64_t sent[MESH_AXES];     /* by messages */
    int64_t received[MESH_AXES]; /* by messages */
    int64_t read;                /* from windows of the ranks of its node */
};

/* Memory that the ranks of a node share, in full from the start; nothing of it outlives the processes. */
struct comm_window {
    void *base; /* `bytes` zeros, aligned to pages */
    int64_t bytes;
    bool shared; /* false where the system does not share memory between ranks: then it is private, operations on it are
                    not in_place, and all goes by messages. The same on all ranks. */
    void *state;
};

struct comm;
struct comm_operation;

/* The table behind struct comm. Arguments were checked by comm.c. */
struct comm_engine {
    const char *name;
    enum status (*exchange)(struct comm *comm, const struct comm_group *group, const void *mine, size_t bytes,
                            void *all);
    enum status (*window_open)(struct comm *comm, int64_t bytes, struct comm_window *out);
    void (*window_close)(struct comm_window *window);
    enum status (*create)(struct comm *comm, const struct comm_spec *spec, struct comm_operation **out);
    void (*start)(struct comm_operation *operation);
    bool (*test)(struct comm_operation *operation);
    enum status (*wait)(struct comm_operation *operation);
    void (*free)(struct comm_operation *operation);
    void (*read_traffic)(const struct comm *comm, struct comm_traffic *out);
    bool (*speaks)(const struct comm *comm);
    enum status (*close)(struct comm *comm);
    void (*abort)(struct comm *comm, int exit_status); /* returns only where there is nobody to end */
};

struct comm {
    const struct comm_engine *engine;
    const char *library; /* "none", or the MPI library's own name and version */
    int rank;            /* its place in the mesh: ranks are numbered node by node, by MPI's order within a node */
    struct mesh mesh;
    char (*host)[MESH_HOST_BYTES]; /* by rank */
    int64_t message_bytes;         /* the longest message */
    bool agreed_failure;           /* all ranks know of it, so one says it */
    void *context;
};

struct comm_settings {
    /* "self", "openmpi", "mpich" or a plugin's path; NULL: BALLAST_MPI in the environment, else what launched the
     * process (mpi_library.h) */
    const char *engine;
    int nodes;             /* declares so many nodes, of equal numbers of ranks; 0: as MPI finds them */
    double rank_timeout_s; /* 0: 30 */
    bool messages_only;    /* no shared windows, as where the system has none */
    int64_t message_bytes; /* the longest message; 0: 4 MiB; at most 1 GiB */
};

/* Together. BAD_INPUT for a plugin that is missing or made for another MPI (with the package to install), and where
 * nodes have different numbers of ranks. Where other ranks are known *out is set after a failure too, for comm_speaks
 * and comm_abort alone; else it is NULL, which both take. */
enum status comm_open(const struct comm_settings *settings, struct comm **out);
/* Together, with all operations and windows gone. Waits for all ranks; after a failure of any it returns FAILED and
 * MPI is left as it is: the process ends by comm_abort. Frees comm only when OK. */
enum status comm_close(struct comm *comm);
/* Ends all ranks, this one with `exit_status`; the last thing that a process does after a failure. */
_Noreturn void comm_abort(struct comm *comm, int exit_status);
/* Whether this rank is the one that tells the user of the failure. */
bool comm_speaks(const struct comm *comm);

static inline struct comm_group comm_group_all(const struct comm *comm) {
    return mesh_group(&comm->mesh, comm->rank, MESH_ALL);
}

/* Together. */
enum status comm_window_open(struct comm *comm, int64_t bytes, struct comm_window *out);
void comm_window_close(struct comm *comm, struct comm_window *window);

/* What `staging` must have. Needs no peers: a plan for a mesh that is elsewhere asks comm_schedule_create. FAILED
 * without memory. */
enum status comm_staging_bytes(const struct comm *comm, const struct comm_spec *spec, int64_t *out);
/* Together within the group. BAD_INPUT, on all ranks of the group, where their specs do not match. */
enum status comm_create(struct comm *comm, const struct comm_spec *spec, struct comm_operation **out);
void comm_start(struct comm_operation *operation);
/* Whether it is over; then comm_wait does not block. */
bool comm_test(struct comm_operation *operation);
/* Returns at the end of what was started; at once when nothing was. FAILED leaves the data undefined. */
enum status comm_wait(struct comm_operation *operation);
/* Not started, or over. */
void comm_free(struct comm_operation *operation);

void comm_read_traffic(const struct comm *comm, struct comm_traffic *out);

/* The three below are together within the group or among all, and for set-up: they allocate. */

/* `all` gets `bytes` from each rank of the group, in its order. */
enum status comm_exchange(struct comm *comm, const struct comm_group *group, const void *mine, size_t bytes, void *all);
/* The first status that is not OK, by rank, with that rank's message and hint: on all ranks, of which one then speaks.
 * OK if all are. */
enum status comm_agree(struct comm *comm, enum status mine);
/* BAD_INPUT on all ranks, with the same message, unless all have the same bytes of `what` ("the data's checksum"). */
enum status comm_check_same(struct comm *comm, const char *what, const void *bytes, size_t count);

#endif
