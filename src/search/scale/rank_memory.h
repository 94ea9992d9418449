/* Bytes that a rank needs at most: states by the partition, activations by schedule and recomputation. */
#pragma once

#include "search/scale/stage_program.h"

struct rank_memory {
    double states;      /* parameters, gradients, optimizer */
    double activations; /* kept for the backward, of all micro-batches under way */
    double working;     /* of the layer at work, gathered weights, logits */
    double total;
};
/* Of a rank of the stage. */
struct rank_memory rank_memory_of(const struct job_costs *costs, int32_t stage);
/* Of the fullest stage. */
struct rank_memory rank_memory_max(const struct job_costs *costs);
