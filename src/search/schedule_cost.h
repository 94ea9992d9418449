/* Cost of one micro-batch under an activation schedule (plan/activations.h): seconds of compute, bytes on the device
 * group by group, and copied bytes. Measured on the list of executions that the compiler schedules
 * (compiler/executions.h). */
#pragma once

#include "base/base.h"
#include "compiler/executions.h"
#include "machine/rates.h"
#include "plan/recompute.h"
#include "search/sim/costs.h"

/* The activation schedules that a search tries (ProTrain, arXiv 2406.08334, section 3.2). The first blocks' activations
 * move to another tier, since most compute remains to hide the copies. The next blocks are recomputed, the last are
 * kept. To save more memory, blocks are also recomputed from inputs in another tier, or several layers from one
 * input. */

enum schedule_kind {
    SCHEDULE_KEEP,
    SCHEDULE_RECOMPUTE,        /* some blocks */
    SCHEDULE_MOVE,             /* some blocks' activations move to another tier */
    SCHEDULE_MOVE_RECOMPUTE,   /* some of each */
    SCHEDULE_RECOMPUTE_INPUTS, /* all blocks, from inputs in another tier */
    SCHEDULE_NESTED,           /* several blocks recomputed from one input */
    SCHEDULE_FASTEST,          /* found by a solver for a budget of bytes (plan/recompute.h) */
    SCHEDULE_KINDS
};

struct schedule {
    enum schedule_kind kind;
    enum tier tier; /* tier of moved activations; the device: none are moved */
    int32_t twin;   /* an earlier one in the list that differs only in the tier; -1: none */
    const char *text;
};

struct schedule_list {
    VEC(struct schedule) list;
    struct scratch memory; /* of the texts */
};

/* Lists schedules for `blocks` blocks, including embedding and head. `tiers`: whether activations may move there.
 * `max`: how many counts of moved or recomputed blocks are tried per kind, spread evenly. The caller frees, also after
 * a failure. */
enum status schedules_list(int32_t blocks, const bool tiers[TIER_COUNT], int32_t max, struct schedule_list *out);
/* Adds the fastest schedules (plan/recompute.h) whose activations of one micro-batch fit each budget of bytes, without
 * duplicates. Adds nothing for a budget that is too small, or for more than SOLVED_BLOCKS_MAX blocks. */
enum { SOLVED_BLOCKS_MAX = 128, BUDGETS_MAX = 8 };
enum status schedules_add_fastest(const struct chain *chain, const int64_t *budgets_bytes, int count,
                                  struct schedule_list *out);
void schedules_free(struct schedule_list *schedules);

/* Bytes of one micro-batch's activations on the device. */
struct group_bytes {
    int32_t block;         /* -1: none, since no node reads its outputs */
    int64_t before, after; /* when the group begins, and when it has ended */
    int64_t peak;          /* maximum within the group, including workspace */
};

struct copy_traffic {
    int64_t bytes, copies; /* of one micro-batch */
};

struct schedule_cost {
    int64_t lookahead; /* the lookahead it was measured for */
    bool moves;        /* whether activations move; if not, lookahead has no effect */
    VEC(struct group_bytes) groups;
    int32_t blocks;
    int32_t *forward, *backward;      /* by block: the group of its first forward, and of its backward; -1: none */
    double compute_s[ACTIVITY_COUNT]; /* per micro-batch: kernels of forward and backward, including issue time */
    int64_t collectives;              /* per micro-batch: collectives in forward and backward */
    struct copy_traffic out[TIER_COUNT], in[TIER_COUNT]; /* by the tier of the moved activations */
    int64_t away_bytes[TIER_COUNT];                      /* peak bytes of one micro-batch there */
};

/* Lists the executions of one micro-batch under `schedule`, replacing those in `executions`. `source` was made for the
 * graph and any schedule; its steps become this schedule's. BAD_INPUT if the schedule does not fit the graph. */
enum status schedule_list_executions(struct execution_source *source, const char *schedule,
                                     struct execution_list *executions);
/* Measures the last list of schedule_list_executions. The caller frees with schedule_cost_free, also after a
 * failure. */
enum status schedule_cost_measure(const struct execution_source *source, const struct execution_list *executions,
                                  const struct workspace_table *workspace, const struct costs *costs, int64_t lookahead,
                                  struct schedule_cost *out);
/* The cost of the twin whose activations move to another tier. The caller frees, also after a failure. */
enum status schedule_cost_copy(const struct schedule_cost *cost, enum tier tier, struct schedule_cost *out);
void schedule_cost_free(struct schedule_cost *cost);
/* The peak bytes of activations in a wave of `slots` micro-batches. */
int64_t schedule_cost_min_bytes(const struct schedule_cost *cost, int64_t slots);

/* A training step's blocks as a chain (plan/recompute.h), for the recomputation solver. */

/* For each block, including embedding and head: seconds and bytes of one micro-batch. `keep`: the cost of the schedule
 * that keeps everything (lookahead 0); its groups give each block's temporary bytes. BAD_INPUT as in chain_check. The
 * caller frees with chain_free. */
enum status step_chain_create(const struct graph *graph, const struct costs *costs, const struct schedule_cost *keep,
                              struct chain *out);
