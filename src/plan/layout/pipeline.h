/* Pipeline parallelism: the order of a stage's waves, where a model is cut into stages, and each stage's part of the
 * model.
 *
 * Waves are scheduled by 1F1B or its interleaved form (arXiv 2104.04473, figures 3 and 4). */
#pragma once

#include "base/base.h"
#include "ir/graph.h"
#include "plan/plan.h"

struct pipeline_step {
    int32_t chunk; /* of the stage's virtual stages */
    int32_t wave;  /* from 0 */
    bool backward;
};

struct pipeline_shape {
    int32_t stages, chunks, waves; /* chunks: virtual stages of each stage */
};

/* Interleaving needs groups of as many waves as there are stages: chunks that can be had, 1 or `chunks`. */
int32_t pipeline_chunks(int64_t stages, int64_t chunks, int64_t waves);
/* Steps of a stage: 2 * chunks * waves of them. */
int64_t pipeline_step_count(const struct pipeline_shape *pipeline);
void pipeline_order(const struct pipeline_shape *pipeline, int32_t stage, struct pipeline_step *out);
/* Chunks of waves whose activations a stage holds at most. */
int64_t pipeline_held(const struct pipeline_shape *pipeline, int32_t stage);

/* Costs of a model's blocks, whichever stage has them; used to cut a pipeline. */

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

/* Where a pipeline is cut into stages, and which submesh each gets (Alpa, OSDI'22, section 5).
 *
 * With B waves a step takes sum_i t_i + (B - 1) max_i t_i, t_i the time of one wave in stage i, forward and backward.
 * For each time t that could be the longest, F(s, k, d) is the least sum over s stages for layers k to the last on d
 * devices, if no stage takes longer than t:
 *
 *     F(s, k, d) = min over i >= k and submeshes m of  t(k..i, m) + F(s - 1, i + 1, d - devices of m)
 *
 * A stage that s - 1 others follow holds the activations of up to s waves (1F1B). */

enum { STAGE_LAYERS_MAX = 512, STAGE_DEVICES_MAX = 1 << 14, STAGE_SUBMESHES_MAX = 64 };

/* Layers first to last as one stage on one kind of submesh. */
struct stage_cost {
    double seconds;     /* of one wave; INFINITY: cannot be */
    int64_t held_bytes; /* a device, whatever is in flight */
    int64_t wave_bytes; /* a device, for each wave in flight */
};
struct stage_problem {
    int layers, devices, submesh_count;
    const int *submesh_devices;     /* [submesh_count] */
    int64_t waves;                  /* B, at least 1 */
    const struct stage_cost *costs; /* [layers first][layers last][submesh_count]; first > last is not read */
    int64_t device_bytes;           /* no device of a stage may need more; INT64_MAX: no limit */
};
struct stage {
    int first, last; /* layers */
    int submesh;
};
struct stage_cut {
    int count;
    struct stage *stages; /* in the order of the layers; all devices are used */
    double seconds;       /* of a step */
};

/* The fastest, exactly; of equally fast ones the one whose longest stage is shortest, then whose first stage is the
 * shortest with the first submesh. NO_FIT where no cut uses all devices within their memory; BAD_INPUT for too many
 * layers or devices. Free with stage_cut_free. */
enum status stage_cut_find(const struct stage_problem *problem, struct stage_cut *out);
void stage_cut_free(struct stage_cut *cut);

/* Spans: runs of blocks that the ranks of a pipeline hold.
 *
 * A pipeline of S stages has S spans, or V S spans if it is interleaved; span s belongs to stage s % S. The borders of
 * spans are policy: they change no sum. A parameter, its gradients, states and norms belong to the stage of the block
 * that first uses it. */

struct stage_spans {
    int stages;
    int32_t count;  /* a multiple of stages; 1 of one stage */
    int32_t *first; /* by span: its first block; one more at the end */
};

/* The spans of policy.spans ("stage_starts" in files); where that says none, one a stage, cut by FLOPs.
 * BAD_INPUT where the model has too few blocks, or spans are no legal ones of it. The caller frees, also after a
 * failure. */
enum status stage_spans_create(const struct graph *graph, const char *text, int stages, struct stage_spans *out);
void stage_spans_free(struct stage_spans *spans);
/* Writes as text the spans that take the least time for this many waves, cut by Alpa's program
 * (plan/layout/pipeline.h). If there are as many spans as `stages`, each fits `device_bytes` with its waves in flight.
 * If no such cut exists, the limit is ignored. BAD_INPUT for too few blocks. */
struct span_request {
    int32_t stages, count; /* count: spans, a multiple of the stages */
    int64_t waves, device_bytes;
};
enum status stage_spans_choose(const struct block_costs *costs, const struct span_request *request,
                               char text[POLICY_SPANS_BYTES]);

int32_t stage_spans_of_block(const struct stage_spans *spans, int block);
static inline int stage_of_block(const struct stage_spans *spans, int block) {
    return (int)(stage_spans_of_block(spans, block) % spans->stages);
}

enum { STAGE_SPANS_ALL = -1 };
/* The stage that executes a node, or STAGE_SPANS_ALL. */
int stage_of_node(const struct stage_spans *spans, const struct node *node);
/* The stage that has a tensor: of a gradient the one that adds to it, of a cache that of its block, else that of its
 * parameter. Parameters, gradients, states, sums of squares and caches. */
int stage_of_tensor(const struct stage_spans *spans, const struct tensor *tensor);
