/* Chooses how the ranks of a group share each node's work: by the parts of an index of the operator's loops (struct
 * op_loops), or not at all (all ranks do the same). On a mesh of two axes, each axis has an index.
 *
 * This file chooses the assignment of Megatron-LM (Shoeybi et al., arXiv 1909.08053) by walking the
 * graph. A GEMM is cut by its outputs if all of its consumers continue with columns of them, up to a GEMM that sums
 * over them. That GEMM is cut by its summed index. So attention is cut by heads, with the key-value groups that they
 * read. The MLP is cut by its inner features, and each expert by its own: rows of experts are whole on all ranks, and
 * ranks add the sums over a token's experts. If there are fewer key-value heads than ranks, or ranks do not divide
 * them, attention is cut by query heads. GEMMs of keys and values are then cut by features, which are gathered, and
 * each rank takes the heads that its queries read (ir/ops/attention.c). Between such regions activations are whole. The
 * table of tokens and the head are cut by rows of the vocabulary, which need not divide evenly. No model family is
 * special-cased.
 *
 * `sequence` (Korthikanti et al., arXiv 2205.05198): activations between such regions are cut along positions instead,
 * which are gathered before a region. Sums are scattered along positions after it. */
#pragma once

#include "ir/ops/ops.h"
#include "plan/layout/strategy.h"

struct shard_choice {
    int way;
    int index[SHARD_AXES_MAX]; /* that each axis takes, or OP_INDEX_NONE */
    /* The parts' whole operands lie cut by positions outside the node. They are gathered before it, and their gradients
     * are reduced and scattered. A sum over the index is scattered along positions (struct strategy). */
    bool positions[SHARD_AXES_MAX];
};
/* All ranks do the same. */
static inline struct shard_choice shard_choice_none(int way) {
    return (struct shard_choice){way, {OP_INDEX_NONE, OP_INDEX_NONE}, {false, false}};
}

struct shard_choices {
    struct device_mesh mesh;          /* that the ranks of the group form, in their order */
    int64_t parts;                    /* its ranks */
    bool zigzag;                      /* parts of positions are two runs each, which balances attention by them */
    struct shard_choice *nodes;       /* by node id */
    struct tensor_segments *segments; /* by tensor id: segments of its columns, each cut separately */
};

/* For a forward graph of one rank. BAD_INPUT naming the node where heads or features, or with `sequence` positions,
 * have no `parts` equal parts. The caller frees, also after a failure. */
enum status shard_choices_make(const struct graph *graph, int64_t parts, bool sequence, struct shard_choices *out);
bool tensor_segments_equal(const struct tensor_segments *a, const struct tensor_segments *b);
void shard_choices_free(struct shard_choices *choices);

/* The choices of these strategies, [graph's nodes], on a mesh whose axes together have `parts` devices. BAD_INPUT
 * where columns of a tensor are cut whose views do not make up all of it. The caller frees `out`
 * (shard_choices_free), also after a failure. */
enum status shard_choices_of_strategies(const struct graph *graph, const struct device_mesh *mesh,
                                        const struct strategy *const *strategies, struct shard_choices *out);

/* Choices for ranks that generate text with sharded weights. They follow the training graph node by node, so that every
 * parameter is cut alike in both. Operators that training cuts by sequences or positions are whole here, since
 * generation computes a few tokens at a time. */

/* For `texts`, a graph of the same model for decoding, from the choices of its graph for batches. The caller frees
 * `out` (shard_choices_free), also after a failure. */
enum status shard_choices_of_texts(const struct graph *batch, const struct shard_choices *choices,
                                   const struct graph *texts, struct shard_choices *out);

/* The indices that the axes of a mesh take of a node, and the layouts of its operands during its work: for a rank's
 * graph. */

enum { WHOLE = LAYOUT_REPLICATED };

/* How a node reads a tensor: its layout, and the axes (bits) along which what the ranks give back are parts of the sum
 * that is its gradient. */
struct reading {
    struct layout layout;
    unsigned partial;
};
/* The indices that the axes take of a node, and its operands'. */
struct share {
    struct op_loops loops;
    int index[SHARD_AXES_MAX];
    bool positions[SHARD_AXES_MAX]; /* as struct shard_choice */
    unsigned combined;              /* axes whose ranks have communicated to make the node's outputs whole */
};

/* The dimension of an operand that an axis has in parts while the node works, or WHOLE. */
int share_part_of_operand(const struct share *share, int axis, int operand);
/* The axes along which the node's outputs are parts of a sum, as bits. */
unsigned share_summed_axes(const struct share *share);
/* The dimension along which an axis scatters a sum, or WHOLE. */
int share_part_of_sum(const struct share *share, int axis);
/* Whether input k joins the sum after the ranks have made it. */
bool share_is_added_later(const struct share *share, int k);
/* The axes along which an operand's ranks keep what they have apart (struct op_loops). */
unsigned share_apart_axes(const struct share *share, int operand);
/* How the node reads input k: next to the sum where that is added later. A gradient is a part of a sum where the input
 * lacks what an axis took of the work that the ranks do apart. */
struct reading share_reading_of(const struct share *share, int k);
/* Parameters have no positions: of one that is added to a scattered sum each rank has a part of the gradient. */
struct reading share_reading_of_parameter(const struct share *share, int k);
/* The axes that took the index, as bits. */
unsigned share_axes_with(const struct share *share, int index);

/* ---- a rank's own graph (shard_graph.c) ----
 *
 * Rewrites the forward graph for one rank of a group. The rank does its part of the work and has its part of the
 * parameters; collectives (ir/ops/group_collectives.c) do the rest. The graph is differentiated, planned and compiled
 * like any other.
 *
 * LAYOUTS. Along each axis of the mesh that the ranks of the group form (one axis or two), a tensor is whole, or each
 * rank has its part along a dimension. Its gradient has the tensor's own layout, or is a part of a sum if the nodes
 * that make and read it accept that (op_loops.apart). A node that takes an index of its loops reads inputs that have
 * the index in parts along it, and the others whole; their gradients are then parts of a sum (copy_in, or a gather that
 * is partial). Its outputs have the index in parts, or are parts of a sum, which ranks add (reduce_out) before the
 * operator's own addends. All ranks compute a node that takes no index.
 *
 * PARAMETERS that are cut have `part` (ir/tensor.h), by which weights are read, written and initialised. Whole
 * parameters of a node that does a part of the work have partial gradients. */

/* A conversion as nodes of a graph: each step of the way from one layout to another (plan/layout/sharding.h) is the
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
