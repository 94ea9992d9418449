/* What ranks execute of strategies (plan/layout/strategy.h): the choices of a rank's graph (plan/layout/shard_choice.h)
 * from the strategies that a solver took, and why some cannot be executed. */
#pragma once

#include "plan/layout/shard_choice.h"
#include "plan/layout/strategy.h"

/* Why ranks do not execute a strategy of the node; NULL: they do. */
const char *strategy_why_not(const struct node *node, const struct strategy *strategy, const struct device_mesh *mesh);
/* Removes those that ranks do not execute. The first stays: it takes no index. */
void strategies_keep_executable(const struct node *node, const struct device_mesh *mesh, struct strategies *strategies);

/* How a node's strategy takes a parameter, which all of its uses must do alike: each has its own sum of gradients, but
 * these are added up before ranks add theirs. */
struct parameter_use {
    struct layout layout;
    unsigned partial; /* axes along which each rank has a part of its gradient's sum, as bits */
};
/* The axes along which ranks keep their parts of an operand's sum, or its gradient's, apart (struct op_loops), as bits:
 * who makes an activation and who reads it must have the same. */
unsigned strategy_apart_axes(const struct node *node, const struct strategy *strategy, int operand);
bool parameter_use_equal(const struct parameter_use *a, const struct parameter_use *b);
struct parameter_use strategy_parameter_use(const struct node *node, const struct strategy *strategy, int operand);

/* Whether the strategy takes an operand's columns in segments: they go on as columns of the node's output, of which
 * each view (queries, keys, values) is cut by itself. No conversion makes such parts: what makes the operand has to. */
bool strategy_takes_segments(const struct graph *graph, const struct node *node, const struct strategy *strategy,
                             int operand);

/* The choices of these strategies, [graph's nodes], on a mesh whose axes together have `parts` devices. BAD_INPUT
 * where columns of a tensor are cut whose views do not make up all of it. The caller frees `out`
 * (shard_choices_free), also after a failure. */
enum status shard_choices_of_strategies(const struct graph *graph, const struct device_mesh *mesh,
                                        const struct strategy *const *strategies, struct shard_choices *out);

/* Which part of each node's work ranks have that write texts with weights of which each has a part: that of the graph
 * by which they train, node by node, so that every parameter is cut alike in both. What is cut there by sequences or
 * positions is whole, since of texts a few tokens are computed at a time. */

/* For `texts`, a graph of the same model for decoding, from the choices of its graph for batches. The caller frees
 * `out` (shard_choices_free), also after a failure. */
enum status shard_choices_of_texts(const struct graph *batch, const struct shard_choices *choices,
                                   const struct graph *texts, struct shard_choices *out);
