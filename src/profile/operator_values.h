/* Values to measure operators with: finite, small, legal. Zeros, denormals and NaNs have speeds of their own. */
#pragma once

#include "ir/graph.h"
#include "ir/ops/ops.h"

/* Fills all of a tensor of `node` with the operator's examples (op_example). */
void operator_values_fill(const struct node *node, const struct tensor *tensor, void *to);
/* Of a training step, and of decoding in the middle of its cache. */
void operator_values_scalars(const struct node *node, double scalars[SCALAR_COUNT]);
