#include "collective/lane_tree.h"

#include <limits.h>

#include "base/base.h"
#include "base/half.h"

int lane_levels(int leaves) {
    int levels = 0;
    while (1 << levels < leaves)
        levels++;
    return levels;
}

/* The units that are cut into halves: first units of `unit_lanes` (nodes), then the lanes of one unit. */
struct builder {
    struct lane_tree *tree;
    int node_level; /* the level of a node's root that stands deepest */
};

static int add_node(const struct builder *builder, int parent, int first, int units, int unit_lanes, bool in_node) {
    struct lane_tree *tree = builder->tree;
    int self = tree->count++;
    int top = parent < 0 ? 0 : tree->node[parent].bottom + 1, bottom = top;
    if (!in_node && units == 1) { /* the root of a node's lanes */
        in_node = true;
        bottom = builder->node_level;
        units = unit_lanes;
        unit_lanes = 1;
    }
    if (in_node && units == 1) bottom = INT_MAX;
    tree->node[self] = (struct lane_node){first, units * unit_lanes, -1, -1, parent, top, bottom};
    if (units == 1) return self;
    int left_units = units - units / 2;
    int left = add_node(builder, self, first, left_units, unit_lanes, in_node);
    int right = add_node(builder, self, first + left_units * unit_lanes, units / 2, unit_lanes, in_node);
    tree->node[self].left = left;
    tree->node[self].right = right;
    return self;
}

enum status lane_tree_create(int nodes, int lanes_per_node, struct lane_tree *out) {
    BUG_IF(nodes < 1 || lanes_per_node < 1 || nodes > LANES_MAX / lanes_per_node, "a tree of %d x %d lanes", nodes,
           lanes_per_node);
    int lanes = nodes * lanes_per_node, node_level = lane_levels(nodes);
    struct lane_tree tree = {nodes, lanes_per_node, lanes, node_level + lane_levels(lanes_per_node) + 1, 0, NULL};
    TRY(mem_items(&tree.node, (size_t)(2 * lanes - 1)));
    add_node(&(struct builder){&tree, node_level}, -1, 0, nodes, lanes_per_node, false);
    *out = tree;
    return STATUS_OK;
}

static bool read_number(const char **text, int *out) {
    if (**text < '1' || **text > '9') return false;
    char *end;
    long value = strtol(*text, &end, 10);
    if (value > LANES_MAX) return false;
    *text = end;
    *out = (int)value;
    return true;
}

enum status lane_shape_parse(const char *text, struct lane_shape *out) {
    const char *rest = text;
    int nodes = 1, lanes;
    bool good = read_number(&rest, &lanes);
    if (good && *rest == 'x') {
        rest++;
        nodes = lanes;
        good = read_number(&rest, &lanes);
    }
    if (!good || *rest || nodes > LANES_MAX / lanes)
        return status_hint(status_set(STATUS_BAD_INPUT, "'%s' is no number and no NODESxNUMBER", text),
                           "8, or 2x4 for 4 on each of 2 nodes; at most %d in all", LANES_MAX);
    *out = (struct lane_shape){nodes, lanes};
    return STATUS_OK;
}

const char *lane_shape_print(const struct lane_shape *shape, char text[LANE_SHAPE_BYTES]) {
    if (shape->nodes > 1)
        snprintf(text, LANE_SHAPE_BYTES, "%dx%d", shape->nodes, shape->per_node);
    else
        snprintf(text, LANE_SHAPE_BYTES, "%d", lane_shape_lanes(shape));
    return text;
}

enum status lane_tree_of_shape(const struct lane_shape *shape, struct lane_tree *out) {
    return shape->nodes > 0 ? lane_tree_create(shape->nodes, shape->per_node, out) : lane_tree_create(1, 1, out);
}

enum status lane_tree_copy(const struct lane_tree *from, struct lane_tree *out) {
    *out = *from;
    TRY(mem_items(&out->node, (size_t)from->count));
    memcpy(out->node, from->node, (size_t)from->count * sizeof *out->node);
    return STATUS_OK;
}

void lane_tree_free(struct lane_tree *tree) {
    mem_free(tree->node);
    *tree = (struct lane_tree){0};
}

static bool in_cut(const struct lane_node *node, int level) { return node->top <= level && level <= node->bottom; }

static int count_cut(const struct lane_tree *tree, int level) {
    int count = 0;
    for (int i = 0; i < tree->count; i++)
        count += in_cut(&tree->node[i], level);
    return count;
}

/* The level at which so many subtrees hold all lanes, or -1. */
static int find_level(const struct lane_tree *tree, int ranks) {
    for (int level = 0; level < tree->levels; level++)
        if (count_cut(tree, level) == ranks) return level;
    return -1;
}

bool lane_tree_holds(const struct lane_tree *tree, int ranks) { return find_level(tree, ranks) >= 0; }

static enum status refuse(const struct lane_tree *tree, int ranks) {
    char counts[200] = "";
    size_t used = 0;
    for (int level = 0; level < tree->levels && used < sizeof counts - 16; level++)
        used +=
            (size_t)snprintf(counts + used, sizeof counts - used, "%s%d", level ? ", " : "", count_cut(tree, level));
    char shape[LANE_SHAPE_BYTES];
    lane_shape_print(&(struct lane_shape){tree->nodes, tree->lanes_per_node}, shape);
    return status_hint(status_set(STATUS_BAD_INPUT, "%d ranks cannot hold lanes %s in whole subtrees", ranks, shape),
                       "ranks: %s", counts);
}

