/* What a program's solution chose, as lines of a recipe (plan/recipe_lines.h): "NODE STRATEGY\n" for each node of the
 * graph that chooses by itself; those that are tied to it have the same.
 *
 * A strategy is the letters of the indices that the mesh's axes took, '.' for none, with '/' between axes; '+' after
 * one: positions are cut outside; '*': what parts read whole is passed round; then the number of the operator's way
 * where it is not the first. "h", "n+", ".", "q1", "s/n". Ranks that form a mesh of several axes have a line of their
 * own before: "mesh 2/4\n", devices along each.
 */
#ifndef BALLAST_PLAN_LAYOUT_STRATEGY_LINES_H
#define BALLAST_PLAN_LAYOUT_STRATEGY_LINES_H

#include "plan/layout/shard_program.h"

/* The caller frees `out` with mem_free. */
enum status strategy_lines_print(const struct shard_program *program, const int *choice, char **out);
/* The axes of the mesh that such lines are of, with their sizes; one of all `ranks` where lines do not say (NULL: there
 * are none), or their axes are not so many ranks. */
void strategy_lines_mesh(const char *lines, int64_t ranks, struct device_mesh *mesh);
/* The choices, `choice` [nodes of the program], by such lines. BAD_INPUT where the lines lack a node or name a strategy
 * that it has not, or strategies do not go together. */
enum status strategy_lines_find(const struct shard_program *program, const char *lines, int *choice);

#endif
