/* The order of sums over ranks, as data.
 *
 * A lane is a share of a step's micro-batches; its sum is one leaf. Lanes are added by a fixed binary tree: n lanes are
 * cut into halves, the left one of ceil(n/2), and so on; `2x4` is such a tree over 2 nodes whose leaves are such trees
 * over 4 lanes. The tree is the recipe's. Where it is cut is policy: a rank holds one whole subtree, so that the sums
 * within a rank and those across ranks are always the same sums. */
#pragma once

#include "base/base.h"

enum { LANES_MAX = 1 << 16, LANE_SHAPE_BYTES = 24 };

/* Lanes by nodes, as text "8" (one node) or "2x4". All 0: one lane. */
struct lane_shape {
    int nodes, per_node;
};
static inline int lane_shape_lanes(const struct lane_shape *shape) {
    return shape->nodes > 0 ? shape->nodes * shape->per_node : 1;
}

static inline bool lane_shape_equal(const struct lane_shape *a, const struct lane_shape *b) {
    bool one_node = a->nodes <= 1 && b->nodes <= 1;
    return lane_shape_lanes(a) == lane_shape_lanes(b) && (one_node || a->nodes == b->nodes);
}

/* BAD_INPUT for anything but numbers from 1 on, at most LANES_MAX in all. */
enum status lane_shape_parse(const char *text, struct lane_shape *out);
/* Returns `text`. */
const char *lane_shape_print(const struct lane_shape *shape, char text[LANE_SHAPE_BYTES]);

struct lane_node {
    int first, lanes; /* the leaves below: lanes [first, first + lanes) */
    int left, right;  /* children, -1 for a leaf */
    int parent;       /* -1 for the root */
    /* Levels of cuts to which the node belongs, from the root's 0: a lane or a node's root that stands nearer to the
     * root than others of its kind belongs to all levels down to theirs. */
    int top, bottom;
};

struct lane_tree {
    int nodes, lanes_per_node;
    int lanes, levels;      /* levels: cuts that there are */
    int count;              /* 2 lanes - 1 */
    struct lane_node *node; /* the root first, parents before children, left before right */
};

/* Levels below the root of a tree of so many leaves; phases in which a collective of as many ranks is made. */
int lane_levels(int leaves);
/* The caller frees with lane_tree_free. */
enum status lane_tree_of_shape(const struct lane_shape *shape, struct lane_tree *out);
/* Both at least 1, the product at most LANES_MAX. */
enum status lane_tree_create(int nodes, int lanes_per_node, struct lane_tree *out);
enum status lane_tree_copy(const struct lane_tree *from, struct lane_tree *out);
void lane_tree_free(struct lane_tree *tree);

/* Whether so many ranks can hold the tree, one whole subtree each: 1, 2, 4, 8 for `8`; 1, 2, 3 for `3`; 1, 2, 3, 6 for
 * `3x2`. Their subtrees' lanes differ by at most one within a node. */
bool lane_tree_holds(const struct lane_tree *tree, int ranks);
/* subtree[r] is the node whose lanes rank r holds, in the order of lanes. BAD_INPUT, with the numbers of ranks that
 * will do, where so many cannot hold it. */
enum status lane_tree_cut(const struct lane_tree *tree, int ranks, int *subtree);
/* The tree above that cut: its leaves are the ranks. */
enum status lane_tree_top(const struct lane_tree *tree, int ranks, struct lane_tree *out);

/* Adding lanes by their tree, to the bit the same in one rank and across ranks.
 *
 * The value of a leaf is what its lane sums up to; that of any other node is the sum of its children's, each of which
 * is rounded to bf16 first where edges round. A child without lanes that have anything counts as absent: the value is
 * then the other child's (rounded all the same). */

/* to = left + right, or with `round_bf16` bf16(left) + bf16(right). `to` may be one of them. */
void lane_add(float *to, const float *left, const float *right, int64_t count, bool round_bf16);
/* Rounds each value to bf16 in place: an edge to a node whose other child is absent. */
void lane_round(float *values, int64_t count);
/* The same values in 16 bits each, as they travel, and back. */
void lane_pack_bf16(uint16_t *to, const float *from, int64_t count);
void lane_unpack_bf16(float *to, const uint16_t *from, int64_t count);

/* A lane's values: fp32, or already rounded on their edge if `packed` is not NULL. */
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
