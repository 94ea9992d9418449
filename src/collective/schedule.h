/* Building blocks of schedules. */
#pragma once

#include "base/base.h"
#include "collective/collective.h"

/* An operation as one rank's list of steps: sends, sums and waits. A pure function of the specification and the mesh,
 * so that plans, proofs and simulations have it without ranks.
 *
 * Each block has at every node of a tree one holder among the ranks below. At the root that is the block's owner; at a
 * child it is the same rank where that is below the child, and else the rank across: the i-th rank of one side stands
 * across from the i-th of the other (modulo the side's size). Up the tree this is a reduction by recursive halving: at
 * each node the holders of one side send to those of the other. Down the tree it is a gather by recursive doubling. At
 * each inner node each block travels once, so an operation moves (ranks - 1) times its bytes, in as many phases as the
 * tree is deep. A node of the tree whose ranks all share shared segments is not walked: its holders read all others in
 * place. A flat operation walks no tree: it is only the order in which owners add.
 *
 * Steps are taken in order; one that cannot be taken yet holds back those after it. Receives of a phase are posted
 * before its sends, so no rank waits for ever: one that stands at the earliest phase of all waits only for what others
 * have posted. */

struct schedule_piece {
    int64_t offset, bytes;
};

enum schedule_place { PLACE_DATA, PLACE_OUT, PLACE_STAGING };

/* One message: pieces of data (or out) in their order, straight from there or by way of staging. */
struct schedule_message {
    int peer; /* position in the group, here and below */
    bool receive;
    enum schedule_place place; /* where it is sent from or received */
    int first_piece, pieces;
    int64_t staging; /* PLACE_STAGING: offset */
    int64_t bytes;   /* as it travels */
};

/* Consecutive messages from one rank to another, in staging side by side. The receiver tells the sender once, when all
 * are posted. */
struct schedule_transfer {
    int peer;
    bool receive;
    int first_message, messages;
};

/* Ranks that read each other's data meet four times at most: when the data is ready to be added, when all was read,
 * when blocks are ready to be gathered, when all were read. */
enum schedule_meeting { MEETING_SUMS, MEETING_SUMMED, MEETING_BLOCKS, MEETING_GATHERED, MEETINGS };

enum step_kind {
    STEP_POST,   /* post the receives of transfer `index`, tell the sender */
    STEP_SEND,   /* wait until told by the receiver, begin transfer `index` */
    STEP_FINISH, /* wait until message `index` is received, or sent */
    STEP_PACK,   /* round message `index` to bf16, from data into staging */
    STEP_MERGE,  /* add message `index`, in staging, to its pieces of data, by `side` */
    STEP_ROUND,  /* round [to, to + bytes) of data to bf16 */
    STEP_SUM,    /* [to, to + bytes) of data = value of tree node `index`, from the data of all ranks below it: from
                    staging where one of the transfers [first, first + count) brought data from `from` on, else in place */
    STEP_TAKE,   /* [to, to + bytes) of data = `mine` */
    STEP_COPY,   /* [to, to + bytes) of data (all-to-all: of out) = [from, …) of the data of rank `index` */
    STEP_ARRIVE, /* at meeting `index` */
    STEP_MEET    /* wait until the ranks [first, first + count) have arrived at meeting `index` */
};

/* The operand of a sum that is the rank's own value. */
enum merge_side { MERGE_MINE_LEFT, MERGE_MINE_RIGHT, MERGE_MINE_ABSENT };

struct schedule_step {
    enum step_kind kind;
    int index, first, count;
    enum merge_side side;
    int64_t to, from, bytes;
};

struct comm_schedule {
    VEC(struct schedule_step) steps;
    VEC(struct schedule_transfer) transfers;
    VEC(struct schedule_message) messages;
    VEC(struct schedule_piece) pieces;
    int64_t staging_bytes;
    struct comm_traffic traffic; /* of one execution */
    struct lane_tree tree;       /* reductions: of sums; its leaves are positions in the group */
    bool *absent;                /* by node of that tree */
};

/* `rank` is one of the group's. `message_bytes` is a positive multiple of 64. The caller frees. FAILED without memory.
 */
enum status comm_schedule_create(const struct mesh *mesh, int rank, int64_t message_bytes, const struct comm_spec *spec,
                                 struct comm_schedule *out);
void comm_schedule_free(struct comm_schedule *schedule);
/* The tree by which a reduction is added up, and which of its nodes have nothing to add. The caller frees both, also
 * after a failure, with lane_tree_free and mem_free. */
enum status comm_spec_tree(const struct comm_spec *spec, struct lane_tree *tree, bool **absent);
