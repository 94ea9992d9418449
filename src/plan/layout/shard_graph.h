/* A rank's own graph: the forward graph of one rank, rewritten so that each rank of a group does its part of the work
 * and has its part of the parameters, and collectives (ir/ops/group_collectives.c) for the rest. It is differentiated,
 * planned and compiled as any other.
 *
 * LAYOUTS. Along each axis of the mesh that the ranks of the group form (one axis or two), a tensor is whole, or each
 * rank has its part along a dimension; its gradient always has the tensor's own layout, or is a part of a sum where the
 * nodes that make and read it take it so (op_loops.apart). A node that takes an index of its loops reads inputs that
 * have the index in parts along it, and the others whole; their gradients are then parts of a sum (copy_in, or a gather
 * that is partial). What it makes has the index in parts, or is a part of a sum, which ranks add (reduce_out), before
 * what the operator adds to its sums. A node that takes none is done by all ranks alike.
 *
 * PARAMETERS that are cut have `part` (ir/tensor.h), by which weights are read, written and initialised. Those that
 * are whole, and that a node with a part of the work uses, have partial gradients. */
#ifndef BALLAST_PLAN_LAYOUT_SHARD_GRAPH_H
#define BALLAST_PLAN_LAYOUT_SHARD_GRAPH_H

#include "ir/ops/ops.h"
#include "plan/layout/shard_choice.h"

/* The graph of the rank that has the place `position` of choices->parts. `last` is a tensor of the graph, loss or
 * logits, and *out_last the same of the rank's. `trains`: it will be differentiated. The caller frees. BAD_INPUT where
 * choices do not go together: a parameter that two nodes cut otherwise. */
enum status layout_shard_graph(const struct graph *graph, const struct shard_choices *choices, int64_t position,
                               bool trains, const struct tensor *last, struct graph **out, struct tensor **out_last);

#endif
