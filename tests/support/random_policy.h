/* Random legal policies with every tier, chunk size, number of buffers and schedule that the compiler must accept. */
#pragma once

#include "ir/graph.h"
#include "plan/plan.h"

/* What of a random policy is set, so that a cover can name it; the rest is drawn. */
struct policy_traits {
    enum { TIERS_DRAWN, TIERS_DEVICE, TIERS_HOST, TIERS_DISK, TIERS_TRAITS } tiers; /* of all states between uses */
    enum {
        ACTIVATIONS_DRAWN,
        ACTIVATIONS_KEPT,
        ACTIVATIONS_RECOMPUTED,
        ACTIVATIONS_MOVED,
        ACTIVATIONS_TRAITS
    } schedule;
    int64_t tile_tokens; /* never drawn */
};

/* The policy of `seed` for a graph whose step has `micro_batches` micro-batches, with any partition of the mesh's ranks
 * (NULL: none). Ends the test when it runs out of memory. */
struct policy random_policy(const struct graph *graph, int64_t micro_batches, const struct mesh *mesh, uint64_t seed);
/* The same but for what the traits set. */
struct policy random_policy_with(const struct graph *graph, int64_t micro_batches, const struct mesh *mesh,
                                 uint64_t seed, const struct policy_traits *traits);
/* Puts a partition into a policy, and gives parameters places enough for its chunks. */
void policy_cut(const struct graph *graph, const struct partition *partition, struct policy *policy);
/* Its JSON on stderr, to be called before a test fails. */
void print_policy(const struct policy *policy, uint64_t seed);
