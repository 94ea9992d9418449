/* A way to keep activations: a schedule of plan/activations.h, with what one grain of it takes: seconds of computing,
 * bytes on the device group by group, bytes that move. Measured on the list of executions that the compiler schedules
 * (program/executions.h), so that it is no second model of them. */
#ifndef BALLAST_SEARCH_WAY_H
#define BALLAST_SEARCH_WAY_H

#include "program/instances.h"
#include "sim/costs.h"

/* Bytes of one grain's activations on the device. */
struct way_group {
    int32_t block;         /* -1: none, since nobody needs what its nodes would make */
    int64_t before, after; /* when the group begins, and when it has ended */
    int64_t peak;          /* most within the group, workspace included */
};

struct way_traffic {
    int64_t bytes, copies; /* of one grain */
};

struct way {
    const char *schedule; /* borrowed */
    int64_t lookahead;    /* that it was measured for */
    bool moves;           /* activations; if none do, lookahead changes nothing */
    VEC(struct way_group) groups;
    int32_t blocks;
    int32_t *forward, *backward;      /* by block: the group of its first forward, of its backward; -1 */
    double compute_s[ACTIVITY_COUNT]; /* of one grain: kernels of forward and backward, with their issue */
    struct way_traffic out[TIER_COUNT], in[TIER_COUNT]; /* by the tier where activations wait */
    int64_t away_bytes[TIER_COUNT];                     /* most of one grain's there at once */
};

/* The executions of one grain under `schedule`; what `executions` held before is dropped. `source` was made for the
 * graph and any schedule; its stages become those of this one. BAD_INPUT when the schedule does not fit the graph. */
enum status way_list_executions(struct execution_source *source, const char *schedule,
                                struct execution_list *executions);
/* Of the executions that way_list_executions gave for `schedule` just before. The caller frees with way_free, also
 * after a failure.
 */
enum status way_measure(const struct execution_source *source, const struct execution_list *executions,
                        const struct workspace_table *workspace, const struct costs *costs, const char *schedule,
                        int64_t lookahead, struct way *out);
/* The same way with activations that wait in another tier: `schedule` says so. The caller frees, also after a failure.
 */
enum status way_copy(const struct way *way, const char *schedule, enum tier tier, struct way *out);
void way_free(struct way *way);
/* What activations take at the most busy time of a pass over `slots` grains. */
int64_t way_least_bytes(const struct way *way, int64_t slots);

#endif
