/* Which part of each tensor a rank has under a plan whose ranks share tensors: Megatron-LM's assignment, or what the
 * solver finds cheapest at the rates that the recipe holds (recipe.layout). It solves once: then the recipe names the
 * strategies, and all ranks, all programs of a plan and a run that goes on have these. */
#ifndef BALLAST_SESSION_TENSOR_LAYOUT_H
#define BALLAST_SESSION_TENSOR_LAYOUT_H

#include "plan/layout/joint_solution.h"
#include "plan/layout/shard_choice.h"
#include "plan/layout/shard_program.h"
#include "session/session_plan.h"

/* What a machine does in a second of a micro-batch of so many sequences, whatever ranks share its tensors. */
struct machine_rates {
    int64_t micro_batch_sequences;
    struct layout_rates work; /* without links */
    struct transfer_rate message[MESH_AXES];
};
/* Whether the solver is asked for and recipe.layout_rates are not known. */
bool tensor_layout_lacks_rates(const struct recipe *recipe);
/* The best rates of the model's kernels, measured on one rank's graph of the plan's micro-batch, and those of the
 * links. */
enum status tensor_layout_measure(const struct session_plan *plan, struct machine_rates *out);
/* Sets recipe.layout_rates: the links are those between ranks that share tensors; without such, a tenth of the
 * memory's. What the model takes is held against the devices of all stages together. */
void tensor_layout_take_rates(const struct session *session, const struct machine_rates *rates, struct plan *plan);
/* Both, where the plan lacks rates. */
enum status tensor_layout_find_rates(struct session_plan *plan);

/* Fills recipe.strategies where the solver is asked for and has not been yet, at the recipe's rates. */
enum status tensor_layout_find_strategies(const struct session *session, struct plan *plan);

/* For a forward graph of one rank, of the plan's micro-batch. BAD_INPUT where heads or features have no equal parts, or
 * the recipe's strategies are not this graph's. The caller frees `out` with shard_choices_free, also after a failure.
 */
enum status tensor_layout_choose(const struct plan *plan, const struct graph *graph, struct shard_choices *out);

/* The question that the solver answers, and its answer, or the recipe's strategies: also for what tells of it
 * (session/layout_report.h). Where
 * strategies and recomputation together fit the device (plan/layout/joint_solution.h), the fastest of these; else the
 * fastest of all, since there are other tiers too. */
struct shard_question tensor_layout_question(const struct plan *plan, const struct graph *graph);
enum status tensor_layout_solve(const struct plan *plan, const struct shard_program *program,
                                struct intra_op_solution *out);

#endif
