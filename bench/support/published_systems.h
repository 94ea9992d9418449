/* Training systems other than Ballast, of which steps are published: how each works, for src/search/scale. */
#pragma once

#include "search/scale/layer_cost.h"
#include "search/scale/training.h"

/* What only their ways (struct system_ways) and readers of published rows know, next to enum system_trait. Attention
 * that writes no scores is FlashAttention 2 and kernels that are as fast, if nothing else is said. */
enum published_trait {
    FLASH1_ATTENTION = WAYS_TRAIT_MIN << 0,         /* FlashAttention 1 and its Triton version */
    CUDNN_ATTENTION = WAYS_TRAIT_MIN << 1,          /* cuDNN's, written anew for each GPU; preferred from Hopper on */
    FUSED_KERNELS = WAYS_TRAIT_MIN << 2,            /* elementwise kernels are joined, by a compiler or by hand */
    REREADS_NORMS = WAYS_TRAIT_MIN << 3,            /* LayerNorm by apex's first kernels, which read their rows again */
    BLOCKS_LAUNCHES = WAYS_TRAIT_MIN << 4,          /* each kernel is launched after the one before has ended
                                                       (CUDA_LAUNCH_BLOCKING) */
    OVERLAPS_TENSOR_FORWARD = WAYS_TRAIT_MIN << 5,  /* collectives of tensor parallelism overlap with parts of their
                                                       GEMMs */
    OVERLAPS_TENSOR_BACKWARD = WAYS_TRAIT_MIN << 6, /* or, in the backward, with the GEMMs of weights' gradients */
    CUTS_SEQUENCE = WAYS_TRAIT_MIN << 7, /* norms and residuals are cut along the sequence where there is tensor
                                            parallelism */
    INTERLEAVES = WAYS_TRAIT_MIN << 8,   /* can give a stage several chunks of the layers */
    FILLS_STAGES = WAYS_TRAIT_MIN << 9,  /* stages have as many layers as the fullest, one after the other, until none
                                            are left */
};

static inline void system_set(struct training_system *system, unsigned trait, bool has) {
    system->traits = has ? system->traits | trait : system->traits & ~trait;
}

/* The system whose name is in the text ("torchtitan FSDP2"); the first of the list that is, Ballast before all. NULL:
 * none is. */
const struct training_system *training_system_find(const char *text);

/* The device of a job with these systems' kernels. */
struct gpu published_gpu(const struct training *job, const struct calibration *calibration);
/* Causal attention by a system of these traits; forward, or the gradient by itself. */
double published_attention_s(const struct gpu *gpu, unsigned traits, const struct attention_shape *shape,
                             bool gradient);
