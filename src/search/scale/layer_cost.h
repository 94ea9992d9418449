/* Costs of a layer, the embedding and the head on one rank, for one micro-batch: kernels by machine/kernel_cost.h, with
 * the collectives of tensor parallelism between them. */
#pragma once

#include "machine/collective_cost.h"
#include "machine/kernel_cost.h"
#include "plan/layout/pipeline.h"
#include "search/scale/training.h"

struct pass_cost {
    double forward_s;
    double again_s;    /* recomputation before the backward, by the layout */
    double backward_s; /* without recomputation */
};
static inline double pass_s(const struct pass_cost *cost) { return cost->forward_s + cost->again_s + cost->backward_s; }

struct layer_costs {
    struct pass_cost layer;
    struct pass_cost embedding, head; /* of the first and of the last stage; the head includes the loss */
    double parameter_s;               /* of the optimizer, per parameter that the rank updates */
    double gradient_zero_s;           /* of a step, per gradient that a rank accumulates */
};

struct job_costs {
    const struct training *job;
    struct gpu gpu;
    struct fabric fabric;
    struct layer_costs layers;
    struct pipeline_shape pipeline;
};
/* Computes costs->layers from the rest of `costs`. */
void layer_costs_find(struct job_costs *costs);

/* One rank's share of a layer for a micro-batch. */
struct layer_share {
    const struct training *job;
    const struct gpu *gpu;
    const struct fabric *fabric;
    int64_t tokens;   /* of the rank's part of the sequences */
    int64_t across;   /* tensor ranks */
    int64_t keys_out; /* width of queries, keys and values together */
    int64_t ffn_in;   /* width of the MLP's first GEMM */
};
/* The GEMM of a weight, or of `count` weights of equal size; backward those for its input and for itself. */
double weight_s(const struct layer_share *share, int64_t count, int64_t tokens, int64_t out, int64_t in, bool backward);
/* The attention of a micro-batch. */
struct attention_shape share_attention(const struct layer_share *share);

/* Parts of a step that differ between training systems. Seconds are of a layer's pass over a share. */
struct system_ways {
    struct gpu (*gpu)(const struct training *job, const struct calibration *calibration);
    double (*attention_s)(const struct layer_share *share, bool gradient);
    double (*elementwise_s)(const struct layer_share *share, bool backward);
    double (*launches_s)(const struct layer_share *share, bool backward); /* for which the GPU waits; NULL: none */
    /* Collectives of the tensor group: what they add to the pass. */
    double (*tensor_s)(const struct layer_share *share, bool backward);
    /* Sets all but the layer's. */
    void (*find_ends)(const struct layer_share *share, struct layer_costs *out);
    /* Seconds to accumulate the gradients of a layer with this many parameters in memory, beyond what GEMMs write. */
    double (*gradient_s)(const struct job_costs *costs, double parameters);
    /* Layers of the part in this place, of two or more into which the model is cut. */
    int64_t (*part_layers)(const struct job_costs *costs, int64_t parts, int64_t part);
};

/* Collectives of the partition of states: which ranks take part (AMSP, arXiv 2311.00257). All bytes are of one
 * rank's share under tensor parallelism. */

struct collective_load {
    double seconds;
    double link_part; /* fraction of a node's link rate that it uses: 1 in a node, less across slower adapters */
};

/* All-gather of `parameters` weights for a forward among the ranks that hold shards. 0 if they are not cut. */
struct collective_load partition_gather(const struct job_costs *costs, double parameters);
/* For a backward: the same, but from the second copy if there is one. */
struct collective_load partition_gather_again(const struct job_costs *costs, double parameters);
/* Reduce-scatter of their gradients within that group after a backward. 0 if parameters are not cut. */
struct collective_load partition_scatter(const struct job_costs *costs, double parameters);
/* Sum of their gradients over the ranks that hold the same shard, once a step. 0 if there is one such rank. `experts`:
 * for expert weights, which only one rank of an expert group has. */
struct collective_load partition_reduce(const struct job_costs *costs, double parameters, bool experts);
/* New parameters after the update, to ranks that did not compute them. 0 if each rank updates its own. */
struct collective_load partition_update(const struct job_costs *costs, double parameters, bool experts);

/* Seconds that kernels wait for a collective, besides the collective itself: Ballast issues it, and wakes both streams.
 * 0 for other systems, whose kernels include it in calibration.kernel_s. */
double collective_start_s(const struct training *job);

/* Ranks of a tensor group, within a node as far as possible. */
struct rank_group tensor_group(const struct training *job);
