/* The bytes that the collectives of a partition move between ranks, in closed form: the communication of AMSP (arXiv
 * 2311.00257, section 3) with M = rounds for gradients and waves for parameters, and with the actual number formats.
 * For each chunk, a step has:
 *     each gather of its parameters   an all-gather among p neighbours (in the paper, two per wave)
 *     each round, whole gradients     an all-reduce of fp32 sums over all ranks
 *                 g gradient shards   a reduce-scatter over all ranks; then ranks with the same g-shard gather it
 *     gradient shards                 an all-gather of the norms' block sums (fp64) among g neighbours
 *     more shards of states than      an all-gather of new parameters among the ranks that hold one p-shard
 *     of parameters
 * The formulas hold if all ranks of a node are below one node of the lanes' tree, as with one rank per lane. A round in
 * which some ranks have nothing to add moves less: partition_traffic_add_sum counts it block by block. */
#pragma once

#include <stdint.h>

#include "collective/lane_tree.h"
#include "plan/ranks.h"

/* One chunk in a step. */
struct partition_use {
    int64_t elements;        /* with what aligns its tensors (plan/chunks.h) */
    int64_t parameter_bytes; /* of one parameter */
    int64_t gathers;         /* of its parameters */
    int64_t rounds;          /* 0: it is not trained */
    int64_t full_rounds;     /* of these, every rank has something to add; the sums of others are not counted */
};

/* Bytes, summed over all ranks: sent along the axis, or in a node read in place. */
struct partition_traffic {
    int64_t bytes[MESH_AXES];
};

/* Adds those of a step. `flat`: policy.flat. */
void partition_traffic_add(const struct partition *partition, const struct mesh *mesh, bool flat,
                           const struct partition_use *use, struct partition_traffic *sum);

/* One reduction over all ranks: a reduce-scatter, or the first half of an all-reduce. Block b, the bytes [b, b + 1) *
 * block_bytes, is summed at rank owner[b]. Hierarchical, each node of `tree` (collective/lane_tree.h), whose leaves are
 * the ranks, adds its two sides: a block moves from the side without its holder to the other, where there is something
 * on it. Flat, and among ranks of a node that read each other in place, it moves from every rank to its holder. */
struct partition_sum {
    const struct mesh *mesh;
    const struct lane_tree *tree;
    const bool *empty; /* by rank; NULL: none */
    const int *owner;  /* by block, of which there is one a rank */
    int64_t bytes, block_bytes;
    bool flat, in_place, round_bf16;
};
void partition_traffic_add_sum(const struct partition_sum *one, struct partition_traffic *sum);
