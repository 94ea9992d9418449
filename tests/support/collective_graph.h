/* A small training graph with collectives on parts of tensors, in every form of ops.h, and the same graph without
 * parts. */
#pragma once

#include "ir/graph.h"
#include "ir/ops/ops.h"
#include "plan/plan.h"

enum { COLLECTIVE_SEQUENCES = 4, COLLECTIVE_LENGTH = 8, COLLECTIVE_BLOCKS = 6, COLLECTIVE_VOCABULARY = 37 };
#define COLLECTIVE_CLIP 0.05

/* For a rank of a group of 1, 2 or 4. Blocks: an embedding; products cut by columns and by rows; the same between
 * activations cut by positions, with a collective of positions for features; results gathered, and scattered, by
 * columns; a cut by sequences, then cuts along the axes of a mesh; a head. Parameters are cut, whole, or whole with a
 * part of the gradient on each rank. Ends the test when it cannot be built. */
struct graph *collective_graph_build(enum dtype dtype, struct group_part part);

/* A plan of so many micro-batches on the data ranks of the place, each of which has a lane. */
struct plan collective_plan(const struct graph *graph, const struct rank_place *place, int64_t micro_batches);
