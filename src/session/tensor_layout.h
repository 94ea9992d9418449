/* Which part of each tensor a rank has under a plan whose ranks share tensors: Megatron-LM's assignment, or what the
 * solver finds cheapest at the rates that the recipe holds (recipe.layout). All ranks, all programs of a plan and a run
 * that goes on choose alike, since costs are whole numbers made of the recipe alone. */
#ifndef BALLAST_SESSION_TENSOR_LAYOUT_H
#define BALLAST_SESSION_TENSOR_LAYOUT_H

#include "layout/joint_solution.h"
#include "layout/shard_choice.h"
#include "layout/shard_program.h"
#include "session/session_plan.h"

/* Fills recipe.layout_rates where the solver is asked for and they are not known: the best rates of the model's
 * kernels, measured on one rank's graph, and those of the links between ranks that share tensors; without such, a tenth
 * of the memory's. */
enum status tensor_layout_find_rates(struct session_plan *plan);

/* For a forward graph of one rank, of the plan's grain. BAD_INPUT where heads or features have no equal parts. The
 * caller frees `out` with shard_choices_free, also after a failure. */
enum status tensor_layout_choose(const struct plan *plan, const struct graph *graph, struct shard_choices *out);

/* The question that the solver answers, and its answer: also for what tells of it (session/layout_report.h). Where
 * strategies and recomputation together fit the device (layout/joint_solution.h), the fastest of these; else the
 * fastest of all, since there are other tiers too. */
struct shard_question tensor_layout_question(const struct plan *plan, const struct graph *graph);
enum status tensor_layout_solve(const struct plan *plan, const struct shard_program *program,
                                struct intra_op_solution *out);

#endif
