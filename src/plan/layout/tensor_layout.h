/* The part of each tensor that a rank of a tensor-parallel group holds: Megatron-LM's assignment, or the cheapest one
 * that the solver finds at the rates that the recipe holds (recipe.layout). The solver runs once: then the recipe names
 * its strategies, and all ranks, all programs of a plan and a resumed run use these. */
#pragma once

#include "plan/layout/shard_choice.h"
#include "plan/layout/shard_program.h"
#include "plan/plan.h"

/* ---- a solution as text ----
 *
 * A solution as lines of a recipe (plan/recipe.h): "NODE STRATEGY\n" for each node of the graph that has its own
 * choice. Tied nodes have the same strategy.
 *
 * A strategy is the letters of the indices that the mesh's axes took, '.' for none, with '/' between axes; '+' after
 * one: positions are cut outside; '*': whole operands are passed round a ring. The number of the operator's way follows
 * unless it is the first. "h", "n+", ".", "q1", "s/n". Ranks that form a mesh of several axes have a line of their own
 * before: "mesh 2/4\n", devices along each. */

/* The caller frees `out` with mem_free. */
enum status strategy_lines_print(const struct shard_program *program, const int *choice, char **out);
/* The axes of the mesh that such lines are of, with their sizes; one of all `ranks` where lines do not say (NULL: there
 * are none), or their axes are not so many ranks. */
void strategy_lines_mesh(const char *lines, int64_t ranks, struct device_mesh *mesh);
/* The choices, `choice` [nodes of the program], by such lines. BAD_INPUT where the lines lack a node or name a strategy
 * that it has not, or strategies do not go together. */
enum status strategy_lines_find(const struct shard_program *program, const char *lines, int *choice);

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
