/* Collectives as data: each rank's lanes, the order of sums, and each rank's steps. A rank is one process with one
 * device. Plans, programs, proofs and simulations have all of it without ranks; src/comm executes it.
 *
 * OPERATIONS work on one buffer, `data`, cut into one block for each rank of the group, in the group's order unless
 * `owner` says another (comm_spec_block tells where blocks lie). All-to-all has a second buffer, all-gather may.
 *   - all-gather       before: my block is valid           after: all blocks are valid
 *   - reduce-scatter   before: all blocks are valid        after: my block holds the sum, the others are undefined
 *   - all-reduce       before: all blocks are valid        after: all blocks hold the sum
 *   - broadcast        before: the root's data is valid    after: everybody's is (one block: all of it)
 *   - all-to-all       block i of `data` goes to rank i of the group; block j of `out` comes from rank j
 *
 * SUMS are of fp32 and have one order, whatever the number of ranks: that of a tree (lane_tree.h) whose leaves are the
 * group's ranks, which lane_tree_top cuts from the recipe's lanes. A rank that holds several lanes adds them before, by
 * its own subtree (lane_tree_cut, lane_tree.h). A rank that has nothing to add (`empty`) contributes nothing, not even
 * zeros: those would turn -0 into 0. With `round_bf16` every edge of the tree rounds to bf16, also within a rank or a
 * node, and values travel as bf16. With `round_sum` an all-reduce rounds the sum too, and gathers it as bf16.
 *
 * ALGORITHMS (schedule.h). Hierarchical: a reduction halves along the tree: in each of its ceil(log2 ranks) phases a
 * rank sends the half that its partner keeps. A gather runs the same phases backwards, along a tree of nodes over
 * ranks. So a reduction is first within nodes, then across them, and a gather the other way round. Flat: one phase, in
 * which each block goes from every rank to its owner, who adds by the same tree, or from its owner to every rank. Ranks
 * of one node whose data lies in shared segments send each other nothing: each reads the others' data in place, all at
 * once. A receive is posted before its sender is told to send. A message has at most `message_bytes`.
 *
 * BYTES. An operation on B bytes among P ranks moves (P - 1) B, summed over all ranks; all-reduce twice as much; in
 * all-to-all each rank sends B (P - 1) / P. Among n nodes of m ranks, (n - 1) B of it are between nodes where it is
 * hierarchical, and (P - m) B where it is flat. round_bf16 halves what reductions send, round_sum what is gathered of
 * them. comm_read_traffic counts what was moved.
 *
 * Files, in the order to read them:
 * collective: this; ranks by nodes, groups of them, and an operation on a buffer;
 * lane_tree: the order of sums as data, and sums by it;
 * schedule: an operation as one rank's list of steps;
 * proof: that the lists of all ranks fit together; walk: its clocks; symbols: the steps on symbols, and what data must
 * come to. */
#pragma once

#include "base/base.h"
#include "collective/lane_tree.h"

/* Ranks by axes: `nodes` times `per_node`, rank = node * per_node + place in the node. */

enum { MESH_HOST_BYTES = 64 };

struct mesh {
    int nodes, per_node;
};

/* The axis between two ranks: within a node, or across nodes. */
enum mesh_axis { MESH_IN_NODE, MESH_ACROSS, MESH_AXES };

/* Some ranks, in ascending order: first + i * stride for i < count. */
struct comm_group {
    int first, stride, count;
};

/* MESH_ALL: all ranks; MESH_NODE: those of the rank's node; MESH_PEERS: those at its place in all nodes. */
enum mesh_group_kind { MESH_ALL, MESH_NODE, MESH_PEERS };

static inline int mesh_ranks(const struct mesh *mesh) { return mesh->nodes * mesh->per_node; }
static inline int mesh_node(const struct mesh *mesh, int rank) { return rank / mesh->per_node; }
static inline enum mesh_axis mesh_axis_between(const struct mesh *mesh, int a, int b) {
    return mesh_node(mesh, a) == mesh_node(mesh, b) ? MESH_IN_NODE : MESH_ACROSS;
}

struct comm_group mesh_group(const struct mesh *mesh, int rank, enum mesh_group_kind kind);
/* The part with this rank of a group that is cut into parts of `width` neighbours. Width divides the group's count. */
struct comm_group mesh_group_part(const struct comm_group *group, int rank, int width);
struct comm_group mesh_group_pair(int a, int b);
/* The ranks at the positions `inner` of the group `outer`. */
struct comm_group mesh_group_within(const struct comm_group *outer, const struct comm_group *inner);

static inline int mesh_group_rank(const struct comm_group *group, int position) {
    return group->first + position * group->stride;
}

/* The rank's position in the group, or -1. */
int mesh_group_position(const struct comm_group *group, int rank);
/* How many of its ranks each node has, where that is the same for all nodes it touches and these follow each other;
 * else 0. */
int mesh_group_per_node(const struct mesh *mesh, const struct comm_group *group);

/* Operations that the programs of a rank may have together: messages are told apart by tags, of which MPI promises
 * 32767, two an operation. */
enum { COMM_OPERATIONS_MAX = 16000 };

enum comm_kind { COMM_ALL_GATHER, COMM_REDUCE_SCATTER, COMM_ALL_REDUCE, COMM_BROADCAST, COMM_ALL_TO_ALL, COMM_KINDS };

/* Zero-initialise, set what applies. */
struct comm_spec {
    enum comm_kind kind;
    struct comm_group group; /* has this rank */
    void *data;
    int64_t bytes;       /* of data; reductions: a multiple of 4; all-to-all: of the group's ranks */
    int root;            /* broadcast: its position in the group */
    void *out;           /* all-to-all: `bytes`, apart from data */
    void *staging;       /* comm_staging_bytes, aligned to 64 bytes */
    bool in_place;       /* data lies in a shared segment whose `shared` is true, on all ranks of the group */
    bool on_device;      /* data, out, mine and staging lie in the device's memory (comm_device_open); not in_place or
                            flat; blocks of reductions begin at multiples of 64 bytes */
    bool round_bf16;     /* reductions */
    bool round_sum;      /* all-reduce with round_bf16 */
    int64_t block_bytes; /* 0: as comm_block has it; else as comm_spec_block does; reductions: a multiple of 4 */
    /* owner[b] is the position in the group of who has block b, each position once; NULL: b. All-gather,
     * reduce-scatter, all-reduce. Borrowed until comm_create returns. */
    const int *owner;
    /* All-gather: this rank's block, where that is not in its place in data yet: apart from data, read when the
     * operation begins, kept until comm_free. NULL: it is in its place. */
    const void *mine;
    bool flat; /* blocks go straight from all ranks to their owners, and from these to all ranks */
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
/* The same of a specification. With block_bytes block i is [i, i + 1) * block_bytes, cut at the end of data. */
struct comm_range comm_spec_block(const struct comm_spec *spec, int block);
/* Blocks that it has: broadcast 1, else one a rank. */
static inline int comm_spec_blocks(const struct comm_spec *spec) {
    return spec->kind == COMM_BROADCAST ? 1 : spec->group.count;
}

/* Bytes that a rank moves. */
struct comm_traffic {
    int64_t sent[MESH_AXES];     /* by messages */
    int64_t received[MESH_AXES]; /* by messages */
    int64_t read;                /* from shared segments of the ranks of its node */
};
