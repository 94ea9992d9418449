/* What the blocks of a model cost whoever has them: for cutting a pipeline. */
#ifndef BALLAST_PLAN_LAYOUT_BLOCK_COSTS_H
#define BALLAST_PLAN_LAYOUT_BLOCK_COSTS_H

#include "ir/graph.h"
#include "plan/plan.h"

/* By block. */
struct block_costs {
    int32_t blocks;
    double *seconds;     /* of a wave, forward and backward, or numbers in their place */
    int64_t *held_bytes; /* of a rank's parameters, gradients and optimizer states */
    int64_t *wave_bytes; /* of a wave's activations that wait for backward */
};
/* Bytes under a policy's partition and micro-batches a wave, all of them kept; FLOPs in place of seconds, and a little
 * for each block so that none of them is free. The caller frees, also after a failure. */
enum status block_costs_create(const struct graph *graph, const struct policy *policy, struct block_costs *out);
void block_costs_free(struct block_costs *costs);

#endif
