/* What schedules are put together from. */
#pragma once

#include "base/base.h"
#include "collective/comm_schedule.h"

/* A schedule that is being made. */
struct schedule_maker {
    const struct mesh *mesh;
    const struct comm_spec *spec;
    int64_t message_bytes;
    int me, count;          /* position in the group, its ranks */
    int blocks;             /* broadcast: 1, else count */
    int *owner;             /* by block; broadcast: the root */
    int *owned;             /* by position: its block, or -1 */
    struct scratch scratch; /* lives as long as the making */
    struct comm_schedule *schedule;
    int64_t phase_bytes; /* of staging, taken by the phase that is being made */
};

/* Transfers that are on their way at the same time; their space in staging is used again by the next phase. */
struct maker_phase {
    int *transfers, count;
};

static inline struct comm_range maker_block(const struct schedule_maker *maker, int block) {
    return comm_spec_block(maker->spec, block);
}
enum status maker_step(struct schedule_maker *maker, struct schedule_step step);
enum status maker_begin_phase(struct schedule_maker *maker, struct maker_phase *phase);
/* Adds the phase's transfer of `count` blocks with its messages, through staging if `place` is staging. Adds
 * nothing if the blocks are empty. */
enum status maker_phase_transfer(struct schedule_maker *maker, struct maker_phase *phase, int peer, bool receive,
                                 enum schedule_place place, const int *blocks, int count);
/* Begins the transfers, whose receives were added first; STEP_PACK for each message that is sent, if `pack`. */
enum status maker_launch(struct schedule_maker *maker, const struct maker_phase *phase, bool pack);
/* STEP_FINISH for each message that is received, or else sent. */
enum status maker_finish(struct schedule_maker *maker, const struct maker_phase *phase, bool receives);
/* STEP_FINISH for each message that is received into staging, and STEP_MERGE by this side. */
enum status maker_merge(struct schedule_maker *maker, const struct maker_phase *phase, enum merge_side side);
/* Where what is gathered is sent from and received: in staging where sums travel as bf16, which are packed then. */
static inline enum schedule_place maker_gather_place(const struct schedule_maker *maker) {
    return maker->spec->kind == COMM_ALL_REDUCE && maker->spec->round_sum ? PLACE_STAGING : PLACE_DATA;
}
/* STEP_FINISH for what a gather received, unpacked into data where it is packed. */
enum status maker_finish_gathered(struct schedule_maker *maker, const struct maker_phase *phase);
/* The ranks [first, first + count) of the node meet. Not where that is this rank alone. */
enum status maker_meet(struct schedule_maker *maker, int first, int count, enum schedule_meeting meeting, bool arrive,
                       bool wait);
/* Whether all ranks [first, first + count) read each other's data. */
bool maker_reads_in_place(const struct schedule_maker *maker, int first, int count);
/* STEP_COPY of the block from the data of rank `from`; nothing for an empty one. */
enum status maker_copy_block(struct schedule_maker *maker, int block, int from);

/* schedule_tree.c: phases along a tree; sums from all ranks to the blocks' owners, and from these to all. */
enum status schedule_reduce_along_tree(struct schedule_maker *maker);
enum status schedule_gather_along_tree(struct schedule_maker *maker);
/* schedule_flat.c: the same in one phase each, and all-to-all, which is always that. */
enum status schedule_reduce_flat(struct schedule_maker *maker);
enum status schedule_gather_flat(struct schedule_maker *maker);
enum status schedule_all_to_all(struct schedule_maker *maker);
