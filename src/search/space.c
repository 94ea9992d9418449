#include "search/space.h"

#include <stdio.h>
#include <string.h>

/* Few numbers for large models, where their compilation takes long and neighbours differ little. */
enum { COUNTS_MOST = 8, CHUNKS_ALL_MOST = 12, GRAINS_MOST = 32 };

static bool is_there(const struct search_input *input, enum tier tier) {
    return tier == TIER_DEVICE || input->capacity_bytes[tier] > 0;
}

static bool has_gradients(const struct graph *graph) {
    for (size_t i = 0; i < graph->tensors.count; i++)
        if (graph->tensors.items[i]->kind == TENSOR_GRADIENT) return true;
    return false;
}

/* ---- what families are made of ---- */

static enum status list_schedules(struct space *space, bool trains) {
    const struct search_input *input = space->input;
    if (!trains) return vec_push(&space->schedules.list, (struct schedule){SCHEDULE_KEEP, TIER_DEVICE, ""});
    bool tiers[TIER_COUNT];
    for (enum tier tier = 0; tier < TIER_COUNT; tier++)
        tiers[tier] = tier != TIER_DEVICE && is_there(input, tier);
    return schedules_list(graph_count_blocks(input->graph), tiers, COUNTS_MOST, &space->schedules);
}

/* Measures a way unless that was done. */
static enum status measure_way(struct space *space, int32_t schedule, int64_t lookahead) {
    const struct search_input *input = space->input;
    struct way *way = &space->ways[(int64_t)schedule * LOOKAHEADS + lookahead];
    if (way->groups.count > 0) return STATUS_OK;
    TRY(way_measure(&space->source, input->workspace, input->costs, space->schedules.list.items[schedule].text,
                    lookahead, way));
    if (policy_bound_scratch(way) <= space->scratch_count) return STATUS_OK;
    space->scratch_count = policy_bound_scratch(way);
    int64_t *scratch = mem_resize(space->scratch, space->scratch_count, sizeof *scratch);
    if (!scratch) return STATUS_FAILED;
    space->scratch = scratch;
    return STATUS_OK;
}

static enum status measure_ways(struct space *space) {
    space->plain.grains_per_pass = 1;
    space->ways = mem_array(space->schedules.list.count * LOOKAHEADS, sizeof *space->ways);
    if (!space->ways) return STATUS_FAILED;
    TRY(run_source_create(space->input->graph, &space->plain, &space->packings[0].chunks, &space->source));
    for (int32_t s = 0; s < (int32_t)space->schedules.list.count; s++)
        TRY(measure_way(space, s, 0));
    return STATUS_OK;
}

/* The size that wastes least, and multiples: fewer, longer copies. */
static enum status pack(struct space *space) {
    int64_t bytes;
    TRY(chunks_choose_bytes(space->input->graph, &bytes));
    for (int k = 0; k < PACKINGS_MAX; k++, bytes *= 2) {
        struct states *states = &space->packings[k];
        enum status status = states_create(space->input->graph, space->input->costs, bytes, states);
        space->packing_count = k + 1;
        TRY(status);
        if (states_count(states) <= 2) break;
    }
    return STATUS_OK;
}

/* What does not move activations is the same with every lookahead. */
static int64_t way_lookahead(const struct space *space, const struct family *family) {
    return space_schedule(space, family)->tier != TIER_DEVICE ? family->lookahead : 0;
}

const struct schedule *space_schedule(const struct space *space, const struct family *family) {
    return &space->schedules.list.items[family->schedule];
}

/* ---- families ---- */

static bool states_move(const struct family *family) {
    return family->parameters != TIER_DEVICE || family->gradients != TIER_DEVICE || family->optimizer != TIER_DEVICE;
}

static enum status add_family(struct space *space, struct family family) {
    const struct way *way = &space->ways[(int64_t)family.schedule * LOOKAHEADS];
    double seconds = 0;
    for (int activity = 0; activity < ACTIVITY_COUNT; activity++)
        seconds += way->compute_s[activity];
    family.compute_s = (double)space->grains * seconds * (1 - 1e-9);
    return vec_push(&space->families, family);
}

