/* The features that a policy uses, so that sweeps over random policies can check that they cover all. */
#pragma once

#include "plan/plan.h"

/* Of blocks that run forward again, `nested` is a run of at least so many from one kept input. */
enum { POLICY_NESTED_BLOCKS = 5 };

#define POLICY_FEATURE_LIST(X)                                                                                         \
    X(parameters_on_host)                                                                                              \
    X(parameters_on_disk)                                                                                              \
    X(gradients_on_host)                                                                                               \
    X(gradients_on_disk)                                                                                               \
    X(optimizer_on_host)                                                                                               \
    X(optimizer_on_disk)                                                                                               \
    X(update_on_host)                                                                                                  \
    X(some_chunks_stay)                                                                                                \
    X(activations_to_host)                                                                                             \
    X(activations_to_disk)                                                                                             \
    X(recomputed)                                                                                                      \
    X(nested)                                                                                                          \
    X(lookahead)                                                                                                       \
    X(update_ahead)                                                                                                    \
    X(four_micro_batches)                                                                                              \
    X(middle_wave_of_micro_batches) /* a middle wave over more than one */                                             \
    X(tiles)                                                                                                           \
    X(selective_recompute)

enum policy_feature {
#define POLICY_FEATURE_ENUM(name) POLICY_FEATURE_##name,
    POLICY_FEATURE_LIST(POLICY_FEATURE_ENUM)
#undef POLICY_FEATURE_ENUM
        POLICY_FEATURES
};
extern const char *const policy_feature_names[POLICY_FEATURES];

/* Adds 1 to the counts of what the policy has, for a model of so many blocks and a step of so many micro-batches. */
void policy_count_features(const struct policy *policy, int32_t blocks, int64_t micro_batches,
                           int64_t counts[POLICY_FEATURES]);
