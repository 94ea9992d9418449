/* What one micro-batch costs under an activation schedule (plan/activations.h): seconds of compute, bytes on the device
 * group by group, bytes copied. Measured on the same list of executions that the compiler schedules
 * (compiler/executions.h).
 */
#ifndef BALLAST_SEARCH_SCHEDULE_COST_H
#define BALLAST_SEARCH_SCHEDULE_COST_H

#include "compiler/instances.h"
#include "search/sim/costs.h"

/* Bytes of one micro-batch's activations on the device. */
struct group_bytes {
    int32_t block;         /* -1: none, since nobody needs what its nodes would make */
    int64_t before, after; /* when the group begins, and when it has ended */
    int64_t peak;          /* most within the group, workspace included */
};

struct copy_traffic {
    int64_t bytes, copies; /* of one micro-batch */
};

struct schedule_cost {
    const char *schedule; /* borrowed */
    int64_t lookahead;    /* that it was measured for */
    bool moves;           /* whether activations move; if not, lookahead changes nothing */
    VEC(struct group_bytes) groups;
    int32_t blocks;
    int32_t *forward, *backward;      /* by block: the group of its first forward, of its backward; -1 */
    double compute_s[ACTIVITY_COUNT]; /* of one micro-batch: kernels of forward and backward, issue time included */
    int64_t collectives;              /* of one micro-batch: operations between ranks in forward and backward */
    struct copy_traffic out[TIER_COUNT], in[TIER_COUNT]; /* by the tier where activations wait */
    int64_t away_bytes[TIER_COUNT];                      /* peak of one micro-batch's bytes there */
};

/* The executions of one micro-batch under `schedule`; what `executions` held before is dropped. `source` was made for
 * the graph and any schedule; its steps become those of this one. BAD_INPUT when the schedule does not fit the graph.
 */
enum status schedule_list_executions(struct execution_source *source, const char *schedule,
                                     struct execution_list *executions);
/* Of the executions that schedule_list_executions gave for `schedule` just before. The caller frees with
 * schedule_cost_free, also after a failure.
 */
enum status schedule_cost_measure(const struct execution_source *source, const struct execution_list *executions,
                                  const struct workspace_table *workspace, const struct costs *costs,
                                  const char *schedule, int64_t lookahead, struct schedule_cost *out);
/* The cost of the twin whose activations wait in another tier; `schedule` is its text. The caller frees, also after a
 * failure. */
enum status schedule_cost_copy(const struct schedule_cost *cost, const char *schedule, enum tier tier,
                               struct schedule_cost *out);
void schedule_cost_free(struct schedule_cost *cost);
/* The peak of activations' bytes in a wave over `slots` micro-batches. */
int64_t schedule_cost_min_bytes(const struct schedule_cost *cost, int64_t slots);

#endif
