#include "support/random_policy.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/random.h"
#include "plan/activations.h"
#include "plan/chunks.h"
#include "support/block_chunks.h"
#include "support/unit.h"

struct dice {
    uint64_t seed, draws;
};

static int64_t roll(struct dice *dice, int64_t sides) {
    return (int64_t)(random_u64(dice->seed, RANDOM_TEST, 7, dice->draws++) % (uint64_t)sides);
}

static void append(struct activation_steps *steps, enum activation_action action, int32_t block, enum tier tier) {
    assert_int_equal(vec_push(&steps->list, (struct activation_step){action, block, tier}), STATUS_OK);
}

/* Of four blocks, how many move or are computed again; a third of the schedules nest recomputation over several. */
struct odds {
    bool nested;
    int64_t moving, recomputing;
};

static struct odds draw_odds(struct dice *dice, const struct policy_traits *traits) {
    struct odds odds;
    odds.nested = roll(dice, 3) == 0;
    odds.moving = roll(dice, 4);
    odds.recomputing = roll(dice, 4);
    if (traits->schedule == ACTIVATIONS_KEPT) odds.moving = odds.recomputing = 0;
    if (traits->schedule == ACTIVATIONS_RECOMPUTED) odds.moving = 0, odds.recomputing = 3;
    if (traits->schedule == ACTIVATIONS_MOVED) odds.moving = 3, odds.recomputing = 0;
    return odds;
}

static void draw_schedule(struct dice *dice, int32_t blocks, const struct policy_traits *traits,
                          struct policy *policy) {
    struct activation_steps steps = {0};
    const struct odds odds = draw_odds(dice, traits);
    for (int32_t i = 0; i < blocks; i++) {
        append(&steps, ACTIVATION_FORWARD, i, TIER_DEVICE);
        if (roll(dice, 4) < odds.moving) append(&steps, ACTIVATION_MOVE, i, roll(dice, 2) ? TIER_HOST : TIER_DISK);
    }
    for (int32_t i = blocks; i-- > 0;) {
        if (roll(dice, 4) < odds.recomputing) {
            int32_t from = odds.nested ? (int32_t)roll(dice, i + 1) : i;
            for (int32_t k = from; k <= i; k++)
                append(&steps, ACTIVATION_FORWARD, k, TIER_DEVICE);
        }
        append(&steps, ACTIVATION_BACKWARD, i, TIER_DEVICE);
    }
    assert_int_equal(activations_print(&steps, policy->schedule, sizeof policy->schedule), STATUS_OK);
    activation_steps_free(&steps);
}

static int64_t total_bytes(const struct graph *graph) {
    int64_t bytes = 0;
    for (size_t i = 0; i < graph->tensors.count; i++)
        if (graph->tensors.items[i]->kind == TENSOR_PARAMETER) bytes += shape_bytes(&graph->tensors.items[i]->shape);
    return bytes;
}

/* Of an update that is made of products (plan_updates_anywhere). */
static bool updates_whole_matrices(const struct graph *graph) {
    bool any = false;
    for (size_t i = 0; i < graph->tensors.count; i++)
        any |= graph->tensors.items[i]->updated_whole;
    return any;
}

static void set_tiers(const struct policy_traits *traits, struct policy *policy) {
    static const enum tier tiers[TIERS_TRAITS] = {
        [TIERS_DEVICE] = TIER_DEVICE, [TIERS_HOST] = TIER_HOST, [TIERS_DISK] = TIER_DISK};
    if (traits->tiers == TIERS_DRAWN) return;
    policy->parameters = policy->gradients = policy->optimizer = tiers[traits->tiers];
    if (traits->tiers == TIERS_DEVICE) policy->update = TIER_DEVICE;
}

static void draw_partition(struct dice *dice, const struct graph *graph, const struct mesh *mesh,
                           struct policy *policy) {
    struct partition *list;
    int count;
    assert_int_equal(partition_list(mesh, &list, &count), STATUS_OK);
    int64_t buffers = policy->buffers;
    policy_cut(graph, &list[roll(dice, count)], policy);
    mem_free(list);
    if (policy->buffers > buffers) policy->buffers += roll(dice, 3);
    policy->flat = roll(dice, 2);
}

struct policy random_policy(const struct graph *graph, int64_t micro_batches, const struct mesh *mesh, uint64_t seed) {
    return random_policy_with(graph, micro_batches, mesh, seed,
                              &(struct policy_traits){.tiers = TIERS_DRAWN, .schedule = ACTIVATIONS_DRAWN});
}

struct policy random_policy_with(const struct graph *graph, int64_t micro_batches, const struct mesh *mesh,
                                 uint64_t seed, const struct policy_traits *traits) {
    struct dice dice = {.seed = seed};
    struct policy policy = {.micro_batches_per_wave = 1 + roll(&dice, micro_batches < 4 ? micro_batches : 4),
                            .tile_tokens = traits->tile_tokens};
    policy.chunk_bytes = 1 + total_bytes(graph) / (1 + roll(&dice, 12));
    struct chunk_list chunks;
    assert_int_equal(chunks_pack(graph, policy.chunk_bytes, &chunks), STATUS_OK);
    policy.persistent_chunks = roll(&dice, 3) == 0 ? roll(&dice, (int64_t)chunks.chunks.count + 1) : 0;
    int64_t min;
    assert_int_equal(max_chunks_in_a_block(graph, &chunks, policy.persistent_chunks, &min), STATUS_OK);
    chunks_free(&chunks);
    policy.lookahead = roll(&dice, 4);
    policy.parameters = (enum tier)roll(&dice, TIER_COUNT);
    policy.gradients = (enum tier)roll(&dice, TIER_COUNT);
    policy.optimizer = (enum tier)roll(&dice, TIER_COUNT);
    if (policy.optimizer != TIER_DEVICE) policy.update = (enum tier)roll(&dice, 2);
    policy.buffers = (min > 0 ? min : 1) + roll(&dice, 3);
    draw_schedule(&dice, graph_count_blocks(graph), traits, &policy);
    set_tiers(traits, &policy);
    if (updates_whole_matrices(graph)) policy.update = TIER_DEVICE;
    if (mesh && mesh_ranks(mesh) > 1) draw_partition(&dice, graph, mesh, &policy);
    policy.selective_recompute = roll(&dice, 2);
    policy.update_ahead = roll(&dice, 3);
    return policy;
}

void policy_cut(const struct graph *graph, const struct partition *partition, struct policy *policy) {
    struct chunk_list chunks;
    int64_t min;
    policy->partition = *partition;
    if (!partition_cuts(partition)) return;
    bool gathered = partition_width(partition->parameters) > 1;
    assert_int_equal(chunks_of_policy(graph, policy, &chunks), STATUS_OK);
    assert_int_equal(max_chunks_in_a_block(graph, &chunks, gathered ? 0 : policy->persistent_chunks, &min), STATUS_OK);
    chunks_free(&chunks);
    if (policy->buffers < min) policy->buffers = min;
}

void print_policy(const struct policy *policy, uint64_t seed) {
    json_t *object = policy_to_json(policy);
    char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;
    fprintf(stderr, "policy of seed %llu: %s\n", (unsigned long long)seed, text ? text : "");
    free(text);
    json_decref(object);
}
