/* A training job: model, cluster, layout and training system. */
#pragma once

#include "base/base.h"
#include "machine/kernel_cost.h"

struct transformer {
    int64_t hidden, layers, heads, kv_heads, ffn, vocab;
    bool gated;                       /* three matrices in the MLP (SwiGLU), two norms without bias; otherwise two */
    bool tied;                        /* the head shares the embedding's matrix */
    int64_t experts, experts_a_token; /* of each MLP; 0: dense */
    int64_t head_size;                /* 0: hidden / heads */
};
/* Elements of a head; of all of a token's queries. */
int64_t transformer_head_size(const struct transformer *model);
int64_t transformer_query_width(const struct transformer *model);

/* Parameters of one layer; of its experts only (0: dense); of the embedding or the head. */
int64_t transformer_layer_parameters(const struct transformer *model);
int64_t transformer_expert_parameters(const struct transformer *model);
int64_t transformer_table_parameters(const struct transformer *model);
int64_t transformer_parameters(const struct transformer *model);
/* FLOPs of a token's forward and backward: GEMMs, and attention over the full square of positions (as PaLM's MFU counts
 * them, arXiv 2204.02311, appendix B). */
double transformer_token_flops(const struct transformer *model, int64_t sequence);

/* Number of devices over which each state is cut: 1 keeps all of it on each device, data_parallel keeps it once in
 * total. A group fills a node first (AMSP, arXiv 2311.00257). */
struct partition_triple {
    int64_t parameters, gradients, optimizer;
};

enum recomputation {
    RECOMPUTE_NONE,
    RECOMPUTE_NORMS,     /* recompute norms and activation functions (ir/rewrite.h) */
    RECOMPUTE_ATTENTION, /* recompute scores and their softmax (arXiv 2205.05198: selective) */
    RECOMPUTE_HALF,      /* every second layer, or an equal cost */
    RECOMPUTE_FULL,      /* each layer from its input */
    RECOMPUTE_COUNT
};

struct layout {
    int64_t tensor, pipeline, context, data; /* devices along each axis; their product is the number of devices */
    int64_t virtual_stages;                  /* per pipeline stage; 1: not interleaved (arXiv 2104.04473) */
    bool sequence;                           /* sequence parallelism: norms and residuals are cut along the sequence in
                                              * the tensor group, with gathers and scatters in place of all-reduces
                                              * (arXiv 2205.05198) */
    struct partition_triple partition;
    enum recomputation recomputation;
    int64_t micro_batch,
        micro_batches; /* per data-parallel rank: sequences of a micro-batch, and micro-batches of a step */
    int64_t sequence_length;
    int64_t expert; /* neighboring data-parallel ranks that share experts; tokens are sent to the ranks of their experts
                     * (GShard, arXiv 2006.16668); 0 as 1: each rank has all experts */
    int64_t second_parameters; /* ranks that share a second copy of parameters, left by the forward for the backward's
                                * gathers (hpZ of ZeRO++, arXiv 2306.10209); 0: none */
};
/* At least 1. */
static inline int64_t layout_expert_ranks(const struct layout *layout) {
    return layout->expert > 1 ? layout->expert : 1;
}

/* How a training system works. */
enum system_trait {
    OWN_KERNELS = 1 << 0,     /* Ballast's operators: by the cost model of compiled programs (machine/kernel_cost.h) */
    SUMS_BY_PRODUCT = 1 << 1, /* the GEMM of a weight's gradient adds to the sum of the micro-batches, else a kernel */
    SUMS_BY_PRODUCT_OF_STAGES = 1 << 2, /* the same where there is pipeline parallelism */
    WRITES_SCORES = 1 << 3,             /* attention writes its scores to memory */
    FP32_LOSS = 1 << 4,                 /* logits are turned to fp32 in memory */
    OVERLAPS_PARAMETERS = 1 << 5,       /* gathers run ahead, overlapped with forward and backward */
    OVERLAPS_GRADIENTS = 1 << 6,        /* gradients are reduced during the last backward */
    OVERLAPS_UPDATE = 1 << 7,           /* new parameters are handed out during the next forward */
    BROADCASTS = 1 << 10,               /* new parameters go out by a broadcast from each owner, not an all-gather */
    CUTS_SENDS = 1 << 11,               /* stages send each other's activations cut among the tensor ranks */
    WAYS_TRAIT_MIN = 1 << 13,           /* traits from here on are those that only the system's ways know */
};

struct system_ways; /* search/scale/layer_cost.h */

/* Constants of its code at the time, none of them fitted. */
struct training_system {
    const char *name;
    const struct system_ways *ways;
    int64_t gradient_bytes;  /* of an element while gradients are reduced */
    int64_t state_bytes;     /* of a parameter in all, where nothing is cut */
    unsigned traits;         /* enum system_trait, and those of its ways */
    int64_t pass_bytes;      /* of a parameter that a rank has, besides those: gradients of a pass, where their sum is
                                apart from them */
    int64_t update_bytes;    /* of a parameter that a rank updates, besides those, where parameters are not cut */
    int64_t buffer_bytes;    /* of buckets that are there all the time */
    int64_t gathers;         /* collectives in which a layer's parameters are gathered: one, or those of each tensor */
    int64_t gather_calls;    /* of PyTorch for each rank's piece of what is gathered, next to the collective; 0: none */
    int64_t scatter_calls;   /* the same of gradients that are scattered */
    int64_t kept_parameters; /* layers of more are gathered again between what is computed again and its backward;
                                0: none is */
};

static inline bool system_has(const struct training_system *system, unsigned trait) { return system->traits & trait; }

struct training {
    struct transformer model;
    struct cluster cluster; /* with limits and network */
    struct layout layout;
    struct training_system system;
};

/* Whether GEMMs add weights' gradients to their sums. */
bool training_sums_by_product(const struct training *job);
/* BAD_INPUT "layout: FIELD: ..." if sizes do not divide or groups are larger than the size that they cut. */
enum status training_check(const struct training *job);

/* Ballast itself, for which `ballast plan` plans. */
extern const struct training_system training_system_ballast;
