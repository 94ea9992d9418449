/* What schedules are put together from. */
#ifndef BALLAST_COMM_SCHEDULE_MAKER_H
#define BALLAST_COMM_SCHEDULE_MAKER_H

#include "base/mem.h"
#include "collective/comm_schedule.h"

/* A schedule that is being made. */
struct schedule_maker {
    const struct mesh *mesh;
    const struct comm_spec *spec;
    int64_t message_bytes;
    int me, count;          /* position in the group, its ranks */
    int blocks;             /* broadcast: 1, else count */
    struct scratch scratch; /* lives as long as the making */
    struct comm_schedule *schedule;
    int64_t stage_bytes; /* of staging, taken by the stage that is being made */
};

struct comm_range maker_block(const struct schedule_maker *maker, int block);
enum status maker_step(struct schedule_maker *maker, struct schedule_step step);
/* Adds the transfer with its messages: the `count` blocks, by way of staging where `place` is that; no steps. *out is
 * its index, or -1 where the blocks are empty and there is none. */
enum status maker_transfer(struct schedule_maker *maker, int peer, bool receive, enum schedule_place place,
                           const int *blocks, int count, int *out);
/* STEP_FINISH for each of its messages. */
enum status maker_finish(struct schedule_maker *maker, int transfer);
/* Whether all ranks [first, first + count) read each other's data. */
bool maker_reads_in_place(const struct schedule_maker *maker, int first, int count);

#endif
