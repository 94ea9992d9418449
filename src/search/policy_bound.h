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

struct policy_bound {
    double step_s;   /* no program takes less */
    double serial_s; /* all streams one after the other */
    int64_t bytes[TIER_COUNT];
    int64_t likely_bytes; /* of the device: with buffers that are in use all the time, as they mostly are */
};

struct policy_bound policy_bound_of(const struct policy_bound_input *input, const struct policy *policy);
/* Its bytes of the device alone. */
int64_t policy_bound_device_bytes(const struct policy_bound_input *input, const struct policy *policy);
static inline size_t policy_bound_scratch(const struct way *way) { return way->groups.count + 2; }
/* Inputs, which are on the device all the time. */
int64_t policy_bound_fixed_bytes(const struct graph *graph, int64_t grains);

#endif
