/* The part of each tensor that a rank of a tensor-parallel group holds: Megatron-LM's assignment, or the cheapest one
 * that the solver finds at the rates that the recipe holds (recipe.layout). The solver runs once: then the recipe names
 * its strategies, and all ranks, all programs of a plan and a resumed run use these. */
#ifndef BALLAST_PLAN_LAYOUT_TENSOR_LAYOUT_H
#define BALLAST_PLAN_LAYOUT_TENSOR_LAYOUT_H

#include "plan/layout/shard_choice.h"
#include "plan/layout/shard_program.h"
#include "plan/plan.h"

/* The question that the solver answers about a forward graph of one rank, of the plan's micro-batch. */
struct shard_question tensor_layout_question(const struct plan *plan, const struct graph *graph);
/* Its answer, or the recipe's strategies where it has some. If strategies and recomputation together fit the device
 * (plan/layout/joint_solution.h), the fastest of these; else the fastest of all, since there are other tiers too. The
 * caller frees `out` with intra_op_solution_free, also after a failure. */
enum status tensor_layout_solve(const struct plan *plan, const struct shard_program *program,
                                struct intra_op_solution *out);

/* Whether the recipe leaves the strategies to the solver, and has none yet. */
bool tensor_layout_is_open(const struct recipe *recipe);
/* Fills recipe.strategies in, for such a forward graph. */
enum status tensor_layout_fill_in(const struct graph *graph, struct plan *plan);

/* For such a forward graph. BAD_INPUT if heads or features have no equal parts, or the recipe's strategies are those of
 * another graph. The caller frees `out` with shard_choices_free, also after a failure. */
enum status tensor_layout_choose(const struct plan *plan, const struct graph *graph, struct shard_choices *out);

#endif
