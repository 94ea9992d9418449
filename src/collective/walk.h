/* The steps of all ranks of an operation, walked side by side with vector clocks (Mattern, 1989). For schedule_proof
 * alone. */
#pragma once

#include "base/base.h"
#include "collective/schedule.h"

/* Time on a rank: 1 when the operation begins, s + 2 at step s, and one more when it is over. */
struct rank_walk {
    const struct comm_schedule *schedule;
    size_t next;                 /* step */
    int *matches;                /* by transfer: the peer's transfer that it is for */
    size_t *posted_at;           /* by transfer: 1 + the step that posts it; 0: none */
    size_t *sent_at;             /* the same for sends */
    int *transfer_of;            /* by message */
    size_t arrived_at[MEETINGS]; /* 1 + the step */
    int32_t *clocks;             /* by step and rank: what is known of it when the step ends */
};

struct walked_step {
    int rank; /* position in the group, as everywhere here */
    size_t step;
};

struct schedule_walk {
    const struct comm_group *group;
    int ranks;
    struct rank_walk *of;
    VEC(struct walked_step) order; /* one in which the steps may be taken */
    struct scratch memory;         /* of the arrays by rank */
};

/* FAILED, naming the rank, where transfers do not match or a rank waits for ever. The caller frees, also then. */
enum status schedule_walk_create(const struct comm_group *group, const struct comm_schedule *const *schedules,
                                 struct schedule_walk *out);
void schedule_walk_free(struct schedule_walk *walk);

static inline int32_t *schedule_walk_clock(const struct schedule_walk *walk, int rank, size_t step) {
    return walk->of[rank].clocks + step * (size_t)walk->ranks;
}

#define SCHEDULE_FAULT(walk, position, step, ...)                                                                      \
    status_prefix(status_set(STATUS_FAILED, __VA_ARGS__), "rank %d, step %zu",                                         \
                  mesh_group_rank((walk)->group, position), step)
