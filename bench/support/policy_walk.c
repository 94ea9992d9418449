#include "support/policy_walk.h"

#include <stdio.h>

#include "base/random.h"
#include "search/search.h"
#include "search/space.h"

enum { DRAW_LOOKAHEADS = 4, SPREAD = 4 /* of a number of chunks or buffers */ };

struct wanderer {
    const struct search_input *input;
    struct space space; /* for its schedules */
    uint64_t seed, draws;
    int32_t blocks;
};

static int64_t draw(struct wanderer *walk, int64_t count) {
    return (int64_t)(random_u64(walk->seed, RANDOM_TEST, 17, walk->draws++) % (uint64_t)count);
}

static int64_t clamp_min(int64_t value, int64_t min) { return value < min ? min : value; }

static int64_t near(struct wanderer *walk, int64_t value) {
    return clamp_min(value + draw(walk, 2 * SPREAD + 1) - SPREAD, 0);
}

static enum tier draw_tier(struct wanderer *walk) {
    enum tier tier;
    do
        tier = (enum tier)draw(walk, TIER_COUNT);
    while (tier != TIER_DEVICE && walk->input->capacity_bytes[tier] == 0);
    return tier;
}

static enum status append(struct activation_steps *steps, enum activation_action action, int32_t block,
                          enum tier tier) {
    return vec_push(&steps->list, (struct activation_step){action, block, tier});
}

/* Of each layer by itself whether it is kept, computed again or moved. */
static enum status draw_steps(struct wanderer *walk, struct activation_steps *steps) {
    int32_t last = walk->blocks - 1, first_kept = 1 + (int32_t)draw(walk, last), period = 1 + (int32_t)draw(walk, 4);
    enum tier tier = draw_tier(walk);
    bool recomputes = tier == TIER_DEVICE, inputs = draw(walk, 2);
    for (int32_t i = 0; i <= last; i++)
        TRY(append(steps, ACTIVATION_FORWARD, i, TIER_DEVICE));
    for (int32_t i = 0; i < first_kept && !recomputes; i++)
        if (i % period == 0) TRY(append(steps, ACTIVATION_MOVE, i, tier));
    for (int32_t i = last; i >= 0; i--) {
        bool again = i > 0 && i < first_kept && (recomputes ? i % period == 0 : inputs && i % period != 0);
        if (again) TRY(append(steps, ACTIVATION_FORWARD, i, TIER_DEVICE));
        TRY(append(steps, ACTIVATION_BACKWARD, i, TIER_DEVICE));
    }
    return STATUS_OK;
}

static enum status draw_schedule(struct wanderer *walk, struct policy *policy) {
    struct activation_steps steps = {0};
    if (draw(walk, 2) && walk->space.schedules.list.count > 0) {
        int64_t at = draw(walk, (int64_t)walk->space.schedules.list.count);
        snprintf(policy->schedule, sizeof policy->schedule, "%s", walk->space.schedules.list.items[at].text);
        return STATUS_OK;
    }
    enum status status = draw_steps(walk, &steps);
    if (status == STATUS_OK) status = activations_print(&steps, policy->schedule, sizeof policy->schedule);
    activation_steps_free(&steps);
    return status;
}

/* The same bytes in more and smaller chunks, or in fewer. */
static void resize_chunks(struct wanderer *walk, struct policy *policy) {
    bool larger = draw(walk, 2);
    policy->chunk_bytes = larger ? policy->chunk_bytes * 2 : clamp_min(policy->chunk_bytes / 2, 1);
    policy->persistent_chunks = larger ? policy->persistent_chunks / 2 : policy->persistent_chunks * 2;
    policy->buffers = larger ? clamp_min(policy->buffers / 2, 1) : policy->buffers * 2;
}

static bool moves_states(const struct policy *policy) {
    return policy->parameters != TIER_DEVICE || policy->gradients != TIER_DEVICE || policy->optimizer != TIER_DEVICE;
}

/* Chunks of a policy whose states begin to move. */
static void give_chunks(struct wanderer *walk, struct policy *policy) {
    const struct states *states = &walk->space.packings[0].states[0];
    if (!moves_states(policy) || policy->chunk_bytes > 0 || walk->space.packings[0].count == 0) return;
    policy->chunk_bytes = states->chunk_bytes;
    policy->persistent_chunks = draw(walk, states_count(states));
    policy->buffers = states->min_buffers[policy->persistent_chunks];
}

static enum status change(struct wanderer *walk, struct policy *policy) {
    switch (draw(walk, 10)) {
    case 0: policy->micro_batches_per_wave = 1 + draw(walk, walk->space.micro_batches); break;
    case 1:
    case 2: policy->persistent_chunks = near(walk, policy->persistent_chunks); break;
    case 3: policy->buffers = near(walk, policy->buffers); break;
    case 4: policy->lookahead = draw(walk, DRAW_LOOKAHEADS); break;
    case 5: policy->parameters = draw_tier(walk); break;
    case 6: policy->gradients = draw_tier(walk); break;
    case 7: policy->optimizer = draw_tier(walk); break;
    case 8: resize_chunks(walk, policy); break;
    default: return draw_schedule(walk, policy);
    }
    if (policy->optimizer == TIER_DEVICE) policy->update = TIER_DEVICE;
    give_chunks(walk, policy);
    return STATUS_OK;
}

static enum status try_one(struct wanderer *walk, struct trial *best) {
    struct trial next = {.policy = best->policy};
    for (int64_t i = draw(walk, 3); i >= 0; i--)
        TRY(change(walk, &next.policy));
    enum status status = policy_check(&next.policy, walk->space.micro_batches);
    if (status == STATUS_OK) status = policy_measure(walk->input, 0, &next, NULL);
    if (status != STATUS_OK) {
        status_clear();
        return STATUS_OK;
    }
    if (next.step_s > 0 && next.step_s < best->step_s) *best = next;
    return STATUS_OK;
}

enum status policy_walk(const struct search_input *input, int steps, uint64_t seed, struct trial *best) {
    struct wanderer walk = {.input = input, .seed = seed, .blocks = graph_count_blocks(input->graph)};
    enum status status = space_create(input, &walk.space);
    for (int i = 0; i < steps && status == STATUS_OK; i++)
        status = try_one(&walk, best);
    space_free(&walk.space);
    return status;
}
