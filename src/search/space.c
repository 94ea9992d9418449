#include "search/space.h"

#include "search/schedule_cost.h"

/* Limits for large models, whose programs compile slowly while neighboring counts differ little. */
enum { COUNTS_MAX = 8, CHUNKS_ALL_MAX = 12, MICRO_BATCHES_MAX = 32 };

static bool is_there(const struct search_input *input, enum tier tier) {
    return tier == TIER_DEVICE || input->capacity_bytes[tier] > 0;
}

static bool has_gradients(const struct graph *graph) {
    for (size_t i = 0; i < graph->tensors.count; i++)
        if (graph->tensors.items[i]->kind == TENSOR_GRADIENT) return true;
    return false;
}

/* ---- schedules and chunks ---- */

struct packings *space_packings_for(struct space *space, const struct partition *partition) {
    return &space->packings[partition_cuts(partition)];
}

static const struct packings *packings_of(const struct space *space, int32_t sharding_option) {
    return &space->packings[partition_cuts(&space->sharding_options.items[sharding_option].partition)];
}

static enum status list_schedules(struct space *space, bool trains) {
    const struct search_input *input = space->input;
    if (!trains) return vec_push(&space->schedules.list, (struct schedule){SCHEDULE_KEEP, TIER_DEVICE, -1, ""});
    bool tiers[TIER_COUNT];
    for (enum tier tier = 0; tier < TIER_COUNT; tier++)
        tiers[tier] = tier != TIER_DEVICE && is_there(input, tier);
    return schedules_list(graph_count_blocks(input->graph), tiers, COUNTS_MAX, &space->schedules);
}

struct schedule_cost *space_schedule_cost(const struct space *space, int32_t schedule, int64_t lookahead) {
    bool moves = space->schedules.list.items[schedule].tier != TIER_DEVICE;
    return &space->schedule_costs[(int64_t)schedule * LOOKAHEADS + (moves ? lookahead : 0)];
}

/* Without moved activations, lookahead has no effect. A twin differs only in the tier. */
static enum status measure_schedule(struct space *space, int32_t s, struct execution_list *executions) {
    const struct search_input *input = space->input;
    const struct schedule *schedule = &space->schedules.list.items[s];
    int64_t lookaheads = schedule->tier != TIER_DEVICE ? LOOKAHEADS : 1;
    if (schedule->twin < 0) TRY(schedule_list_executions(&space->source, schedule->text, executions));
    for (int64_t lookahead = 0; lookahead < lookaheads; lookahead++) {
        struct schedule_cost *cost = space_schedule_cost(space, s, lookahead);
        if (schedule->twin >= 0)
            TRY(schedule_cost_copy(space_schedule_cost(space, schedule->twin, lookahead), schedule->tier, cost));
        else
            TRY(schedule_cost_measure(&space->source, executions, input->workspace, input->costs, lookahead, cost));
        if (policy_bound_scratch(cost) > space->scratch_count) space->scratch_count = policy_bound_scratch(cost);
    }
    return STATUS_OK;
}

/* Budgets: 1/2, 1/4, 1/8 and 1/16 of the bytes of keeping everything. Also the rest of the device next to all states,
 * next to all but the optimizer's, next to none, and next to shards of the finest partition. */
static int list_budgets(const struct space *space, const struct schedule_cost *keep, int64_t budgets[BUDGETS_MAX]) {
    const struct chunk_sum *all = space->sharding_options.items[0].from[0];
    const struct sharding_option *finest = &space->sharding_options.items[space->sharding_options.count - 1];
    const int64_t cut = finest->from[0]->parameters + finest->from[0]->optimizer;
    const int64_t states[] = {all->parameters + all->gradients + all->optimizer, all->parameters + all->gradients, 0,
                              cut};
    int64_t kept = schedule_cost_min_bytes(keep, 1);
    int count = 0;
    for (int divisor = 2; divisor <= 16; divisor *= 2)
        budgets[count++] = kept / divisor;
    for (size_t i = 0; i < (space->sharding_options.count > 1 ? 4 : 3); i++) {
        int64_t left = space->capacity_bytes[TIER_DEVICE] - space->fixed_bytes - states[i];
        if (left > 0 && left < kept) budgets[count++] = left;
    }
    return count;
}

