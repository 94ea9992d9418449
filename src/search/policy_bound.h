/* Lower bounds of a policy's programs: seconds of a step, bytes of each tier. Closed forms over the costs of a schedule
 * and over model states; tests hold them against compiled and simulated programs of random policies.
 *
 * Seconds: the longest stream, or two streams together where they slow each other down (search/sim/costs.h). Bytes:
 * what is live at once for certain, group by group. */
#pragma once

#include "plan/plan.h"
#include "search/schedule_cost.h"
#include "search/states.h"

struct policy_bound_input {
    const struct graph *graph;
    const struct costs *costs;
    const struct schedule_cost *cost; /* for the policy's lookahead, if activations move */
    const struct states *states;      /* with the chunks of the policy's partition, and of its size */
    const struct chunk_sum *from;     /* states_divide by that partition */
    const struct collective_seconds *collective_seconds;
    const struct step_cut *cut;
    int64_t fixed_bytes; /* policy_bound_fixed_bytes */
    int64_t *scratch;    /* policy_bound_scratch(cost) entries of the caller's */
    bool early;          /* executions_update_early of graph, partition and stages */
};

struct policy_seconds {
    double step_s;   /* the bound */
    double serial_s; /* with nothing hidden: all streams one after the other */
};

struct policy_bound {
    struct policy_seconds seconds;
    int64_t bytes[TIER_COUNT];
    int64_t likely_bytes; /* of the device, if all buffers for parameters are in use; of a pipeline's stages together,
                             if each takes as much as the first, which has most waves in flight */
};

/* `device_bytes`: policy_bound_device_bytes, which does not depend on the number of buffers. */
struct policy_bound policy_bound_of(const struct policy_bound_input *input, const struct policy *policy,
                                    int64_t device_bytes);
int64_t policy_bound_device_bytes(const struct policy_bound_input *input, const struct policy *policy);

/* A bound for all policies that keep at most `max_persistent` chunks and have at most the buffers of `policy`, and are
 * like `policy` otherwise. */
struct policy_seconds policy_bound_min_seconds(const struct policy_bound_input *input, const struct policy *policy,
                                               int64_t max_persistent);

/* Peak bytes of activations in some waves (step_cut_largest); -1: there is none. */
struct wave_activations {
    int64_t first, deepest, later;
};
struct wave_activations policy_bound_activations(const struct schedule_cost *cost, const struct step_cut *cut,
                                                 int64_t micro_batches_per_wave);
/* Of the operations between ranks that a program has, at least. */
int64_t policy_bound_operations(const struct policy_bound_input *input, int64_t micro_batches_per_wave);
/* At most policy_bound_device_bytes, without a walk through the wave. */
int64_t policy_bound_quick_device_bytes(const struct policy_bound_input *input, const struct policy *policy,
                                        const struct wave_activations *activations);

static inline size_t policy_bound_scratch(const struct schedule_cost *cost) { return cost->groups.count + 2; }
/* Bytes of the inputs, which stay on the device. */
int64_t policy_bound_fixed_bytes(const struct graph *graph, int64_t micro_batches);
