/* What a layer, the embedding and the head take on one rank, for one micro-batch: kernels by machine/kernel_cost.h,
 * tensor parallelism's collectives between them. */
#pragma once

#include "machine/collective_cost.h"
#include "machine/kernel_cost.h"
#include "plan/layout/pipeline.h"
#include "search/scale/training.h"

struct pass_cost {
    double forward_s;
    double again_s;    /* what is computed again before the backward, by the layout's recomputation */
    double backward_s; /* without that */
};
static inline double pass_s(const struct pass_cost *cost) { return cost->forward_s + cost->again_s + cost->backward_s; }

struct layer_costs {
    struct pass_cost layer;
    struct pass_cost embedding, head; /* of the first and of the last stage; the head with the loss */
    double parameter_s;               /* of the optimizer, for a parameter that the rank updates */
    double gradient_zero_s;           /* of a step, for each gradient that a rank adds up */
};

struct job_costs {
    const struct training *job;
    struct gpu gpu;
    struct fabric fabric;
    struct layer_costs layers;
    struct pipeline_shape pipeline;
};
/* Finds costs->layers, from all else. */
void layer_costs_find(struct job_costs *costs);

/* Collectives of the partition of states: which ranks take part (AMSP, arXiv 2311.00257). All bytes are of one
 * rank's share under tensor parallelism. */

struct collective_load {
    double seconds;
    double link_part; /* of the rate of a node's links, what it keeps busy: 1 in a node, less across slower adapters */
};

/* Of `parameters` weights for a forward: gathered by those who hold shards. 0 where they are not cut. */
struct collective_load partition_gather(const struct job_costs *costs, double parameters);
/* For a backward: the same, but from the second copy where there is one. */
struct collective_load partition_gather_again(const struct job_costs *costs, double parameters);
/* Their gradients, scattered within that group after a backward. 0 where parameters are not cut. */
struct collective_load partition_scatter(const struct job_costs *costs, double parameters);
/* Their gradients' sum over those who hold the same shard, once a step. 0 where nobody does. `experts`: of expert
 * weights, which only one rank of an expert group has. */
struct collective_load partition_reduce(const struct job_costs *costs, double parameters, bool experts);
/* New parameters after the update, to those who did not compute them. 0 where each updates what it holds. */
struct collective_load partition_update(const struct job_costs *costs, double parameters, bool experts);

/* Seconds of a collective that kernels wait for, apart from the collective itself: Ballast issues it, and wakes both
 * streams up. 0 for other systems, whose kernels have it in calibration.kernel_s. */
double collective_start_s(const struct training *job);

/* Ranks of a tensor group: within a node as far as it goes. */
struct rank_group tensor_group(const struct training *job);