/* Adds schedules from the solver, whose stages are measured on the schedule that keeps everything. */
static enum status add_fastest(struct space *space, struct execution_list *executions) {
    const struct search_input *input = space->input;
    AUTO(schedule_cost_free) struct schedule_cost keep = {0};
    AUTO(chain_free) struct chain chain = {0};
    int64_t budgets[BUDGETS_MAX];
    TRY(schedule_list_executions(&space->source, "", executions));
    TRY(schedule_cost_measure(&space->source, executions, input->workspace, input->costs, 0, &keep));
    TRY(step_chain_create(input->graph, input->costs, &keep, &chain));
    int count = list_budgets(space, &keep, budgets);
    return schedules_add_fastest(&chain, budgets, count, &space->schedules);
}

static enum status measure_schedules(struct space *space, bool trains) {
    struct execution_list executions = {0};
    space->plain.micro_batches_per_wave = 1;
    const struct chunk_list *chunks = &packings_of(space, 0)->states[0].chunks;
    TRY(execution_source_create(space->input->graph, &space->plain, chunks, false, &space->source));
    enum status status = trains ? add_fastest(space, &executions) : STATUS_OK;
    space->schedule_costs = mem_array(space->schedules.list.count * LOOKAHEADS, sizeof *space->schedule_costs);
    if (!space->schedule_costs) status = STATUS_FAILED;
    for (int32_t s = 0; s < (int32_t)space->schedules.list.count && status == STATUS_OK; s++)
        status = measure_schedule(space, s, &executions);
    vec_free(&executions.list);
    space->scratch = mem_array(space->scratch_count, sizeof *space->scratch);
    return space->scratch ? status : STATUS_FAILED;
}

/* The chunk size that wastes the least, and twice that, for fewer and longer copies. */
static enum status pack(struct space *space, const struct partition *partition, struct packings *out) {
    struct policy policy = {.partition = *partition};
    int64_t bytes;
    if (out->count > 0) return STATUS_OK;
    TRY(chunks_choose_bytes(space->input->graph, &bytes));
    for (int k = 0; k < PACKINGS_LISTED; k++, bytes *= 2) {
        policy.chunk_bytes = bytes;
        enum status status = states_create(space->input->graph, space->input->costs, &policy, &out->states[k]);
        out->listed = out->count = k + 1;
        TRY(status);
        /* Chunks within blocks may be the same at twice the bytes. */
        if (k > 0 && out->states[k].chunks.within_blocks &&
            states_count(&out->states[k]) == states_count(&out->states[k - 1])) {
            states_free(&out->states[k]);
            out->listed = out->count = k;
            break;
        }
        if (states_count(&out->states[k]) <= 2) break;
    }
    return STATUS_OK;
}

static bool is_tried(const struct search_input *input, bool flat) {
    return input->collectives == COLLECTIVES_EITHER || (input->collectives == COLLECTIVES_FLAT) == flat;
}

enum status space_divide_packing(const struct space *space, const struct states *packed, int32_t k,
                                 struct sharding_option *sharding_option) {
    const struct search_input *input = space->input;
    const struct partition *partition = &sharding_option->partition;
    double issue_s = input->costs ? input->costs->rates.issue_s : 0;
    struct states states;
    enum status status = states_deal(packed, partition, &input->place, &states);
    if (status == STATUS_OK) sharding_option->from[k] = states_divide(&states, partition, &input->place, issue_s);
    if (!sharding_option->from[k]) status = STATUS_FAILED;
    for (int flat = 0; flat < 2 && input->costs && status == STATUS_OK; flat++)
        if (is_tried(input, flat))
            status = collective_seconds_measure(&space->cut, &states, partition, flat, &input->costs->rates,
                                                &sharding_option->collective_seconds[k][flat]);
    states_free_dealt(&states);
    return status;
}

