#include "support/partition_traffic.h"

#include "plan/chunks.h"

enum { SUM_BYTES = 4, NORM_BYTES = 8 };

struct mover {
    const struct mesh *mesh;
    bool flat;
    struct partition_traffic *sum;
};

static int smaller(int a, int b) { return a < b ? a : b; }
static int larger(int a, int b) { return a > b ? a : b; }

/* An all-gather among the ranks that together hold each shard of width `coarse` by shards of width `fine`, or, as the
 * same bytes the other way, a reduce-scatter. Each such group has `nodes` of `per_node` ranks and its shard of `bytes`;
 * there are `coarse` groups in each of ranks / fine runs of neighbours, which together hold all bytes. */
static void move(const struct mover *mover, int coarse, int fine, int64_t bytes, int64_t times) {
    int of_node = mover->mesh->per_node;
    int64_t per_node = coarse < of_node ? smaller(fine, of_node) / coarse : 1;
    int64_t nodes = fine <= of_node ? 1 : fine / larger(coarse, of_node);
    int64_t all = times * bytes * (mesh_ranks(mover->mesh) / fine);
    mover->sum->bytes[MESH_IN_NODE] += all * (per_node - 1) * (mover->flat ? 1 : nodes);
    mover->sum->bytes[MESH_ACROSS] += all * (nodes - 1) * (mover->flat ? per_node : 1);
}

void partition_traffic_add(const struct partition *partition, const struct mesh *mesh, bool flat,
                           const struct partition_use *use, struct partition_traffic *sum) {
    const struct mover mover = {mesh, flat, sum};
    int p = partition_width(partition->parameters), g = partition_width(partition->gradients);
    int o = partition_width(partition->optimizer), ranks = mesh_ranks(mesh);
    move(&mover, 1, p, use->elements * use->parameter_bytes, use->gathers);
    if (use->rounds == 0) return;
    move(&mover, 1, ranks, use->elements * SUM_BYTES, use->full_rounds);
    move(&mover, g, ranks, use->elements * SUM_BYTES, use->rounds);
    move(&mover, 1, g, use->elements / SHARD_BLOCK * NORM_BYTES, 1);
    move(&mover, p, o, use->elements * use->parameter_bytes, 1);
}

/* ---- one sum ---- */

/* A block of it on its way. */
struct block {
    const struct partition_sum *of;
    int64_t bytes;
    struct partition_traffic *sum;
};

static bool adds(const struct block *block, int rank) { return !block->of->empty || !block->of->empty[rank]; }

static bool any_adds(const struct block *block, const struct lane_node *node) {
    for (int rank = node->first; rank < node->first + node->lanes; rank++)
        if (adds(block, rank)) return true;
    return false;
}

/* What is read in place is fp32. */
static void send(const struct block *block, int from, int to, bool read) {
    enum mesh_axis axis = mesh_axis_between(block->of->mesh, from, to);
    block->sum->bytes[axis] += block->of->round_bf16 && !read ? block->bytes / 2 : block->bytes;
}

static void send_from_each(const struct block *block, const struct lane_node *node, int holder) {
    for (int rank = node->first; rank < node->first + node->lanes; rank++) {
        bool near = mesh_axis_between(block->of->mesh, rank, holder) == MESH_IN_NODE;
        if (rank != holder && adds(block, rank)) send(block, rank, holder, near && block->of->in_place);
    }
}

static bool is_below(const struct lane_node *node, int rank) {
    return rank >= node->first && rank < node->first + node->lanes;
}

/* The ranks below a node bring the block to `holder`, one of them. */
static void bring(const struct block *block, int index, int holder) {
    const struct lane_node *node = &block->of->tree->node[index];
    int last = node->first + node->lanes - 1;
    bool together = mesh_axis_between(block->of->mesh, node->first, last) == MESH_IN_NODE;
    if (node->left < 0) return;
    if (block->of->flat || (block->of->in_place && together)) {
        send_from_each(block, node, holder);
        return;
    }
    const struct lane_node *left = &block->of->tree->node[node->left], *right = &block->of->tree->node[node->right];
    bool on_left = is_below(left, holder);
    const struct lane_node *here = on_left ? left : right, *there = on_left ? right : left;
    int across = there->first + (holder - here->first) % there->lanes;
    if (any_adds(block, there)) send(block, across, holder, false);
    bring(block, node->left, on_left ? holder : across);
    bring(block, node->right, on_left ? across : holder);
}

void partition_traffic_add_sum(const struct partition_sum *one, struct partition_traffic *sum) {
    for (int b = 0; b < mesh_ranks(one->mesh); b++) {
        int64_t begin = b * one->block_bytes, end = begin + one->block_bytes;
        if (begin >= one->bytes) return;
        const struct block block = {one, (end < one->bytes ? end : one->bytes) - begin, sum};
        bring(&block, 0, one->owner[b]);
    }
}
