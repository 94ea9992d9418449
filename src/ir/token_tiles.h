/* Tiles: a part of a block that works on each token by itself, and makes wide activations in between (an MLP), works on
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
#pragma once

#include "ir/graph.h"

/* Rewrites a complete graph, with gradients or without; update and finish stay. Tiles have `rows` tokens, the last one
 * maybe fewer. BAD_INPUT unless `rows` and a micro-batch's tokens are multiples of OP_ROWS_APART. */
enum status graph_tile(struct graph *graph, int64_t rows);
/* Whether tiles would change anything of it; it stays as it is. */
bool graph_has_tiles(struct graph *graph);
