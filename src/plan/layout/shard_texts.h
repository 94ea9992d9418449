/* Which part of each node's work ranks have that write texts with weights of which each has a part: that of the graph
 * by which they train, node by node, so that every parameter is cut alike in both. What is cut there by sequences or
 * positions is whole, since of texts a few tokens are computed at a time. */
#ifndef BALLAST_PLAN_LAYOUT_SHARD_TEXTS_H
#define BALLAST_PLAN_LAYOUT_SHARD_TEXTS_H

#include "plan/layout/shard_choice.h"

/* For `texts`, a graph of the same model for decoding, from the choices of its graph for batches. The caller frees
 * `out` (shard_choices_free), also after a failure. */
enum status shard_choices_of_texts(const struct graph *batch, const struct shard_choices *choices,
                                   const struct graph *texts, struct shard_choices *out);

#endif
