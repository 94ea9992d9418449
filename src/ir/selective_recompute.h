/* What light operators make (op.light: norms and activation functions) is recomputed in backward instead of being kept
 * from forward until then:
 *
 *     n = norm(x);  y = n W                  x is kept for the norm's gradient in any case
 *     backward: n' = norm(x);  dW = n'^T dy
 *
 * In backward a second node of the same operator stands right before the first node that reads its output; what reads
 * that output there reads the second node's. The bits are the same: the same kernel on the same operands.
 *
 * The rule: of a light forward node, output 0 is recomputed where forward reads it too and, of backward, only the
 * node's own block does, and where each of the node's activations is read by backward at that place or behind it, so
 * that nothing is kept for longer. */
#pragma once

#include "ir/graph.h"

/* Rewrites a complete graph with gradients, cut into tiles or not; update and finish stay. */
enum status graph_selective_recompute(struct graph *graph);

/* What is recomputed of a graph that is not rewritten yet, by counts. */
struct selective_recompute_counts {
    double bytes;       /* that the second nodes read and write */
    double saved_bytes; /* no longer kept until backward, of one micro-batch */
    double flops;       /* of the graph's forward and backward, before */
};
enum status graph_selective_recompute_count(struct graph *graph, struct selective_recompute_counts *out);
