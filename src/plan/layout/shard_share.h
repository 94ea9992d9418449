/* What the axes of a mesh take of a node, and how the node's operands lie while it works: for a rank's graph
 * (plan/layout/shard_graph.h). */
#ifndef BALLAST_PLAN_LAYOUT_SHARD_SHARE_H
#define BALLAST_PLAN_LAYOUT_SHARD_SHARE_H

#include "ir/op.h"
#include "plan/layout/layout.h"
#include "plan/layout/shard_choice.h"

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

#endif
