#include "collective/lane_sum.h"

#include "base/half.h"
#include "base/wide_vectors.h"

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
