#include "support/policy_features.h"

#include "plan/activations.h"
#include "support/unit.h"

const char *const policy_feature_names[POLICY_FEATURES] = {
#define POLICY_FEATURE_NAME(name) #name,
    POLICY_FEATURE_LIST(POLICY_FEATURE_NAME)
#undef POLICY_FEATURE_NAME
};

/* The most neighbours that run forward one after the other once backward has begun. */
static int32_t longest_again(const struct activation_steps *steps) {
    int32_t longest = 0, length = 0;
    bool turned = false;
    for (size_t i = 0; i < steps->list.count; i++) {
        const struct activation_step *step = &steps->list.items[i], *before = step - 1;
        turned |= step->action == ACTIVATION_BACKWARD;
        if (!turned || step->action != ACTIVATION_FORWARD) continue;
        bool follows = before->action == ACTIVATION_FORWARD && step->block == before->block + 1;
        length = follows ? length + 1 : 1;
        if (length > longest) longest = length;
    }
    return longest;
}

static bool moves(const struct activation_steps *steps, enum tier tier) {
    for (size_t i = 0; i < steps->list.count; i++)
        if (steps->list.items[i].action == ACTIVATION_MOVE && steps->list.items[i].tier == tier) return true;
    return false;
}

void policy_count_features(const struct policy *policy, int32_t blocks, int64_t micro_batches,
                           int64_t counts[POLICY_FEATURES]) {
    struct activation_steps steps;
    assert_int_equal(activations_parse(policy->schedule, blocks, &steps), STATUS_OK);
    const bool all_move = policy->persistent_chunks == 0;
    const int64_t slots = policy->micro_batches_per_wave, waves = (micro_batches + slots - 1) / slots;
    const bool has[POLICY_FEATURES] = {
        [POLICY_FEATURE_parameters_on_host] = all_move && policy->parameters == TIER_HOST,
        [POLICY_FEATURE_parameters_on_disk] = all_move && policy->parameters == TIER_DISK,
        [POLICY_FEATURE_gradients_on_host] = all_move && policy->gradients == TIER_HOST,
        [POLICY_FEATURE_gradients_on_disk] = all_move && policy->gradients == TIER_DISK,
        [POLICY_FEATURE_optimizer_on_host] = all_move && policy->optimizer == TIER_HOST,
        [POLICY_FEATURE_optimizer_on_disk] = all_move && policy->optimizer == TIER_DISK,
        [POLICY_FEATURE_update_on_host] = all_move && policy->update == TIER_HOST,
        [POLICY_FEATURE_some_chunks_stay] = !all_move && policy->parameters != TIER_DEVICE,
        [POLICY_FEATURE_activations_to_host] = moves(&steps, TIER_HOST),
        [POLICY_FEATURE_activations_to_disk] = moves(&steps, TIER_DISK),
        [POLICY_FEATURE_recomputed] = longest_again(&steps) > 0,
        [POLICY_FEATURE_nested] = longest_again(&steps) >= POLICY_NESTED_BLOCKS,
        [POLICY_FEATURE_lookahead] = policy->lookahead > 0,
        [POLICY_FEATURE_update_ahead] = all_move && policy->optimizer != TIER_DEVICE && policy->update_ahead > 0,
        [POLICY_FEATURE_four_micro_batches] = slots >= 4,
        [POLICY_FEATURE_middle_wave_of_micro_batches] = slots > 1 && waves > 2,
        [POLICY_FEATURE_tiles] = policy->tile_tokens > 0,
        [POLICY_FEATURE_selective_recompute] = policy->selective_recompute,
    };
    for (int f = 0; f < POLICY_FEATURES; f++)
        counts[f] += has[f];
    activation_steps_free(&steps);
}
