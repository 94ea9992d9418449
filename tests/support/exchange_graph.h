/* A small training graph that exchanges parts of tensors in every way that ops.h has, and the same graph whole. */
#ifndef BALLAST_TESTS_EXCHANGE_GRAPH_H
#define BALLAST_TESTS_EXCHANGE_GRAPH_H

#include "graph/graph.h"
#include "ops/ops.h"
#include "plan/plan.h"

enum { EXCHANGE_SEQUENCES = 4, EXCHANGE_LENGTH = 8, EXCHANGE_BLOCKS = 6, EXCHANGE_VOCABULARY = 37 };

/* For a rank of a group of 1, 2 or 4. Blocks: an embedding; products cut by columns and by rows; the same between
 * activations cut by positions, with an exchange of positions for features; results gathered, and scattered, by
 * columns; a cut by sequences; a head. Ends the test when it cannot be built. */
struct graph *exchange_graph_build(enum dtype dtype, struct group_part part);

/* Of a parameter: the dimension that is cut among the ranks, -1 where each has all of it. */
int exchange_graph_dimension(const char *parameter);
/* Whether each rank has a part of the gradient's sum. */
bool exchange_graph_is_partial(const char *parameter);
/* The number of a rank's element among the whole parameter's. */
int64_t exchange_graph_element(const struct tensor *parameter, struct group_part part, int64_t element);

/* A plan of so many grains on the data ranks of the place, each of which has a lane. */
struct plan exchange_plan(const struct graph *graph, const struct rank_place *place, int64_t grains);

#endif