static enum status add_sharding_option(struct space *space, const struct partition *partition) {
    struct packings *packings = space_packings_for(space, partition);
    struct sharding_option sharding_option = {.partition = *partition};
    sharding_option.early =
        executions_update_early(space->input->graph, partition, rank_place_pipeline_parallel(&space->cut.place));
    TRY(pack(space, partition, packings));
    enum status status = STATUS_OK;
    for (int32_t k = 0; k < packings->listed && status == STATUS_OK; k++)
        status = space_divide_packing(space, &packings->states[k], k, &sharding_option);
    if (status == STATUS_OK) status = vec_push(&space->sharding_options, sharding_option);
    for (int32_t k = 0; k < PACKINGS_MAX && status != STATUS_OK; k++)
        mem_free(sharding_option.from[k]);
    return status;
}

static enum status divide(struct space *space) {
    const struct partition none = {0};
    if (space->input->partition_count == 0) return add_sharding_option(space, &none);
    for (int i = 0; i < space->input->partition_count; i++)
        TRY(add_sharding_option(space, &space->input->partitions[i]));
    return STATUS_OK;
}

const struct schedule *space_schedule(const struct space *space, const struct policy_class *policy_class) {
    return &space->schedules.list.items[policy_class->schedule];
}

/* ---- policy classes ---- */

int32_t policy_class_copy_way(const struct policy_class *policy_class) {
    return policy_class->update_ahead > 0 ? LOOKAHEADS : (int32_t)policy_class->lookahead;
}

bool policy_class_moves_states(const struct policy_class *policy_class) {
    return policy_class->at.parameters != TIER_DEVICE || policy_class->at.gradients != TIER_DEVICE ||
           policy_class->at.optimizer != TIER_DEVICE;
}

static const struct partition *partition_of(const struct space *space, const struct policy_class *policy_class) {
    return &space->sharding_options.items[policy_class->sharding_option].partition;
}

bool space_gathers(const struct space *space, const struct policy_class *policy_class) {
    return partition_width(partition_of(space, policy_class)->parameters) > 1;
}

static const struct states *states_of(const struct space *space, const struct policy_class *policy_class) {
    return &packings_of(space, policy_class->sharding_option)->states[policy_class->packing];
}

static void set_policy(const struct space *space, const struct policy_class *policy_class, int64_t persistent,
                       int64_t buffers, struct policy *out) {
    bool chunks = policy_class_moves_states(policy_class) || partition_cuts(partition_of(space, policy_class));
    out->micro_batches_per_wave = policy_class->micro_batches_per_wave;
    out->chunk_bytes = chunks ? states_of(space, policy_class)->chunk_bytes : 0;
    out->persistent_chunks = persistent;
    out->buffers = buffers;
    out->lookahead = policy_class->lookahead;
    out->update_ahead = policy_class->update_ahead;
    out->parameters = policy_class->at.parameters;
    out->gradients = policy_class->at.gradients;
    out->optimizer = policy_class->at.optimizer;
    out->update = policy_class->at.update;
    out->partition = *partition_of(space, policy_class);
    out->flat = policy_class->flat;
    out->tile_tokens = space->input->tile_tokens;
    out->selective_recompute = space->input->selective_recompute;
}

static struct policy_bound_input bound_input(const struct space *space, const struct policy_class *policy_class) {
    const struct sharding_option *sharding_option = &space->sharding_options.items[policy_class->sharding_option];
    return (struct policy_bound_input){space->input->graph,
                                       space->input->costs,
                                       space_schedule_cost(space, policy_class->schedule, policy_class->lookahead),
                                       states_of(space, policy_class),
                                       sharding_option->from[policy_class->packing],
                                       &sharding_option->collective_seconds[policy_class->packing][policy_class->flat],
                                       &space->cut,
                                       space->fixed_bytes,
                                       space->scratch,
                                       sharding_option->early};
}

static int64_t min_buffers(const struct space *space, const struct policy_class *policy_class, int64_t persistent) {
    const int32_t *min = states_of(space, policy_class)->min_buffers;
    if (space_gathers(space, policy_class)) return min[0];
    return policy_class->at.parameters == TIER_DEVICE ? 0 : min[persistent];
}