enum status lane_tree_cut(const struct lane_tree *tree, int ranks, int *subtree) {
    int level = find_level(tree, ranks);
    if (level < 0) return refuse(tree, ranks);
    for (int i = 0, rank = 0; i < tree->count; i++) /* left before right, so in the order of lanes */
        if (in_cut(&tree->node[i], level)) subtree[rank++] = i;
    return STATUS_OK;
}

enum status lane_tree_top(const struct lane_tree *tree, int ranks, struct lane_tree *out) {
    int level = find_level(tree, ranks);
    if (level < 0) return refuse(tree, ranks);
    struct lane_tree top = {1, ranks, ranks, level + 1, 0, NULL};
    int *place =
        mem_array((size_t)tree->count, sizeof *place); /* in `top`, of each node that is above the cut or in it */
    top.node = mem_array((size_t)(2 * ranks - 1), sizeof *top.node);
    if (!place || !top.node) {
        mem_free(place);
        mem_free(top.node);
        return STATUS_FAILED;
    }
    int leaves = 0;
    for (int i = 0; i < tree->count; i++) {
        const struct lane_node *from = &tree->node[i];
        if (from->top > level) continue;
        int self = place[i] = top.count++, parent = from->parent < 0 ? -1 : place[from->parent];
        bool leaf = in_cut(from, level);
        top.node[self] = (struct lane_node){leaves, 0, -1, -1, parent, from->top, leaf ? INT_MAX : from->bottom};
        if (parent >= 0) *(top.node[parent].left < 0 ? &top.node[parent].left : &top.node[parent].right) = self;
        for (int above = leaf ? self : -1; above >= 0; above = top.node[above].parent)
            top.node[above].lanes++;
        leaves += leaf;
    }
    mem_free(place);
    *out = top;
    return STATUS_OK;
}

static inline float through_bf16(float value) { return bf16_to_float(bf16_from_float(value)); }

/* Element by element, so `to` may be an operand. */
WIDE_VECTORS static void add_plain(float *to, const float *left, const float *right, int64_t count) {
#pragma omp simd
    for (int64_t i = 0; i < count; i++)
        to[i] = left[i] + right[i];
}

WIDE_VECTORS static void add_rounded(float *to, const float *left, const float *right, int64_t count) {
#pragma omp simd
    for (int64_t i = 0; i < count; i++)
        to[i] = through_bf16(left[i]) + through_bf16(right[i]);
}

void lane_add(float *to, const float *left, const float *right, int64_t count, bool round_bf16) {
    (round_bf16 ? add_rounded : add_plain)(to, left, right, count);
}

WIDE_VECTORS void lane_round(float *values, int64_t count) {
#pragma omp simd
    for (int64_t i = 0; i < count; i++)
        values[i] = through_bf16(values[i]);
}

WIDE_VECTORS void lane_pack_bf16(uint16_t *restrict to, const float *restrict from, int64_t count) {
#pragma omp simd
    for (int64_t i = 0; i < count; i++)
        to[i] = bf16_from_float(from[i]);
}

WIDE_VECTORS void lane_unpack_bf16(float *restrict to, const uint16_t *restrict from, int64_t count) {
#pragma omp simd
    for (int64_t i = 0; i < count; i++)
        to[i] = bf16_to_float(from[i]);
}

void lane_find_absent(const struct lane_tree *tree, const bool *empty, bool *absent) {
    for (int i = tree->count - 1; i >= 0; i--) { /* children before parents */
        const struct lane_node *node = &tree->node[i];
        absent[i] = node->left < 0 ? empty && empty[node->first] : absent[node->left] && absent[node->right];
    }
}

/* Elements that are summed at a time, so that what waits on the way up stays in the first cache. */
enum { SLICE = 512 };

struct sum {
    const struct lane_tree *tree;
    const bool *absent;
    const struct lane_values *lanes;
    bool round_bf16;
};

/* The value of a node over `count` <= SLICE elements from `from` on: in `scratch`, or where its only lane has it. */
static const float *sum_node(const struct sum *sum, int index, int64_t from, int64_t count, float *scratch) {
    const struct lane_node *node = &sum->tree->node[index];
    if (node->left < 0) {
        const struct lane_values *lane = &sum->lanes[node->first];
        if (!lane->packed) return lane->plain + from;
        lane_unpack_bf16(scratch, lane->packed + from, count);
        return scratch;
    }
    if (sum->absent[node->left] || sum->absent[node->right]) {
        int only = sum->absent[node->left] ? node->right : node->left;
        const float *value = sum_node(sum, only, from, count, scratch);
        if (!sum->round_bf16) return value;
        if (value != scratch) memcpy(scratch, value, (size_t)count * sizeof *scratch);
        lane_round(scratch, count);
        return scratch;
    }
    float beside[SLICE];
    const float *left = sum_node(sum, node->left, from, count, scratch);
    const float *right = sum_node(sum, node->right, from, count, beside);
    lane_add(scratch, left, right, count, sum->round_bf16);
    return scratch;
}

void lane_tree_sum(const struct lane_tree *tree, int node, const bool *absent, const struct lane_values *lanes,
                   int64_t count, bool round_bf16, float *to) {
    struct sum sum = {tree, absent, lanes, round_bf16};
    float scratch[SLICE];
    for (int64_t from = 0; from < count; from += SLICE) {
        int64_t slice = count - from < SLICE ? count - from : SLICE;
        const float *value = sum_node(&sum, node, from, slice, scratch);
        memmove(to + from, value, (size_t)slice * sizeof *to);
    }
}
