/* What one micro-batch costs under an activation schedule (plan/activations.h): seconds of compute, bytes on the device
 * group by group, bytes copied. Measured on the same list of executions that the compiler schedules
 * (compiler/executions.h).
 */
#pragma once

#include "base/base.h"
#include "compiler/executions.h"
#include "machine/rates.h"
#include "plan/recompute.h"
#include "search/sim/costs.h"

/* The activation schedules that a search tries (ProTrain, arXiv 2406.08334, section 3.2): the first blocks' activations
 * are moved to another tier, since most compute is left to hide the copies; the next blocks are recomputed; the last
 * are kept. For less memory, also recomputation from inputs in another tier, and of several layers from one input. */

enum schedule_kind {
    SCHEDULE_KEEP,
    SCHEDULE_RECOMPUTE,        /* some blocks */
    SCHEDULE_MOVE,             /* some blocks' activations go to another tier */
    SCHEDULE_MOVE_RECOMPUTE,   /* some of each */
    SCHEDULE_RECOMPUTE_INPUTS, /* all blocks, from inputs in another tier */
    SCHEDULE_NESTED,           /* several blocks recomputed from one input */
    SCHEDULE_FASTEST,          /* found by a solver for a budget of bytes (plan/recompute.h) */
    SCHEDULE_KINDS
};

struct schedule {
    enum schedule_kind kind;
    enum tier tier; /* where moved activations wait; the device: none are moved */
    int32_t twin;   /* an earlier one in the list that differs in the tier alone; -1: none */
    const char *text;
};

struct schedule_list {
    VEC(struct schedule) list;
    struct scratch memory; /* of the texts */
};

/* For `blocks` blocks, embedding and head among them. `tiers`: whether activations may wait there. `max`: how many
 * numbers of moved or recomputed blocks are tried of each kind, spread evenly. The caller frees, also after a failure.
 */
enum status schedules_list(int32_t blocks, const bool tiers[TIER_COUNT], int32_t max, struct schedule_list *out);
/* Adds the fastest schedules (plan/recompute.h) whose activations of one micro-batch stay within budgets of bytes,
 * those that are not in the list yet. Nothing is added where no schedule stays within a budget, nor for more than
 * SOLVED_BLOCKS_MAX blocks. */
enum { SOLVED_BLOCKS_MAX = 128, BUDGETS_MAX = 8 };
enum status schedules_add_fastest(const struct chain *chain, const int64_t *budgets_bytes, int count,
                                  struct schedule_list *out);
void schedules_free(struct schedule_list *schedules);

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
    int64_t lookahead; /* that it was measured for */
    bool moves;        /* whether activations move; if not, lookahead changes nothing */
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
/* Of the executions that schedule_list_executions gave just before. The caller frees with
 * schedule_cost_free, also after a failure.
 */
enum status schedule_cost_measure(const struct execution_source *source, const struct execution_list *executions,
                                  const struct workspace_table *workspace, const struct costs *costs, int64_t lookahead,
                                  struct schedule_cost *out);
/* The cost of the twin whose activations wait in another tier. The caller frees, also after a
 * failure. */
enum status schedule_cost_copy(const struct schedule_cost *cost, enum tier tier, struct schedule_cost *out);
void schedule_cost_free(struct schedule_cost *cost);
/* The peak of activations' bytes in a wave over `slots` micro-batches. */
int64_t schedule_cost_min_bytes(const struct schedule_cost *cost, int64_t slots);

/* A training step's blocks as a chain (plan/recompute.h), for the solver that chooses what to recompute. */

/* For each block, embedding and head among them, in seconds and bytes of one micro-batch. `keep`: the cost of the
 * schedule that keeps all (lookahead 0); its groups give each block's temporary bytes. BAD_INPUT as chain_check. The
 * caller frees with chain_free. */
enum status step_chain_create(const struct graph *graph, const struct costs *costs, const struct schedule_cost *keep,
                              struct chain *out);
