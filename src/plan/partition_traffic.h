/* What the operations of a partition move between ranks, as closed forms: the communication of AMSP (arXiv 2311.00257,
 * section 3) with M = rounds for gradients and passes for parameters, and with the real number formats. A step has, of
 * each chunk:
 *     each gather of its parameters      an all-gather among p neighbours (the paper's: two a pass)
 *     each round, gradients not cut      an all-reduce of fp32 sums over all ranks
 *                 cut in g               a reduce-scatter over all ranks; then those that hold the same g-shard gather
 * it gradients cut                      an all-gather of the norms' block sums (fp64) among g neighbours optimizer
 * states cut finer than    an all-gather of new parameters among the ranks that hold one p-shard parameters The
 * formulas hold where all ranks of a node have one node of the lanes' tree above them, as with a rank a lane, and every
 * rank has something to add in each round. */
#ifndef BALLAST_PLAN_PARTITION_TRAFFIC_H
#define BALLAST_PLAN_PARTITION_TRAFFIC_H

#include <stdint.h>

#include "plan/partition.h"

/* One chunk in a step. */
struct partition_use {
    int64_t elements;        /* with what aligns its tensors (plan/shards.h) */
    int64_t parameter_bytes; /* of one parameter */
    int64_t gathers;         /* of its parameters */
    int64_t rounds;          /* 0: it is not trained */
};

/* Bytes, summed over all ranks: sent along the axis, or in a node read in place. */
struct partition_traffic {
    int64_t bytes[MESH_AXES];
};

/* Adds those of a step. `flat`: policy.flat. */
void partition_traffic_add(const struct partition *partition, const struct mesh *mesh, bool flat,
                           const struct partition_use *use, struct partition_traffic *sum);

#endif
