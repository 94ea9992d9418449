/* What a layer, the embedding and the head take on one rank, for one micro-batch: kernels by machine/kernel_cost.h,
 * tensor parallelism's collectives between them. */
#pragma once

#include "machine/collective_cost.h"
#include "machine/kernel_cost.h"
#include "search/scale/training.h"

struct pass_cost {
    double forward_s;
    double again_s;    /* what is computed again before the backward, by the layout's recomputation */
    double backward_s; /* without that */
};

struct layer_costs {
    struct pass_cost layer;
    struct pass_cost embedding, head; /* of the first and of the last stage; the head with the loss */
    double parameter_s;               /* of the optimizer, for a parameter that the rank updates */
    double gradient_zero_s;           /* of a step, for each gradient that a rank adds up */
};
void layer_costs_find(const struct training *job, const struct gpu *gpu, const struct fabric *fabric,
                      struct layer_costs *out);

/* Seconds of a collective that kernels wait for, apart from the collective itself: Ballast issues it, and wakes both
 * streams up. 0 for other systems, whose kernels have it in calibration.kernel_s. */
double collective_start_s(const struct training *job);

/* Ranks of a tensor group: within a node as far as it goes. */
struct rank_group tensor_group(const struct training *job);
