#include "support/policy_spread.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/random.h"
#include "plan/activations.h"
#include "plan/chunks.h"
#include "support/block_chunks.h"

/* A Latin hypercube: each choice has a permutation of its own, by which the policies take turns at its values. */
enum choice {
    CHOICE_MICRO_BATCHES,
    CHOICE_CHUNKS,
    CHOICE_PERSISTENT,
    CHOICE_BUFFERS,
    CHOICE_LOOKAHEAD,
    CHOICE_PARAMETERS,
    CHOICE_GRADIENTS,
    CHOICE_OPTIMIZER,
    CHOICE_UPDATE,
    CHOICE_SCHEDULE
};

struct turn {
    uint64_t seed;
    int64_t index, count;
};

static int64_t choose(const struct turn *turn, enum choice choice, int64_t values) {
    uint64_t place = random_permute(turn->seed, (uint32_t)choice, (uint64_t)turn->index, (uint64_t)turn->count);
    return (int64_t)place % values;
}

static int64_t parameter_bytes(const struct graph *graph) {
    int64_t bytes = 0;
    for (size_t i = 0; i < graph->tensors.count; i++)
        if (graph->tensors.items[i]->kind == TENSOR_PARAMETER) bytes += shape_bytes(&graph->tensors.items[i]->shape);
    return bytes;
}

static enum status choose_buffers(const struct graph *graph, const struct turn *turn, struct policy *policy) {
    struct chunk_list chunks = {0};
    int64_t min = 0;
    policy->chunk_bytes = 1 + parameter_bytes(graph) / (2 + 3 * choose(turn, CHOICE_CHUNKS, 4));
    enum status status = chunks_pack(graph, policy->chunk_bytes, &chunks);
    if (status == STATUS_OK) {
        int64_t all = (int64_t)chunks.chunks.count;
        policy->persistent_chunks = choose(turn, CHOICE_PERSISTENT, 3) == 0 ? all / 2 : 0;
        status = max_chunks_in_a_block(graph, &chunks, policy->persistent_chunks, &min);
    }
    chunks_free(&chunks);
    policy->buffers = (min > 0 ? min : 1) + choose(turn, CHOICE_BUFFERS, 3);
    return status;
}

static enum status append(struct activation_steps *steps, enum activation_action action, int32_t block,
                          enum tier tier) {
    return vec_push(&steps->list, (struct activation_step){action, block, tier});
}

enum { SCHEDULE_KEEP, SCHEDULE_RECOMPUTE, SCHEDULE_HALF, SCHEDULE_HOST, SCHEDULE_DISK, SCHEDULES };

static enum status list_steps(int32_t blocks, int64_t kind, struct activation_steps *steps) {
    for (int32_t i = 0; i < blocks; i++) {
        TRY(append(steps, ACTIVATION_FORWARD, i, TIER_DEVICE));
        bool moves = i > 0 && i < blocks - 1 && i % 2;
        if (moves && kind == SCHEDULE_HOST) TRY(append(steps, ACTIVATION_MOVE, i, TIER_HOST));
        if (moves && kind == SCHEDULE_DISK) TRY(append(steps, ACTIVATION_MOVE, i, TIER_DISK));
    }
    for (int32_t i = blocks; i-- > 0;) {
        bool layer = i > 0 && i < blocks - 1;
        if (layer && (kind == SCHEDULE_RECOMPUTE || (kind == SCHEDULE_HALF && i % 2)))
            TRY(append(steps, ACTIVATION_FORWARD, i, TIER_DEVICE));
        TRY(append(steps, ACTIVATION_BACKWARD, i, TIER_DEVICE));
    }
    return STATUS_OK;
}

static enum status choose_schedule(const struct graph *graph, const struct turn *turn, struct policy *policy) {
    struct activation_steps steps = {0};
    enum status status = list_steps(graph_count_blocks(graph), choose(turn, CHOICE_SCHEDULE, SCHEDULES), &steps);
    if (status == STATUS_OK) status = activations_print(&steps, policy->schedule, sizeof policy->schedule);
    activation_steps_free(&steps);
    return status;
}

enum status policy_spread(const struct graph *graph, int64_t micro_batches, uint64_t seed, int64_t index, int64_t count,
                          struct policy *out) {
    struct turn turn = {seed, index, count};
    struct policy policy = {.micro_batches_per_wave = 1};
    if (index > 0) {
        policy.micro_batches_per_wave = 1 + choose(&turn, CHOICE_MICRO_BATCHES, micro_batches);
        TRY(choose_buffers(graph, &turn, &policy));
        policy.lookahead = choose(&turn, CHOICE_LOOKAHEAD, 4);
        policy.parameters = (enum tier)choose(&turn, CHOICE_PARAMETERS, TIER_COUNT);
        policy.gradients = (enum tier)choose(&turn, CHOICE_GRADIENTS, TIER_COUNT);
        policy.optimizer = (enum tier)choose(&turn, CHOICE_OPTIMIZER, TIER_COUNT);
        if (policy.optimizer != TIER_DEVICE) policy.update = (enum tier)choose(&turn, CHOICE_UPDATE, 2);
        TRY(choose_schedule(graph, &turn, &policy));
    }
    *out = policy;
    return STATUS_OK;
}

static const char *schedule_kind(const char *schedule) {
    if (strchr(schedule, 'h')) return "to host";
    if (strchr(schedule, 'd')) return "to disk";
    const char *backward = strchr(schedule, 'b');
    return backward && strchr(backward, 'f') ? "recompute" : "keep";
}

char *policy_spread_print(const struct policy *policy, char text[POLICY_TEXT]) {
    snprintf(text, POLICY_TEXT,
             "p %-6s g %-6s o %-6s u %-6s %6.2f MB +%-2" PRId64 " b %-2" PRId64 " l %" PRId64 " n %" PRId64 " %s",
             tier_name(policy->parameters), tier_name(policy->gradients), tier_name(policy->optimizer),
             tier_name(policy->update), (double)policy->chunk_bytes * 1e-6, policy->persistent_chunks, policy->buffers,
             policy->lookahead, policy->micro_batches_per_wave, schedule_kind(policy->schedule));
    return text;
}
