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
#pragma once

#include "ir/ops/ops.h"
#include "plan/layout/layout.h"
#include "plan/layout/shard_choice.h"

/* A conversion as nodes of a graph: each step of the way from one layout to another (plan/layout/layout.h) is the
 * collectives of a group (ir/ops/group_collectives.c). Gradients go the other way round. A step is of one axis of the
 * mesh, among the ranks that stand apart along it alone. */

/* The place of a device of the mesh on the axis of a step. */
struct group_part conversion_step_part(const struct device_mesh *mesh, const struct layout_step *step, int64_t device);

/* x as the device at the place `part` has it after the step. Gathered, each rank's gradient of the whole is a part of
 * its sum where `partial`; else it is the same on all. NULL is passed on. */
struct tensor *conversion_add_step(struct graph *graph, const char *name, struct tensor *x, struct group_part part,
                                   const struct layout_step *step, bool partial);

/* The graph of the rank that has the place `position` of choices->parts. `last` is a tensor of the graph, loss or
 * logits, and *out_last the same of the rank's. `trains`: it will be differentiated. The caller frees. BAD_INPUT where
 * choices do not go together: a parameter that two nodes cut otherwise. */
enum status layout_shard_graph(const struct graph *graph, const struct shard_choices *choices, int64_t position,
                               bool trains, const struct tensor *last, struct graph **out, struct tensor **out_last);
