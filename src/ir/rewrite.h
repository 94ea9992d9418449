/* Rewrites of a complete graph that leave the bits as they are and take less memory: tiles of tokens, and selective
 * recomputation. */
#pragma once

#include "ir/graph.h"

/* ---- tiles ----
 *
 * A part of a block that works on each token by itself, and makes wide activations in between (an MLP), works on some
 * of a micro-batch's tokens at a time, so that only these have the wide ones.
 *
 *     gate = x Wg;  up = x Wu;  act = silu(gate) up;  y = x0 + act Wd        x, y [S,T,C]; gate, up, act [S,T,F]
 *
 * becomes, tile by tile, the same on rows of x and y, with gate, up and act of [1,tile,F]. None of these is kept: a
 * tile's backward first recomputes the parts of its forward that it reads. Sums over tokens go on from tile to tile, in
 * the order of tokens; so if a kernel sums OP_ROWS_APART tokens separately, the bits are the same as without tiles.
 *
 * The rule, for any block: of a run of neighbouring forward nodes whose operators work by rows (op.by_rows), what they
 * make and only they and their gradients read is a tile's own. A run without such tensors stays as it is, and so does
 * one with a gradient that does not work by rows. */
/* Rewrites a complete graph, with gradients or without; update and finish stay. Tiles have `rows` tokens, the last one
 * maybe fewer. BAD_INPUT unless `rows` and a micro-batch's tokens are multiples of OP_ROWS_APART. */
enum status graph_tile(struct graph *graph, int64_t rows);
/* Whether tiles would change the graph; it stays as it is. */
bool graph_has_tiles(struct graph *graph);

/* ---- selective recomputation ----
 *
 * Backward recomputes the outputs of light operators (op.light: norms and activation functions), so that they are not
 * kept from forward on:
 *
 *     n = norm(x);  y = n W                  x is kept for the norm's gradient in any case
 *     backward: n' = norm(x);  dW = n'^T dy
 *
 * In backward, a second node of the same operator stands right before the first node that reads its output. All readers
 * in backward read the second node's output. The bits are the same: the same kernel on the same operands.
 *
 * The rule: output 0 of a light forward node is recomputed under two conditions. Forward reads it too, and in backward
 * only the node's own block does. Backward reads each of the node's input activations at that place or behind it, so
 * that nothing is kept for longer. */

/* Rewrites a complete graph with gradients, cut into tiles or not; update and finish stay. */
enum status graph_selective_recompute(struct graph *graph);

/* Number of recomputed tensors of a graph that is not rewritten yet. */
struct selective_recompute_counts {
    double bytes;       /* that the second nodes read and write */
    double saved_bytes; /* no longer kept until backward, of one micro-batch */
    double flops;       /* of the graph's forward and backward, before */
};
enum status graph_selective_recompute_count(struct graph *graph, struct selective_recompute_counts *out);
