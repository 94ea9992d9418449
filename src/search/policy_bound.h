/* What no program of a policy can go below: seconds of a step, bytes of each tier. Closed forms over an activation way
 * and model states; tests hold them against compiled and simulated programs of random policies.
 *
 * Seconds: each stream's work one after the other; and of two streams together, what they cannot hide behind each other
 * where they share the machine (sim/costs.h). Bytes: what certainly is there at once, group by group. */
#ifndef BALLAST_SEARCH_POLICY_BOUND_H
#define BALLAST_SEARCH_POLICY_BOUND_H

#include "plan/plan.h"
#include "search/states.h"
#include "search/way.h"

struct policy_bound_input {
    const struct graph *graph;
    const struct costs *costs;
    const struct way *way; /* measured for the policy's lookahead, if it moves activations */
    const struct states *states;
    int64_t grains;      /* of a step */
    int64_t fixed_bytes; /* policy_bound_fixed_bytes */
    int64_t *scratch;    /* policy_bound_scratch(way) entries of the caller's */
};

struct policy_seconds {
    double step_s;   /* no program takes less */
    double serial_s; /* all streams one after the other */
};

struct policy_bound {
    struct policy_seconds seconds;
    int64_t bytes[TIER_COUNT];
    int64_t likely_bytes; /* of the device: with buffers that are in use all the time, as they mostly are */
};

/* `device_bytes`: policy_bound_device_bytes, which is the same whatever the buffers. */
struct policy_bound policy_bound_of(const struct policy_bound_input *input, const struct policy *policy,
                                    int64_t device_bytes);
int64_t policy_bound_device_bytes(const struct policy_bound_input *input, const struct policy *policy);

/* What no policy goes below that has at most `most_persistent` chunks stay, at most the buffers of `policy`, and else
 * is as that one. */
struct policy_seconds policy_bound_least_seconds(const struct policy_bound_input *input, const struct policy *policy,
                                                 int64_t most_persistent);

/* Activations of the first pass and of one of the others (-1: there is none). */
struct pass_activations {
    int64_t first, later;
};
struct pass_activations policy_bound_activations(const struct way *way, int64_t grains, int64_t grains_per_pass);
/* At most policy_bound_device_bytes, without a walk through the pass. */
int64_t policy_bound_quick_device_bytes(const struct policy_bound_input *input, const struct policy *policy,
                                        const struct pass_activations *activations);

static inline size_t policy_bound_scratch(const struct way *way) { return way->groups.count + 2; }
/* Inputs, which are on the device all the time. */
int64_t policy_bound_fixed_bytes(const struct graph *graph, int64_t grains);

#endif