/* Numbers that change nothing are tried once: packing and lookahead where nothing moves, grains likewise. */
static enum status add_numbers(struct space *space, struct family family) {
    bool moves = states_move(&family), any = moves || space_schedule(space, &family)->tier != TIER_DEVICE;
    int64_t fixed = space->input->grains_per_pass;
    int64_t most = fixed > 0 ? fixed : !any ? 1 : space->grains < GRAINS_MOST ? space->grains : GRAINS_MOST;
    for (family.packing = 0; family.packing < (moves ? space->packing_count : 1); family.packing++)
        for (family.lookahead = 0; family.lookahead < (any ? LOOKAHEADS : 1); family.lookahead++)
            for (int64_t grains = fixed > 0 ? fixed : 1;; grains = 2 * grains < most ? 2 * grains : most) {
                family.grains_per_pass = grains;
                TRY(add_family(space, family));
                if (grains == most) break;
            }
    return STATUS_OK;
}

static enum status add_updates(struct space *space, struct family family) {
    TRY(add_numbers(space, family));
    family.update = TIER_HOST;
    return family.optimizer != TIER_DEVICE && is_there(space->input, TIER_HOST) ? add_numbers(space, family)
                                                                                : STATUS_OK;
}

static bool has_frozen(const struct space *space) {
    const struct chunk_sum *all = space->packings[0].from;
    return all->trained < all->parameters;
}

/* Optimizer state goes as far away as anything: it is the most bytes, and is used once a step. What is not trained has
 * none, and so sets no limit to parameters. */
static enum status add_homes(struct space *space, struct family family, bool trains) {
    const struct search_input *input = space->input;
    bool free_parameters = !trains || has_frozen(space);
    for (family.parameters = 0; family.parameters < TIER_COUNT; family.parameters++)
        for (family.gradients = 0; family.gradients < TIER_COUNT; family.gradients++)
            for (family.optimizer = 0; family.optimizer < TIER_COUNT; family.optimizer++) {
                bool there = is_there(input, family.parameters) && is_there(input, family.gradients) &&
                             is_there(input, family.optimizer);
                bool needed = trains || (family.gradients == TIER_DEVICE && family.optimizer == TIER_DEVICE);
                bool ordered =
                    family.gradients <= family.optimizer && (family.parameters <= family.optimizer || free_parameters);
                if (there && needed && ordered) TRY(add_updates(space, family));
            }
    return STATUS_OK;
}

enum status space_create(const struct search_input *input, struct space *out) {
    *out = (struct space){.input = input, .grains = recipe_grains(input->recipe)};
    out->fixed_bytes = policy_bound_fixed_bytes(input->graph, out->grains);
    bool trains = has_gradients(input->graph);
    TRY(pack(out));
    TRY(list_schedules(out, trains));
    TRY(measure_ways(out));
    for (int32_t s = 0; s < (int32_t)out->schedules.list.count; s++)
        TRY(add_homes(out, (struct family){.schedule = s}, trains));
    return STATUS_OK;
}

void space_free(struct space *space) {
    for (size_t i = 0; space->ways && i < space->schedules.list.count * LOOKAHEADS; i++)
        way_free(&space->ways[i]);
    mem_free(space->ways);
    for (int32_t i = 0; i < space->packing_count; i++)
        states_free(&space->packings[i]);
    schedules_free(&space->schedules);
    run_source_free(&space->source);
    vec_free(&space->families);
    mem_free(space->scratch);
}

/* ---- members ---- */

static void set_policy(const struct space *space, const struct family *family, int64_t persistent, int64_t buffers,
                       struct policy *out) {
    out->grains_per_pass = family->grains_per_pass;
    out->chunk_bytes = states_move(family) ? space->packings[family->packing].chunk_bytes : 0;
    out->persistent_chunks = persistent;
    out->buffers = buffers;
    out->lookahead = family->lookahead;
    out->parameters = family->parameters;
    out->gradients = family->gradients;
    out->optimizer = family->optimizer;
    out->update = family->update;
}

static struct policy_bound_input bound_input(const struct space *space, const struct family *family) {
    return (struct policy_bound_input){
        space->input->graph,
        space->input->costs,
        &space->ways[(int64_t)family->schedule * LOOKAHEADS + way_lookahead(space, family)],
        &space->packings[family->packing],
        space->grains,
        space->fixed_bytes,
        space->scratch};
}

