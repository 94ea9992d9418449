/* Policy classes near one: those of the space that differ from it in little, and more of them, which would be too many
 * for all of the space. */
#include <string.h>

#include "search/space.h"

/* With fewer chunks than that, smaller ones are tried too. */
enum { CHUNKS_FEW = 128 };

/* ---- smaller chunks ---- */

/* A half and a quarter of the size, where there are few chunks: else they are parts of the states that are small
 * enough.
 */
static enum status pack_finer(struct space *space, const struct partition *partition, struct packings *out) {
    struct policy policy = {.partition = *partition, .chunk_bytes = out->states[0].chunk_bytes};
    if (out->count > out->listed || states_count(&out->states[0]) >= CHUNKS_FEW) return STATUS_OK;
    int32_t before = states_count(&out->states[0]);
    for (int i = 0; i < PACKINGS_MAX - PACKINGS_LISTED; i++) {
        struct states *states = &out->states[out->count];
        policy.chunk_bytes /= 2;
        out->count++;
        TRY(states_create(space->input->graph, space->input->costs, &policy, states));
        if (states_count(states) == before) { /* each parameter is a chunk by itself */
            states_free(states);
            out->count--;
            break;
        }
        before = states_count(states);
    }
    return STATUS_OK;
}

static bool is_near(const struct policy_class *a, const struct policy_class *b) {
    bool updates = a->at.optimizer == b->at.optimizer && a->at.update != b->at.update;
    int choices = (a->schedule != b->schedule) + (a->micro_batches_per_wave != b->micro_batches_per_wave) +
                  (policy_class_copy_way(a) != policy_class_copy_way(b)) + (a->at.parameters != b->at.parameters) +
                  (a->at.gradients != b->at.gradients) + (a->at.optimizer != b->at.optimizer) + updates;
    return a->sharding_option == b->sharding_option && a->flat == b->flat && choices <= 1;
}

static bool has_twin(const struct space *space, size_t from, const struct policy_class *policy_class) {
    for (size_t f = from; f < space->policy_classes.count; f++)
        if (space->policy_classes.items[f].fit == policy_class->fit &&
            space->policy_classes.items[f].schedule == policy_class->schedule &&
            memcmp(&space->policy_classes.items[f].at, &policy_class->at, sizeof policy_class->at) == 0)
            return true;
    return false;
}

/* The same with updates ahead. It needs more of the device than what it shares its fit with, so it has one of its own.
 */
static enum status add_ahead(struct space *space, struct policy_class ahead) {
    const struct schedule_cost *cost = space_schedule_cost(space, ahead.schedule, ahead.lookahead);
    struct wave_activations activations = policy_bound_activations(cost, &space->cut, ahead.micro_batches_per_wave);
    ahead.fit = (int32_t)space->fits.count;
    TRY(vec_push(&space->fits, (struct fit){0}));
    return space_add_policy_class(space, ahead, &activations);
}

/* Of all policy classes there are near `base`, once for each: lookahead puts updates ahead as well. */
static enum status add_all_ahead(struct space *space, const struct policy_class *base) {
    size_t count = space->policy_classes.count;
    for (size_t f = 0; f < count; f++) {
        struct policy_class *policy_class = &space->policy_classes.items[f], ahead = *policy_class;
        bool deferred = policy_class->at.optimizer != TIER_DEVICE &&
                        !space->sharding_options.items[policy_class->sharding_option].early;
        ahead.update_ahead = 1;
        if (policy_class->has_ahead || !deferred || policy_class_copy_way(policy_class) != 0 || !is_near(&ahead, base))
            continue;
        policy_class->has_ahead = true;
        TRY(add_ahead(space, ahead));
    }
    return STATUS_OK;
}

/* The same with smaller chunks. */
static enum status add_finer(struct space *space, const struct policy_class *coarse, size_t first_finer) {
    const struct packings *packings =
        space_packings_for(space, &space->sharding_options.items[coarse->sharding_option].partition);
    const struct schedule_cost *cost = space_schedule_cost(space, coarse->schedule, coarse->lookahead);
    struct wave_activations activations = policy_bound_activations(cost, &space->cut, coarse->micro_batches_per_wave);
    for (int32_t k = packings->listed; k < packings->count; k++) {
        struct policy_class policy_class = *coarse;
        policy_class.packing = k;
        policy_class.fit = coarse->fit + SPACE_FITS * k;
        if (!has_twin(space, first_finer, &policy_class))
            TRY(space_add_policy_class(space, policy_class, &activations));
    }
    return STATUS_OK;
}

static enum status divide_finer(struct space *space, int32_t sharding_option) {
    struct sharding_option *own = &space->sharding_options.items[sharding_option];
    struct packings *packings = space_packings_for(space, &own->partition);
    TRY(pack_finer(space, &own->partition, packings));
    for (int32_t k = packings->listed; k < packings->count; k++)
        if (!own->from[k]) TRY(space_divide_packing(space, &packings->states[k], k, own));
    return STATUS_OK;
}

enum status space_list_near(struct space *space, int32_t policy_class, struct policy_class_numbers *out) {
    const struct policy_class base = space->policy_classes.items[policy_class];
    if (space->coarse_policy_classes == 0) space->coarse_policy_classes = space->policy_classes.count;
    TRY(divide_finer(space, base.sharding_option));
    for (size_t f = 0; f < space->coarse_policy_classes; f++) {
        const struct policy_class other = space->policy_classes.items[f]; /* the list grows */
        bool chunks = policy_class_moves_states(&other) ||
                      partition_cuts(&space->sharding_options.items[other.sharding_option].partition);
        if (other.packing == 0 && chunks && is_near(&other, &base))
            TRY(add_finer(space, &other, space->coarse_policy_classes));
    }
    TRY(add_all_ahead(space, &base));
    for (size_t f = 0; f < space->policy_classes.count; f++)
        if (is_near(&space->policy_classes.items[f], &base)) TRY(vec_push(&out->list, (int32_t)f));
    return STATUS_OK;
}
