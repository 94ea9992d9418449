/* Adding lanes by their tree, to the bit the same in one rank and across ranks.
 *
 * The value of a leaf is what its lane sums up to; that of any other node is the sum of its children's, each of which
 * is rounded to bf16 first where edges round. A child without lanes that have anything counts as absent: the value is
 * then the other child's (rounded all the same). */
#pragma once

#include "base/base.h"
#include "collective/lane_tree.h"

/* to = left + right, or with `round_bf16` bf16(left) + bf16(right). `to` may be one of them. */
void lane_add(float *to, const float *left, const float *right, int64_t count, bool round_bf16);
/* Rounds each value to bf16 in place: an edge to a node whose other child is absent. */
void lane_round(float *values, int64_t count);
/* The same values in 16 bits each, as they travel, and back. */
void lane_pack_bf16(uint16_t *to, const float *from, int64_t count);
void lane_unpack_bf16(float *to, const uint16_t *from, int64_t count);

/* What a lane has: fp32, or where `packed` is not NULL values that were rounded on their edge already. */
struct lane_values {
    const float *plain;
    const uint16_t *packed; /* bf16 */
};

/* The value of node `node` of the tree over `count` elements, from lanes[l] of each lane l below it. absent[i] says
 * whether node i of the tree has nothing (lane_find_absent); the node itself has something. `to` may be one of the
 * lanes. */
void lane_tree_sum(const struct lane_tree *tree, int node, const bool *absent, const struct lane_values *lanes,
                   int64_t count, bool round_bf16, float *to);
/* absent: tree->count; empty: by lane, or NULL for none. */
void lane_find_absent(const struct lane_tree *tree, const bool *empty, bool *absent);
