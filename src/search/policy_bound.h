/* Lower bounds of a policy's programs: seconds of a step, bytes of each tier. The bounds are closed forms over schedule
 * costs and model states. Tests compare them with compiled and simulated programs of random policies.
 *
 * Seconds: the longest stream, or two streams together if they slow each other down (search/sim/costs.h). Bytes: the
 * sum of buffers that are certainly live at once, group by group. */
#pragma once

#include "plan/chunks.h"
#include "plan/lane_shares.h"
#include "plan/plan.h"
#include "search/schedule_cost.h"

/* ---- model states (states.c) ---- */

/* Model states chunk by chunk: bytes, seconds of updates, and which blocks use them. */

/* Sums over the chunks from one to the last. Under a partition, parameters and optimizer states are this rank's shards.
 * Gradients are complete, and `shards` is the part of their sums that a rank keeps. `again` counts the parameters that
 * backward reads, complete. */
#define CHUNK_SUM_LIST(X)                                                                                              \
    X(int64_t, parameters)                                                                                             \
    X(int64_t, trained) /* of the parameters */                                                                        \
    X(int64_t, gradients)                                                                                              \
    X(int64_t, summed) /* of the gradients */                                                                          \
    X(int64_t, shards) /* 0 if gradients are not cut */                                                                \
    X(int64_t, optimizer)                                                                                              \
    X(int64_t, again)                                                                                                  \
    X(int32_t, packs)                                                                                                  \
    X(int32_t, again_packs)                                                                                            \
    X(int32_t, trained_packs)                                                                                          \
    X(int32_t, gradient_packs)                                                                                         \
    X(int32_t, summed_packs)                                                                                           \
    X(int32_t, optimizer_packs)
struct chunk_sum {
#define CHUNK_SUM_FIELD(type, name) type name;
    CHUNK_SUM_LIST(CHUNK_SUM_FIELD) /* bytes, and the number of their buffers */
#undef CHUNK_SUM_FIELD
    double update_s[ACTIVITY_COUNT]; /* of kernels on the device, including their issue */
    double host_update_s[ACTIVITY_COUNT];
    double finish_s[ACTIVITY_COUNT]; /* of the sums of squares of gradients, on the device */
};

struct gradient_pack {
    int32_t chunk, block;
    int64_t bytes;
    int64_t summed; /* the part that lanes and ranks add: without accumulators of a tied parameter's other uses */
};

/* A kernel that a step runs once per parameter, and that can process some of its elements. */
struct element_kernel {
    int32_t chunk;
    bool updates; /* otherwise it sums a gradient's squares */
    const struct tensor *parameter;
    struct kernel_cost device, host; /* for all elements, without its issue */
};

struct states {
    struct scratch memory;
    int64_t chunk_bytes;
    struct chunk_list chunks;
    struct chunk_sum *from; /* by chunk, and a final 0; for one rank that holds all states */
    VEC(struct element_kernel) kernels;
    VEC(struct gradient_pack) gradients; /* by chunk */
    /* By phase (forward, backward) * blocks + block: the chunks that its nodes read, ascending; one more at the end. */
    int32_t *users_first, *users;
    int64_t *users_bytes; /* by place in `users`, and one more: parameters from it on */
    int32_t *min_buffers; /* by chunk, and one more: the maximum number of chunks from it on that one block uses; at
                           * least 1 */
    int64_t *largest;     /* by chunk, and one more: parameters of the largest from it on */
    bool *read_again;     /* by chunk: whether backward reads it */
    int32_t blocks;
    double once_s[ACTIVITY_COUNT]; /* kernels that run once a step and belong to no chunk: clipping */
};

/* Creates states with chunks of so many bytes. Chunks span blocks, unless the partition cuts states (chunks_of_policy).
 * The caller frees, also after a failure. */
enum status states_create(const struct graph *graph, const struct costs *costs, const struct policy *policy,
                          struct states *out);
void states_free(struct states *states);

/* The same states with chunks distributed by the partition (chunks_deal), for states_divide and
 * collective_seconds_measure. The rest is shared. The caller frees with states_free_dealt, also after a failure. */
enum status states_deal(const struct states *states, const struct partition *partition, const struct rank_place *place,
                        struct states *out);
void states_free_dealt(struct states *dealt);

/* states->from for this rank under a partition. Like the first rank, it holds a part of every chunk. `issue_s`: of a
 * kernel. The caller frees with mem_free. NULL without memory. */
struct chunk_sum *states_divide(const struct states *states, const struct partition *partition,
                                const struct rank_place *place, double issue_s);

static inline int32_t states_count(const struct states *states) { return (int32_t)states->chunks.chunks.count; }
/* Complete, whatever the partition. */
static inline int64_t states_parameters(const struct states *states, int64_t chunk) {
    return states->from[chunk].parameters - states->from[chunk + 1].parameters;
}

/* The chunk's own values in `from`, without seconds. */
struct chunk_sum chunk_sum_of(const struct chunk_sum *from, int64_t chunk);

/* Effect of lanes, rounds and ranks on a step, for bounds: the rank's micro-batches in shares, each with its own waves,
 * and the sums that follow (plan/lane_shares.h). */

