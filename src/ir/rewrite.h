/* Rewrites of a complete graph that leave the bits as they are and take less memory: tiles of tokens, and selective
 * recomputation. */
#pragma once

#include "ir/graph.h"

/* ---- tiles ----
 *
 * A part of a block that works on each token by itself, and makes wide activations in between (an MLP), works on
 * some of a micro-batch's tokens at a time, so that only these have the wide ones.
 *
 *     gate = x Wg;  up = x Wu;  act = silu(gate) up;  y = x0 + act Wd        x, y [S,T,C]; gate, up, act [S,T,F]
 *
 * becomes, tile by tile, the same on rows of x and y, with gate, up and act of [1,tile,F]. Nothing of these is kept:
 * before a tile's backward its forward is computed again, but for what backward does not read. Sums over tokens go on
 * from tile to tile, in the order of tokens; so where a kernel adds up OP_ROWS_APART tokens by themselves, the bits are
 * those without tiles.
 *
 * The rule, for any block: of a run of neighbouring forward nodes whose operators work by rows (op.by_rows), what they
 * make and only they and their gradients read is a tile's own. A run without such tensors stays as it is, and so does
 * one with a gradient that does not work by rows. */
/* Rewrites a complete graph, with gradients or without; update and finish stay. Tiles have `rows` tokens, the last one
 * maybe fewer. BAD_INPUT unless `rows` and a micro-batch's tokens are multiples of OP_ROWS_APART. */
enum status graph_tile(struct graph *graph, int64_t rows);
/* Whether tiles would change anything of it; it stays as it is. */
bool graph_has_tiles(struct graph *graph);

/* ---- selective recomputation ----
 *
 * What light operators make (op.light: norms and activation functions) is recomputed in backward instead of being kept
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

/* Rewrites a complete graph with gradients, cut into tiles or not; update and finish stay. */
enum status graph_selective_recompute(struct graph *graph);

/* What is recomputed of a graph that is not rewritten yet, by counts. */
struct selective_recompute_counts {
    double bytes;       /* that the second nodes read and write */
    double saved_bytes; /* no longer kept until backward, of one micro-batch */
    double flops;       /* of the graph's forward and backward, before */
};
enum status graph_selective_recompute_count(struct graph *graph, struct selective_recompute_counts *out);
