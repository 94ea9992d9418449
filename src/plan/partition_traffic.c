#include "plan/partition_traffic.h"

#include "plan/shards.h"

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
    move(&mover, 1, ranks, use->elements * SUM_BYTES, use->rounds);
    move(&mover, g, ranks, use->elements * SUM_BYTES, use->rounds);
    move(&mover, 1, g, use->elements / SHARD_BLOCK * NORM_BYTES, 1);
    move(&mover, p, o, use->elements * use->parameter_bytes, 1);
}