struct step_cut {
    struct lane_shares shares;
    struct rank_place place;
    struct lane_shape lanes;
    bool rounds_sums;   /* recipe.reduce_dtype is bf16 */
    int64_t computed;   /* shares with micro-batches */
    int64_t adds;       /* of each pack of sums, in a step */
    int64_t reductions; /* reductions to which every rank contributes */
    int32_t deepest;    /* the share with micro-batches during which most levels wait, the first on ties; -1: none */
};

/* The cut of the graph's program (program_cut). The caller frees with step_cut_free, also after a failure. */
enum status step_cut_create(const struct graph *graph, const struct recipe *recipe, const struct rank_place *place,
                            struct step_cut *out);
void step_cut_free(struct step_cut *cut);

/* Number of waves in all shares. */
int64_t step_cut_waves(const struct step_cut *cut, int64_t micro_batches_per_wave);

/* Micro-batches of three waves, 0 if there is none: the first of the step, the first of the deepest share, and the
 * largest that continues a share. */
struct cut_waves {
    int64_t first, deepest, later;
};
struct cut_waves step_cut_largest(const struct step_cut *cut, int64_t micro_batches_per_wave);
/* Levels that wait during the deepest share. */
static inline int64_t step_cut_waiting(const struct step_cut *cut) {
    return cut->deepest < 0 ? 0 : cut->shares.list.items[cut->deepest].level;
}

/* A lower bound: seconds of a step's collectives under a partition, executed one after the other. Let p, g and o be the
 * widths of parameters, gradients and optimizer states. For each chunk, a step has:
 * - for each gather of its parameters, an all-gather among p neighbors;
 * - for each round with complete gradients, an all-reduce of fp32 sums over all ranks;
 * - for each round with gradients cut in g, a reduce-scatter over all ranks; then ranks with the same g-shard gather
 *   it;
 * - with cut gradients, an all-gather of the norms' block sums (fp64) among g neighbors;
 * - with states cut finer than parameters, an all-gather of new parameters among the ranks that hold one p-shard. */
struct collective_seconds {
    double reduce_s;         /* of a step: gradient sums, in all rounds to which every rank contributes */
    double once_s;           /* of a step: block sums of norms, and new parameters */
    double gather_s;         /* one gather of each chunk's parameters */
    double gather_again_s;   /* gathers of the chunks that backward reads */
    double largest_gather_s; /* of the slowest chunk */
};

/* All 0 on one rank. `flat`: policy.flat. */
enum status collective_seconds_measure(const struct step_cut *cut, const struct states *states,
                                       const struct partition *partition, bool flat, const struct cluster_rates *rates,
                                       struct collective_seconds *out);

/* ---- bounds ---- */

struct policy_bound_input {
    const struct graph *graph;
    const struct costs *costs;
    const struct schedule_cost *cost; /* for the policy's lookahead, if activations move */
    const struct states *states;      /* with the policy's chunk size and the chunks of its partition */
    const struct chunk_sum *from;     /* states_divide for that partition */
    const struct collective_seconds *collective_seconds;
    const struct step_cut *cut;
    int64_t fixed_bytes; /* policy_bound_fixed_bytes */
    int64_t *scratch;    /* policy_bound_scratch(cost) entries, owned by the caller */
    bool early;          /* executions_update_early for graph, partition and stages */
};

struct policy_seconds {
    double step_s;   /* the bound */
    double serial_s; /* without overlap: all streams one after the other */
};

struct policy_bound {
    struct policy_seconds seconds;
    int64_t bytes[TIER_COUNT];
    int64_t likely_bytes; /* of the device, if all parameter buffers are in use. For a pipeline, all stages together,
                           * each as large as the first, which has the most waves in flight */
};

/* `device_bytes`: policy_bound_device_bytes, which does not depend on the number of buffers. */
struct policy_bound policy_bound_of(const struct policy_bound_input *input, const struct policy *policy,
                                    int64_t device_bytes);
int64_t policy_bound_device_bytes(const struct policy_bound_input *input, const struct policy *policy);

/* A bound for all policies that keep at most `max_persistent` chunks, have at most the buffers of `policy`, and are
 * otherwise like `policy`. */
struct policy_seconds policy_bound_min_seconds(const struct policy_bound_input *input, const struct policy *policy,
                                               int64_t max_persistent);

/* Peak bytes of activations in some waves (step_cut_largest); -1: there is none. */
struct wave_activations {
    int64_t first, deepest, later;
};
struct wave_activations policy_bound_activations(const struct schedule_cost *cost, const struct step_cut *cut,
                                                 int64_t micro_batches_per_wave);
/* Lower bound on the number of a program's collectives. */
int64_t policy_bound_operations(const struct policy_bound_input *input, int64_t micro_batches_per_wave);
/* At most policy_bound_device_bytes, without a walk through the wave. */
int64_t policy_bound_quick_device_bytes(const struct policy_bound_input *input, const struct policy *policy,
                                        const struct wave_activations *activations);

static inline size_t policy_bound_scratch(const struct schedule_cost *cost) { return cost->groups.count + 2; }
/* Bytes of the inputs, which stay on the device. */
int64_t policy_bound_fixed_bytes(const struct graph *graph, int64_t micro_batches);
