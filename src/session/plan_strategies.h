/* How a plan's model could be cut among its ranks: the strategies that cost least on their mesh, and those that do not
 * divide (plan/layout/joint_solution.h). Of all ranks, on the mesh of
 * their nodes; what a plan of ranks that share tensors runs is in session/layout_report.h. */
#ifndef BALLAST_SESSION_PLAN_STRATEGIES_H
#define BALLAST_SESSION_PLAN_STRATEGIES_H

#include <jansson.h>

#include "plan/layout/joint_solution.h"
#include "session/session_plan.h"

struct plan_strategies {
    struct graph *graph; /* forward, of as many sequences as all ranks have in one micro-batch each */
    struct shard_question question;
    struct shard_program program;
    struct joint_solution solution;
    bool too_large; /* the graph has more nodes than the integer program takes: only `graph` is set */
    bool fits;      /* else `solution` is empty: nothing fits a rank's device */
};

/* Whether the plan has several ranks, and the bandwidth between them is known. */
bool plan_strategies_are_known(const struct session_plan *plan);
/* Of such a plan. The mesh is its nodes and the ranks of each, at the rates of its links; a rank works as fast as the
 * best of the plan's kernels, which must have been measured (session_plan_measure). Free with plan_strategies_free,
 * also after a failure. */
enum status plan_strategies_find(const struct session_plan *plan, struct plan_strategies *out);
void plan_strategies_free(struct plan_strategies *strategies);

/* {"mesh": [2, 4], "seconds", "peak_bytes", "recomputed": ["layer.0", …], "nodes": [{"name", "operator", "inputs":
 * ["S0RR", …], "output", "compute_s", "forward_s", "backward_s", "dropped": ["12 heads …", …]}]}: a node of each kind
 * of block. Seconds are those of one micro-batch a rank. NULL when out of memory. */
json_t *plan_strategies_to_json(const struct plan_strategies *strategies);
/* Whether the schedule computes a block again. */
bool plan_strategies_repeats(const struct plan_strategies *strategies, int block);

#endif