/* The maximum number of chunks that can stay, by the closed form; -1 if not even 0 fit. Bytes grow with it. */
static int64_t quick_max_persistent(struct space *space, const struct policy_class *policy_class,
                                    const struct wave_activations *activations) {
    struct policy_bound_input input = bound_input(space, policy_class);
    int64_t capacity = space->capacity_bytes[TIER_DEVICE];
    int64_t low = -1, high = policy_class_moves_states(policy_class) ? states_count(input.states) - 1 : 0;
    while (low < high) {
        int64_t middle = low + (high - low + 1) / 2;
        space->policy.persistent_chunks = middle;
        if (policy_bound_quick_device_bytes(&input, &space->policy, activations) <= capacity)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static bool is_away(enum tier tier) { return tier != TIER_DEVICE; }

int32_t space_fit_number(const struct tier_placement *at) {
    return is_away(at->parameters) + 2 * is_away(at->gradients) + 4 * is_away(at->optimizer) + 8 * is_away(at->update);
}

static int64_t max_micro_batches(const struct space *space) {
    int64_t fixed = space->input->micro_batches_per_wave;
    int64_t share = recipe_share_micro_batches(space->input->recipe); /* no wave has micro-batches of two lanes */
    return fixed > 0 ? fixed : share < MICRO_BATCHES_MAX ? share : MICRO_BATCHES_MAX;
}

/* A policy class that does not fit has no seconds. It is kept for the minimum-memory search. */
enum status space_add_policy_class(struct space *space, struct policy_class policy_class,
                                   const struct wave_activations *activations) {
    struct policy_bound_input input = bound_input(space, &policy_class);
    struct fit *fit = &space->fits.items[policy_class.fit];
    set_policy(space, &policy_class, 0, min_buffers(space, &policy_class, 0) + BUFFERS_MORE_MAX, &space->policy);
    if (!fit->listed) fit->max_persistent = quick_max_persistent(space, &policy_class, activations);
    fit->listed = true;
    if (fit->max_persistent >= 0)
        policy_class.min = policy_bound_min_seconds(&input, &space->policy, fit->max_persistent);
    return vec_push(&space->policy_classes, policy_class);
}

/* Adds all tier placements and packings. If nothing moves or is gathered, packing, lookahead and micro-batches per wave
 * have no effect and are tried once. */
static enum status add_policy_classes(struct space *space, struct policy_class policy_class,
                                      const struct tier_placement_list *tier_placements, int32_t first_fit,
                                      bool first) {
    const struct schedule_cost *cost = space_schedule_cost(space, policy_class.schedule, policy_class.lookahead);
    struct wave_activations activations =
        policy_bound_activations(cost, &space->cut, policy_class.micro_batches_per_wave);
    bool cuts = partition_cuts(partition_of(space, &policy_class)), gathered = space_gathers(space, &policy_class);
    bool moves = space_schedule(space, &policy_class)->tier != TIER_DEVICE;
    for (int i = 0; i < tier_placements->count; i++) {
        policy_class.at = tier_placements->items[i];
        bool states_move = policy_class_moves_states(&policy_class) || gathered;
        if (!states_move && !moves && !first) continue;
        int32_t packings = states_move || cuts ? packings_of(space, policy_class.sharding_option)->listed : 1;
        for (policy_class.packing = 0; policy_class.packing < packings; policy_class.packing++) {
            policy_class.fit = first_fit + SPACE_FITS * policy_class.packing + space_fit_number(&policy_class.at);
            TRY(space_add_policy_class(space, policy_class, &activations));
        }
    }
    return STATUS_OK;
}

/* A schedule's policy classes share the fits of its twin's, which are in the same order. */
static enum status add_schedule(struct space *space, struct policy_class policy_class,
                                const struct tier_placement_list *tier_placements) {
    int32_t schedule = policy_class.schedule, twin = space->schedules.list.items[schedule].twin;
    int32_t fit = twin >= 0 ? space->first_fits[twin] : (int32_t)space->fits.count;
    space->first_fits[schedule] = fit;
    int64_t fixed = space->input->micro_batches_per_wave, max = max_micro_batches(space);
    for (policy_class.lookahead = 0; policy_class.lookahead < LOOKAHEADS; policy_class.lookahead++)
        for (int64_t micro_batches = fixed > 0 ? fixed : 1;;
             micro_batches = 2 * micro_batches < max ? 2 * micro_batches : max) {
            policy_class.micro_batches_per_wave = micro_batches;
            bool first = policy_class.lookahead == 0 && (fixed > 0 || micro_batches == 1);
            while ((int32_t)space->fits.count < fit + PACKINGS_MAX * SPACE_FITS)
                TRY(vec_push(&space->fits, (struct fit){0}));
            TRY(add_policy_classes(space, policy_class, tier_placements, fit, first));
            fit += PACKINGS_MAX * SPACE_FITS;
            if (micro_batches == max) break;
        }
    return STATUS_OK;
}

static void add_tier_placement(const struct search_input *input, struct tier_placement at,
                               struct tier_placement_list *tier_placements) {
    if (!is_there(input, at.parameters) || !is_there(input, at.gradients) || !is_there(input, at.optimizer)) return;
    tier_placements->items[tier_placements->count++] = at;
    at.update = TIER_HOST;
    bool choice = at.optimizer != TIER_DEVICE && is_there(input, TIER_HOST) && plan_updates_anywhere(input->recipe);
    if (choice) tier_placements->items[tier_placements->count++] = at;
}

/* Lists every combination. Optimizer state is the largest and used once a step. But with one wave a step, parameters
 * are used only twice, and in bf16 have a sixth of its bytes. So the slowest tier can be best for them. */
static struct tier_placement_list list_tier_placements(const struct space *space, bool trains) {
    struct tier_placement_list tier_placements = {.count = 0};
    enum tier farthest = trains ? TIER_COUNT - 1 : TIER_DEVICE; /* of states that only training has */
    struct tier_placement at = {0};
    for (at.parameters = 0; at.parameters < TIER_COUNT; at.parameters++)
        for (at.gradients = 0; at.gradients <= farthest; at.gradients++)
            for (at.optimizer = 0; at.optimizer <= farthest; at.optimizer++)
                add_tier_placement(space->input, at, &tier_placements);
    return tier_placements;
}

static enum status list_policy_classes(struct space *space, struct policy_class policy_class,
                                       const struct tier_placement_list *tier_placements) {
    for (policy_class.schedule = 0; policy_class.schedule < (int32_t)space->schedules.list.count;
         policy_class.schedule++)
        TRY(add_schedule(space, policy_class, tier_placements));
    return STATUS_OK;
}

/* ---- placements ---- */

/* Bounds the placement with an ideal schedule, which computes nothing twice and needs the minimum memory of any
 * schedule. */
static void bound_placement(struct space *space, struct placement *placement) {
    struct policy_class policy_class = {.sharding_option = placement->sharding_option,
                                        .flat = placement->flat,
                                        .at = placement->at,
                                        .micro_batches_per_wave = max_micro_batches(space)};
    const int32_t packings = packings_of(space, placement->sharding_option)->listed;
    for (policy_class.packing = 0; policy_class.packing < packings; policy_class.packing++) {
        struct policy_bound_input input = bound_input(space, &policy_class);
        set_policy(space, &policy_class, 0, min_buffers(space, &policy_class, 0) + BUFFERS_MORE_MAX, &space->policy);
        int64_t stay = quick_max_persistent(space, &policy_class, &space->min);
        if (stay < 0) continue;
        struct policy_seconds min = policy_bound_min_seconds(&input, &space->policy, stay);
        if (!placement->may_fit || min.step_s < placement->min.step_s) placement->min.step_s = min.step_s;
        if (!placement->may_fit || min.serial_s < placement->min.serial_s) placement->min.serial_s = min.serial_s;
        placement->may_fit = true;
    }
}

static enum status add_placements(struct space *space, int32_t sharding_option,
                                  const struct tier_placement_list *tier_placements) {
    for (int flat = 0; flat < 2; flat++)
        for (int i = 0; i < tier_placements->count && is_tried(space->input, flat); i++) {
            struct placement placement = {
                .sharding_option = sharding_option, .flat = flat, .at = tier_placements->items[i]};
            bound_placement(space, &placement);
            TRY(vec_push(&space->placements, placement));
        }
    return STATUS_OK;
}

bool space_is_listed(const struct space *space) {
    return space->sharding_options.count == 1 && space->input->collectives != COLLECTIVES_EITHER;
}

enum status space_list_placement(struct space *space, int32_t index) {
    const struct placement *placement = &space->placements.items[index];
    const struct tier_placement_list one = {1, {placement->at}};
    return list_policy_classes(
        space, (struct policy_class){.sharding_option = placement->sharding_option, .flat = placement->flat}, &one);
}

static enum status list_space(struct space *space, bool trains) {
    const struct tier_placement_list tier_placements = list_tier_placements(space, trains);
    const struct policy_class plain = {.flat = space->input->collectives == COLLECTIVES_FLAT};
    TRY(mem_items(&space->first_fits, space->schedules.list.count));
    if (space_is_listed(space)) return list_policy_classes(space, plain, &tier_placements);
    for (int32_t d = 0; d < (int32_t)space->sharding_options.count; d++)
        TRY(add_placements(space, d, &tier_placements));
    return STATUS_OK;
}

/* ---- all ---- */

static void find_min_activations(struct space *space) {
    space->min = (struct wave_activations){INT64_MAX, -1, -1};
    for (int32_t s = 0; s < (int32_t)space->schedules.list.count; s++) {
        int64_t bytes = policy_bound_activations(space_schedule_cost(space, s, 0), &space->cut, 1).first;
        if (bytes < space->min.first) space->min.first = bytes;
    }
}

enum status space_create(const struct search_input *input, struct space *out) {
    *out = (struct space){.input = input, .micro_batches = recipe_share_micro_batches(input->recipe)};
    int64_t stages = rank_place_pipeline_parallel(&input->place);
    for (enum tier tier = 0; tier < TIER_COUNT; tier++) {
        int64_t bytes = input->capacity_bytes[tier];
        out->capacity_bytes[tier] = bytes > INT64_MAX / stages ? INT64_MAX : bytes * stages;
    }
    TRY(step_cut_create(input->graph, input->recipe, &input->place, &out->cut));
    int64_t micro_batches = out->cut.shares.micro_batches;
    out->fixed_bytes = policy_bound_fixed_bytes(input->graph, micro_batches > 0 ? micro_batches : 1);
    bool trains = has_gradients(input->graph);
    TRY(divide(out));
    TRY(list_schedules(out, trains));
    TRY(measure_schedules(out, trains));
    find_min_activations(out);
    return list_space(out, trains);
}

void space_free(struct space *space) {
    for (size_t i = 0; space->schedule_costs && i < space->schedules.list.count * LOOKAHEADS; i++)
        schedule_cost_free(&space->schedule_costs[i]);
    mem_free(space->schedule_costs);
    for (size_t d = 0; d < space->sharding_options.count; d++)
        for (int k = 0; k < PACKINGS_MAX; k++)
            mem_free(space->sharding_options.items[d].from[k]);
    vec_free(&space->sharding_options);
    vec_free(&space->placements);
    for (int cuts = 0; cuts < 2; cuts++)
        for (int32_t k = 0; k < space->packings[cuts].count; k++)
            states_free(&space->packings[cuts].states[k]);
    step_cut_free(&space->cut);
    schedules_free(&space->schedules);
    execution_source_free(&space->source);
    vec_free(&space->policy_classes);
    vec_free(&space->fits);
    mem_free(space->first_fits);
    mem_free(space->scratch);
}

/* ---- candidates ---- */

static int64_t device_bytes(struct space *space, const struct policy_class *policy_class, int64_t persistent) {
    struct policy_bound_input input = bound_input(space, policy_class);
    set_policy(space, policy_class, persistent, 0, &space->policy);
    return policy_bound_device_bytes(&input, &space->policy);
}

static struct candidate bound_candidate(struct space *space, const struct policy_class *policy_class,
                                        int64_t persistent, int64_t buffers, int64_t device_bytes) {
    struct policy_bound_input input = bound_input(space, policy_class);
    set_policy(space, policy_class, persistent, buffers, &space->policy);
    return (struct candidate){persistent, buffers, policy_bound_of(&input, &space->policy, device_bytes)};
}

bool space_may_fit(const struct space *space, const struct policy_bound *bound, enum tier from) {
    for (enum tier tier = from; tier < TIER_COUNT; tier++)
        if (bound->bytes[tier] > space->capacity_bytes[tier]) return false;
    return true;
}

struct candidate space_min_memory(struct space *space, const struct policy_class *policy_class) {
    return bound_candidate(space, policy_class, 0, min_buffers(space, policy_class, 0),
                           device_bytes(space, policy_class, 0));
}

static void add_candidates(struct space *space, const struct policy_class *policy_class, int64_t persistent,
                           struct candidate_list *out) {
    static const int64_t more[] = {0, 1, 2, BUFFERS_MORE_MAX};
    int64_t min = min_buffers(space, policy_class, persistent);
    bool buffers = space_gathers(space, policy_class) || policy_class->at.parameters != TIER_DEVICE;
    int64_t max = states_count(states_of(space, policy_class)) - (space_gathers(space, policy_class) ? 0 : persistent);
    for (size_t i = 0; i < (!buffers ? 1 : sizeof more / sizeof *more); i++) {
        if (i > 0 && min + more[i] > max) break;
        struct candidate candidate = bound_candidate(space, policy_class, persistent, min + more[i], 0);
        BUG_IF(out->count == CANDIDATES_MAX, "more than %d candidates", CANDIDATES_MAX);
        if (space_may_fit(space, &candidate.bound, TIER_DEVICE)) out->items[out->count++] = candidate;
    }
}

/* The maximum number of chunks that can stay, by the walk through the wave; -1 if not even 0 fit. */
static const struct fit *find_fit(struct space *space, const struct policy_class *policy_class) {
    struct fit *fit = &space->fits.items[policy_class->fit];
    int64_t capacity = space->capacity_bytes[TIER_DEVICE];
    if (fit->fullest_known) return fit;
    int64_t low = -1, high = fit->max_persistent;
    for (int64_t next = high; low < high; next = low + (high - low + 1) / 2) {
        int64_t bytes = device_bytes(space, policy_class, next);
        if (bytes <= capacity)
            low = next, fit->fullest_bytes = bytes;
        else
            high = next - 1;
    }
    fit->fullest = low;
    fit->fullest_known = true;
    return fit;
}

bool space_fullest(struct space *space, const struct policy_class *policy_class, struct candidate *out) {
    const struct fit *fit = find_fit(space, policy_class);
    if (fit->fullest < 0) return false;
    int64_t buffers = min_buffers(space, policy_class, fit->fullest);
    *out = bound_candidate(space, policy_class, fit->fullest, buffers, fit->fullest_bytes);
    return true;
}

void space_bound_device(struct space *space, const struct policy_class *policy_class, struct candidate *candidate) {
    struct policy_bound *bound = &candidate->bound;
    int64_t bytes = device_bytes(space, policy_class, candidate->persistent);
    bound->bytes[TIER_DEVICE] += bytes;
    bound->likely_bytes += bytes;
}

bool space_is_hopeless(const struct space *space, const struct policy_class *policy_class) {
    return space->fits.items[policy_class->fit].max_persistent < 0;
}

bool space_is_crowded(const struct space *space, const struct policy_class *policy_class) {
    struct policy_bound_input input = bound_input(space, policy_class);
    int64_t beside = space->input->operations_beside * policy_class->micro_batches_per_wave /
                     rank_place_pipeline_parallel(&space->cut.place);
    return policy_bound_operations(&input, policy_class->micro_batches_per_wave) + beside > COMM_OPERATIONS_MAX;
}

/* Chunk numbers have 32 bits, so only some of their counts are tried. */
void space_candidates(struct space *space, const struct policy_class *policy_class, struct candidate_list *out) {
    int64_t chunks = states_count(states_of(space, policy_class)), max = find_fit(space, policy_class)->fullest;
    out->count = 0;
    for (int64_t fewer = 0; fewer <= max; fewer = chunks <= CHUNKS_ALL_MAX || fewer < 2 ? fewer + 1 : 2 * fewer)
        add_candidates(space, policy_class, max - fewer, out);
}

void space_policy(const struct space *space, const struct policy_class *policy_class, const struct candidate *candidate,
                  struct policy *out) {
    *out = (struct policy){0};
    set_policy(space, policy_class, candidate->persistent, candidate->buffers, out);
    snprintf(out->schedule, sizeof out->schedule, "%s", space_schedule(space, policy_class)->text);
}
