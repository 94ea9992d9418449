/* Which part of each node's work a rank has: an index of the operator's loops (struct op_loops) whose parts the ranks
 * of a group have, or none, where all of them do the same. Of ranks that form a mesh of two axes it is an index for
 * each axis.
 *
 * What this file chooses is the assignment of Megatron-LM (Shoeybi et al., arXiv 1909.08053), found by walking the
 * graph: a GEMM is cut by its outputs where all that follows goes on with columns of them, up to a GEMM that sums
 * over them; that one is cut by what it sums over. So attention is cut by heads, with the key-value groups that they
 * read, and the MLP by its inner features, of experts each by its own: rows of
 * experts are whole on all ranks, and what is added up is the sum over a token's experts. Where there are fewer
 * key-value heads than ranks, or others than they divide, attention is cut by query heads: GEMMs of keys and values
 * are cut by features, which are gathered, and each rank takes the heads that its queries read (ir/ops/attention.c).
 * Between such regions activations are whole. The table of tokens and the head are cut by rows of the vocabulary, which
 * need not divide. No family is known by name.
 *
 * `sequence` (Korthikanti et al., arXiv 2205.05198): what is whole between such regions is cut along positions instead,
 * which are gathered before a region, and sums are scattered along them after it. */
#pragma once

#include "ir/graph.h"
#include "ir/op.h"
#include "plan/layout/device_mesh.h"
#include "plan/layout/layout.h"

enum { SHARD_AXES_MAX = TENSOR_CUTS_MAX };
struct shard_choice {
    int way;
    int index[SHARD_AXES_MAX]; /* that each axis takes, or OP_INDEX_NONE */
    /* What the parts need whole lies cut by positions outside the node: it is gathered before, and its gradient reduced
     * and scattered. A sum over the index is scattered along positions (struct strategy). */
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
    struct tensor_segments *segments; /* by tensor id: of its columns, each of which is cut by itself */
};

/* For a forward graph of one rank. BAD_INPUT naming the node where heads or features, or with `sequence` positions,
 * have no `parts` equal parts. The caller frees, also after a failure. */
enum status shard_choices_make(const struct graph *graph, int64_t parts, bool sequence, struct shard_choices *out);
void shard_choices_free(struct shard_choices *choices);

/* What the axes of a mesh take of a node, and how the node's operands lie while it works: for a rank's graph
 * (plan/layout/shard_graph.h). */

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
    unsigned combined;              /* axes whose ranks have told each other what makes the node's outputs whole */
};

/* The dimension of an operand that an axis has in parts while the node works, or WHOLE. */
int share_part_of_operand(const struct share *share, int axis, int operand);
/* The axes along which what the node makes are parts of a sum, as bits. */
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