static struct member bound_member(struct space *space, const struct family *family, int64_t persistent,
                                  int64_t buffers) {
    struct policy_bound_input input = bound_input(space, family);
    set_policy(space, family, persistent, buffers, &space->policy);
    return (struct member){persistent, buffers, policy_bound_of(&input, &space->policy)};
}

bool space_may_fit(const struct space *space, const struct policy_bound *bound, enum tier from) {
    for (enum tier tier = from; tier < TIER_COUNT; tier++)
        if (bound->bytes[tier] > space->input->capacity_bytes[tier]) return false;
    return true;
}

static int64_t least_buffers(const struct space *space, const struct family *family, int64_t persistent) {
    const struct states *states = &space->packings[family->packing];
    return family->parameters == TIER_DEVICE ? 0 : states->least_buffers[persistent];
}

enum status space_least(struct space *space, const struct family *family, struct member *out) {
    TRY(measure_way(space, family->schedule, way_lookahead(space, family)));
    *out = bound_member(space, family, 0, least_buffers(space, family, 0));
    return STATUS_OK;
}

static enum status add_members(struct space *space, const struct family *family, int64_t persistent,
                               struct member_list *out) {
    static const int64_t more[] = {0, 1, 2, 4};
    int64_t least = least_buffers(space, family, persistent);
    int64_t most = states_count(&space->packings[family->packing]) - persistent;
    for (size_t i = 0; i < (family->parameters == TIER_DEVICE ? 1 : sizeof more / sizeof *more); i++) {
        if (i > 0 && least + more[i] > most) break;
        struct member member = bound_member(space, family, persistent, least + more[i]);
        if (space_may_fit(space, &member.bound, TIER_DEVICE)) TRY(vec_push(&out->list, member));
    }
    return STATUS_OK;
}

static bool may_stay(struct space *space, const struct family *family, int64_t persistent) {
    struct policy_bound_input input = bound_input(space, family);
    set_policy(space, family, persistent, least_buffers(space, family, persistent), &space->policy);
    return policy_bound_device_bytes(&input, &space->policy) <= space->input->capacity_bytes[TIER_DEVICE];
}

/* The most chunks that can stay, as far as bounds tell; -1 when not even none can. Bytes grow with them. */
static int64_t most_persistent(struct space *space, const struct family *family) {
    int64_t low = -1, high = states_count(&space->packings[family->packing]) - 1;
    if (!may_stay(space, family, 0)) return -1;
    while (low < high) {
        int64_t middle = low + (high - low + 1) / 2;
        if (may_stay(space, family, middle))
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

enum status space_promising(struct space *space, const struct family *family, struct member *out, bool *found) {
    TRY(measure_way(space, family->schedule, way_lookahead(space, family)));
    int64_t persistent = states_move(family) ? most_persistent(space, family) : 0;
    *found = persistent >= 0;
    if (!*found) return STATUS_OK;
    *out = bound_member(space, family, persistent, least_buffers(space, family, persistent));
    *found = space_may_fit(space, &out->bound, TIER_DEVICE);
    return STATUS_OK;
}

enum status space_members(struct space *space, const struct family *family, struct member_list *out) {
    int64_t chunks = states_count(&space->packings[family->packing]);
    out->list.count = 0;
    TRY(measure_way(space, family->schedule, way_lookahead(space, family)));
    if (!states_move(family)) return add_members(space, family, 0, out);
    int64_t most = most_persistent(space, family);
    for (int64_t fewer = 0; fewer <= most; fewer = chunks <= CHUNKS_ALL_MOST || fewer < 2 ? fewer + 1 : 2 * fewer)
        TRY(add_members(space, family, most - fewer, out));
    return STATUS_OK;
}

void space_policy(const struct space *space, const struct family *family, const struct member *member,
                  struct policy *out) {
    *out = (struct policy){0};
    set_policy(space, family, member->persistent, member->buffers, out);
    snprintf(out->schedule, sizeof out->schedule, "%s", space_schedule(space, family)->text);
}
