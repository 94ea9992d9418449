#include "search/schedule_cost.h"

#include "ir/symbolic_profile.h"
#include "plan/activations.h"
#include "plan/plan.h"

/* Slots of the largest budget. Solver time grows with them: 15 ms at 98 blocks, each of which fills a hundredth of a
 * wave. */
enum { SOLVER_SLOTS = 64 };

/* Blocks from the first layer on: `moved` ones, then `recomputed` ones; the rest is kept. */
struct split {
    int32_t moved, recomputed;
    bool inputs; /* all layers' inputs move, including the recomputed layers' */
};

static enum status push(struct activation_steps *steps, enum activation_action action, int32_t block, enum tier tier) {
    return vec_push(&steps->list, (struct activation_step){action, block, tier});
}

/* The embedding does no work, and the head's backward follows at once. So neither is recomputed, and the head's outputs
 * are not moved. */
static enum status write_steps(int32_t blocks, const struct split *split, enum tier tier,
                               struct activation_steps *steps) {
    int32_t moving = split->inputs ? blocks - 1 : split->moved > 0 ? 1 + split->moved : 0;
    for (int32_t i = 0; i < blocks; i++)
        TRY(push(steps, ACTIVATION_FORWARD, i, TIER_DEVICE));
    for (int32_t i = 0; i < moving; i++)
        TRY(push(steps, ACTIVATION_MOVE, i, tier));
    for (int32_t i = blocks; i-- > 0;) {
        bool again = i > split->moved && i <= split->moved + split->recomputed;
        if (again) TRY(push(steps, ACTIVATION_FORWARD, i, TIER_DEVICE));
        TRY(push(steps, ACTIVATION_BACKWARD, i, TIER_DEVICE));
    }
    return STATUS_OK;
}

/* Adds the steps, which were written with this status, and frees them. Skips steps that a policy's text cannot hold,
 * and duplicates. */
static enum status add_steps(struct schedule_list *out, enum schedule_kind kind, enum tier tier, enum status written,
                             struct activation_steps *steps) {
    char text[POLICY_SCHEDULE_BYTES], *kept;
    bool adds = written == STATUS_OK && activations_print(steps, text, sizeof text) == STATUS_OK;
    activation_steps_free(steps);
    for (size_t i = 0; i < out->list.count && adds; i++)
        adds = strcmp(out->list.items[i].text, text) != 0;
    if (!adds) return written;
    kept = scratch_format(&out->memory, "%s", text);
    return kept ? vec_push(&out->list, (struct schedule){kind, tier, -1, kept}) : STATUS_FAILED;
}

static enum status add_split(struct schedule_list *out, enum schedule_kind kind, enum tier tier, int32_t blocks,
                             struct split split) {
    struct activation_steps steps = {0};
    enum status written = write_steps(blocks, &split, tier, &steps);
    return add_steps(out, kind, tier, written, &steps);
}

/* The k-th of `max` counts up to `layers`. */
static int32_t count_of(int32_t layers, int32_t max, int32_t k) {
    return (int32_t)(((int64_t)layers * k + max - 1) / max);
}

static enum status add_moving(struct schedule_list *out, enum tier tier, int32_t blocks, int32_t max) {
    int32_t layers = blocks - 2, coarse = max < 4 ? max : 4;
    for (int32_t k = 1; k <= max; k++)
        TRY(add_split(out, SCHEDULE_MOVE, tier, blocks, (struct split){count_of(layers, max, k), 0, false}));
    for (int32_t k = 1; k < coarse; k++)
        for (int32_t m = 1; m + k <= coarse; m++) {
            int32_t moved = count_of(layers, coarse, k), both = count_of(layers, coarse, k + m);
            TRY(add_split(out, SCHEDULE_MOVE_RECOMPUTE, tier, blocks, (struct split){moved, both - moved, false}));
        }
    return add_split(out, SCHEDULE_RECOMPUTE_INPUTS, tier, blocks, (struct split){0, layers, true});
}

/* Segments of `length` layers. Each is recomputed from the input of its first layer, then once more layer by layer. */
static enum status write_nested(int32_t blocks, int32_t length, struct activation_steps *steps) {
    for (int32_t i = 0; i < blocks; i++)
        TRY(push(steps, ACTIVATION_FORWARD, i, TIER_DEVICE));
    for (int32_t i = blocks; i-- > 0;) {
        bool layer = i > 0 && i < blocks - 1;
        int32_t first = layer ? i - (i - 1) % length : i;
        bool ends = layer && (i == blocks - 2 || i % length == 0);
        for (int32_t k = first; ends && k < i; k++)
            TRY(push(steps, ACTIVATION_FORWARD, k, TIER_DEVICE));
        if (layer) TRY(push(steps, ACTIVATION_FORWARD, i, TIER_DEVICE));
        TRY(push(steps, ACTIVATION_BACKWARD, i, TIER_DEVICE));
    }
    return STATUS_OK;
}

static enum status add_nested(struct schedule_list *out, int32_t blocks, int32_t length) {
    struct activation_steps steps = {0};
    enum status written = write_nested(blocks, length, &steps);
    return add_steps(out, SCHEDULE_NESTED, TIER_DEVICE, written, &steps);
}

enum status schedules_list(int32_t blocks, const bool tiers[TIER_COUNT], int32_t max, struct schedule_list *out) {
    int32_t layers = blocks - 2;
    *out = (struct schedule_list){0};
    TRY(vec_push(&out->list, (struct schedule){SCHEDULE_KEEP, TIER_DEVICE, -1, ""}));
    if (max > layers) max = layers;
    for (int32_t k = 1; k <= max; k++)
        TRY(add_split(out, SCHEDULE_RECOMPUTE, TIER_DEVICE, blocks,
                      (struct split){0, count_of(layers, max, k), false}));
    int32_t before = 0, here = 0; /* first schedules of the previous tier, and of this one; 0: none */
    for (enum tier tier = TIER_HOST; tier < TIER_COUNT && max > 0; tier++) {
        if (!tiers[tier]) continue;
        before = here, here = (int32_t)out->list.count;
        TRY(add_moving(out, tier, blocks, max));
        for (int32_t i = here; i < (int32_t)out->list.count && before > 0; i++)
            out->list.items[i].twin = before + i - here;
    }
    for (int32_t length = 2; length < layers; length *= 2)
        TRY(add_nested(out, blocks, length));
    return STATUS_OK;
}

static enum status add_solved(const struct recompute_schedule *solved, struct schedule_list *out) {
    struct activation_steps steps;
    if (solved->count == 0) return STATUS_OK;
    enum status written = activations_from_recompute(solved, &steps);
    return add_steps(out, SCHEDULE_FASTEST, TIER_DEVICE, written, &steps);
}

/* Solves with `chain` and `slots` in units of slots. */
static enum status solve(const struct chain *chain, const int64_t *slots, int count, struct schedule_list *out) {
    struct recompute_schedule solved[BUDGETS_MAX];
    struct recompute_cost costs[BUDGETS_MAX];
    enum status status = rotor_solve_each(chain, slots, count, solved, costs);
    for (int i = 0; i < count && status == STATUS_OK; i++)
        status = add_solved(&solved[i], out);
    for (int i = 0; i < count; i++)
        vec_free(&solved[i]);
    return status;
}

ORDER_BY(compare_slots, int64_t, *item)

enum status schedules_add_fastest(const struct chain *chain, const int64_t *budgets_bytes, int count,
                                  struct schedule_list *out) {
    int64_t max = 0, slots[BUDGETS_MAX];
    int used = 0;
    for (int i = 0; i < count; i++)
        if (budgets_bytes[i] > max) max = budgets_bytes[i];
    if (max < SOLVER_SLOTS || chain->count > SOLVED_BLOCKS_MAX) return STATUS_OK;
    for (int i = 0; i < count && used < BUDGETS_MAX; i++)
        if (budgets_bytes[i] > 0) slots[used++] = (int64_t)((__int128)budgets_bytes[i] * SOLVER_SLOTS / max);
    qsort(slots, (size_t)used, sizeof *slots, compare_slots);
    AUTO(chain_free) struct chain rounded = {0};
    TRY(chain_discretise(chain, max, SOLVER_SLOTS, &rounded));
    return solve(&rounded, slots, used, out);
}

void schedules_free(struct schedule_list *schedules) {
    vec_free(&schedules->list);
    scratch_free(&schedules->memory);
}

/* An activation in memory: written by one execution, read by others. */
struct instance {
    int64_t bytes;
    enum tier home_tier;
    int32_t first, last;             /* executions of the current residency on the device */
    int32_t first_group, last_group; /* groups of these */
    int32_t residencies;
};

/* Live bytes change at three places of an execution: at copies before its group, at the execution itself, and at copies
 * after its group. */
enum { PLACE_BEFORE, PLACE_EXECUTION, PLACE_BEHIND, PLACES };

struct measurer {
    const struct execution_source *source;
    const struct workspace_table *workspace;
    const struct costs *costs;
    struct schedule_cost *cost;
    const struct execution *executions;
    int32_t count;
    int32_t *begin; /* by group, including empty ones: its first execution; one more at the end */
    int32_t groups;
    VEC(struct instance) instances;
    struct instances current; /* indexed by place in `instances` */
    int64_t *changes[TIER_COUNT];
    struct scratch memory;
};

static void add_live(const struct measurer *measurer, enum tier tier, int32_t first, int first_place, int32_t last,
                     int last_place, int64_t bytes) {
    measurer->changes[tier][PLACES * first + first_place] += bytes;
    measurer->changes[tier][PLACES * last + last_place + 1] -= bytes;
}

/* The first execution of the group, limited to the end of the last group. */
static int32_t group_begin(const struct measurer *measurer, int64_t group) {
    return measurer->begin[group < measurer->groups ? group : measurer->groups];
}

/* Ends a residency on the device. `again`: another one follows. */
static void end_residency(const struct measurer *measurer, const struct instance *instance, bool again) {
    int64_t lookahead = measurer->cost->lookahead;
    bool fetched = instance->residencies > 1, stored = again && instance->residencies == 1;
    int32_t first = instance->first, last = instance->last;
    if (fetched) first = group_begin(measurer, movement_fetch_group(instance->first_group, lookahead));
    if (stored) last = group_begin(measurer, movement_store_group(instance->last_group, lookahead)) - 1;
    add_live(measurer, TIER_DEVICE, first, fetched ? PLACE_BEFORE : PLACE_EXECUTION, last,
             stored ? PLACE_BEHIND : PLACE_EXECUTION, instance->bytes);
}

static void count_traffic(struct copy_traffic *traffic, int64_t bytes) {
    traffic->bytes += bytes;
    traffic->copies++;
}

/* From the store after the first residency to the fetch before the last. */
static void begin_residency(const struct measurer *measurer, struct instance *instance, int32_t group) {
    struct schedule_cost *cost = measurer->cost;
    end_residency(measurer, instance, true);
    if (instance->residencies == 1) count_traffic(&cost->out[instance->home_tier], instance->bytes);
    count_traffic(&cost->in[instance->home_tier], instance->bytes);
    int64_t from = movement_store_group(instance->last_group, cost->lookahead);
    int64_t to = movement_fetch_group(group, cost->lookahead);
    if (from <= to && to < measurer->groups)
        add_live(measurer, instance->home_tier, measurer->begin[from], PLACE_BEFORE, measurer->begin[to], PLACE_BEFORE,
                 instance->bytes);
    instance->residencies++;
}

static void use(const struct measurer *measurer, int32_t index, int32_t execution, int32_t group) {
    struct instance *instance = &measurer->instances.items[index];
    bool stays = movement_stays(instance->last_group, group, measurer->cost->lookahead);
    if (instance->home_tier != TIER_DEVICE && !stays) {
        begin_residency(measurer, instance, group);
        instance->first = execution;
        instance->first_group = group;
    }
    instance->last = execution;
    instance->last_group = group;
}

static enum status make(struct measurer *measurer, int32_t r, int32_t group) {
    const struct execution *execution = &measurer->executions[r];
    const struct node *node = execution->node;
    for (int i = 0; i < node->op->outputs; i++) {
        int32_t *current = instances_of_output(&measurer->current, execution, i);
        if (!current) continue;
        if (*current < 0) {
            const struct tensor *tensor = tensor_storage(node->out[i]);
            struct instance made = {.bytes = shape_bytes(&tensor->shape),
                                    .home_tier = instances_home_tier(&measurer->current, execution, tensor),
                                    .first = r,
                                    .first_group = group,
                                    .last_group = group,
                                    .residencies = 1};
            *current = (int32_t)measurer->instances.count;
            TRY(vec_push(&measurer->instances, made));
        }
        use(measurer, *current, r, group);
    }
    return STATUS_OK;
}

static void read(const struct measurer *measurer, int32_t r, int32_t group) {
    const struct node *node = measurer->executions[r].node;
    for (int i = 0; i < node->op->inputs; i++) {
        struct tensor *tensor = node->in[i] ? tensor_storage(node->in[i]) : NULL;
        if (tensor && tensor->kind == TENSOR_ACTIVATION)
            use(measurer, *instances_at(&measurer->current, 0, tensor), r, group);
    }
}

static void compute(struct measurer *measurer, int32_t r) {
    const struct node *node = measurer->executions[r].node;
    const struct kernel_cost *kernel = &measurer->costs->kernels[node->id];
    measurer->cost->collectives += node->op->collective != OP_COLLECTIVE_NONE;
    measurer->cost->compute_s[kernel->activity] += kernel->seconds + measurer->costs->rates.issue_s;
}

static enum status walk(struct measurer *measurer) {
    for (int32_t group = 0; group < measurer->groups; group++) {
        int32_t first = measurer->begin[group], end = measurer->begin[group + 1];
        instances_begin_group(&measurer->current, measurer->executions + first, (size_t)(end - first));
        for (int32_t r = first; r < end; r++) {
            read(measurer, r, group);
            TRY(make(measurer, r, group));
            compute(measurer, r);
        }
    }
    for (size_t i = 0; i < measurer->instances.count; i++)
        end_residency(measurer, &measurer->instances.items[i], false);
    return STATUS_OK;
}

static void sum_away(const struct measurer *measurer, enum tier tier) {
    int64_t live = 0, max = 0;
    for (int32_t i = 0; i < PLACES * measurer->count; i++) {
        live += measurer->changes[tier][i];
        if (live > max) max = live;
    }
    measurer->cost->away_bytes[tier] = max;
}

static enum status sum_groups(const struct measurer *measurer) {
    const int64_t *changes = measurer->changes[TIER_DEVICE];
    int64_t live = 0;
    for (int32_t group = 0; group < measurer->groups; group++) {
        int32_t first = measurer->begin[group], end = measurer->begin[group + 1];
        const struct node *node = first < end ? measurer->executions[first].node : NULL;
        struct group_bytes sum = {.block = node ? node->block : -1, .before = live, .peak = live};
        for (int32_t r = first; r < end; r++) {
            live += changes[PLACES * r + PLACE_BEFORE];
            if (r == first) sum.before = live;
            live += changes[PLACES * r + PLACE_EXECUTION];
            int64_t used = live + measurer->workspace->bytes[measurer->executions[r].node->id];
            if (used > sum.peak) sum.peak = used;
            live += changes[PLACES * r + PLACE_BEHIND];
        }
        sum.after = live;
        TRY(vec_push(&measurer->cost->groups, sum));
    }
    return STATUS_OK;
}

static enum status find_groups(struct measurer *measurer, const struct execution_list *executions) {
    measurer->executions = executions->list.items;
    measurer->count = (int32_t)executions->list.count;
    measurer->groups = measurer->source->group;
    TRY(scratch_items(&measurer->memory, &measurer->begin, (size_t)measurer->groups + 1));
    for (int32_t r = 0, group = 0; r <= measurer->count; r++)
        while (group <= (r < measurer->count ? measurer->executions[r].group : measurer->groups))
            measurer->begin[group++] = r;
    return STATUS_OK;
}

/* Records the groups of the blocks' forward and backward passes. */
static enum status note_groups(const int32_t *forward, const int32_t *backward, int32_t blocks,
                               struct schedule_cost *out) {
    size_t bytes = (size_t)blocks * sizeof(int32_t);
    out->blocks = blocks;
    TRY(mem_items(&out->forward, (size_t)blocks));
    TRY(mem_items(&out->backward, (size_t)blocks));
    memcpy(out->forward, forward, bytes);
    memcpy(out->backward, backward, bytes);
    return STATUS_OK;
}

static enum status measure_executions(struct measurer *measurer, const struct execution_list *executions) {
    const struct graph *graph = measurer->source->graph;
    TRY(find_groups(measurer, executions));
    TRY(instances_create(graph, &measurer->source->activations, 1, &measurer->current));
    for (enum tier tier = 0; tier < TIER_COUNT; tier++)
        TRY(scratch_items(&measurer->memory, &measurer->changes[tier], PLACES * ((size_t)measurer->count + 1)));
    for (size_t block = 0; block < graph->blocks.count; block++)
        measurer->cost->moves |= measurer->current.home_tiers[block] != TIER_DEVICE;
    const struct execution_source *source = measurer->source;
    TRY(note_groups(source->forward_groups, source->backward_groups, source->blocks, measurer->cost));
    TRY(walk(measurer));
    for (enum tier tier = TIER_HOST; tier < TIER_COUNT; tier++)
        sum_away(measurer, tier);
    return sum_groups(measurer);
}

enum status schedule_list_executions(struct execution_source *source, const char *schedule,
                                     struct execution_list *executions) {
    activation_steps_free(&source->activations);
    TRY(activations_parse(schedule, source->blocks, &source->activations));
    source->group = 0;
    executions->list.count = 0;
    return executions_of_wave(source, &(struct wave_part){.slots = 1}, executions);
}

enum status schedule_cost_measure(const struct execution_source *source, const struct execution_list *executions,
                                  const struct workspace_table *workspace, const struct costs *costs, int64_t lookahead,
                                  struct schedule_cost *out) {
    *out = (struct schedule_cost){.lookahead = lookahead};
    struct measurer measurer = {.source = source, .workspace = workspace, .costs = costs, .cost = out};
    enum status status = measure_executions(&measurer, executions);
    scratch_free(&measurer.memory);
    vec_free(&measurer.instances);
    instances_free(&measurer.current);
    return status;
}

enum status schedule_cost_copy(const struct schedule_cost *cost, enum tier tier, struct schedule_cost *out) {
    *out = *cost;
    for (enum tier t = TIER_HOST; t < TIER_COUNT; t++)
        if (t != tier) {
            out->out[tier] = cost->out[t], out->out[t] = (struct copy_traffic){0};
            out->in[tier] = cost->in[t], out->in[t] = (struct copy_traffic){0};
            out->away_bytes[tier] = cost->away_bytes[t], out->away_bytes[t] = 0;
        }
    out->groups = (typeof(out->groups)){0};
    out->forward = out->backward = NULL;
    TRY(note_groups(cost->forward, cost->backward, cost->blocks, out));
    for (size_t i = 0; i < cost->groups.count; i++)
        TRY(vec_push(&out->groups, cost->groups.items[i]));
    return STATUS_OK;
}

void schedule_cost_free(struct schedule_cost *cost) {
    vec_free(&cost->groups);
    mem_free(cost->forward);
    mem_free(cost->backward);
    *cost = (struct schedule_cost){0};
}

int64_t schedule_cost_min_bytes(const struct schedule_cost *cost, int64_t slots) {
    int64_t max = 0;
    for (size_t i = 0; i < cost->groups.count; i++) {
        const struct group_bytes *group = &cost->groups.items[i];
        int64_t waiting = group->before > group->after ? group->before : group->after;
        int64_t running = group->peak + (slots - 1) * waiting, beginning = slots * group->before;
        int64_t bytes = running > beginning ? running : beginning;
        if (bytes > max) max = bytes;
    }
    return max;
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static void add_times(const struct graph *graph, const struct costs *costs, struct chain *chain) {
    for (size_t n = 0; n < graph->nodes.count; n++) {
        const struct node *node = graph->nodes.items[n];
        if (node->phase > PHASE_BACKWARD) continue;
        struct chain_block *chain_block = &chain->blocks[node->block];
        bool backward = node->phase == PHASE_BACKWARD;
        *(backward ? &chain_block->backward_time : &chain_block->forward_time) +=
            costs->kernels[n].seconds + costs->rates.issue_s;
    }
}

/* Bytes beyond the chain's values and saved sets. The head's forward and backward are one group. */
static void add_temporaries(const struct schedule_cost *keep, struct chain *chain) {
    for (int i = 0; i < chain->count; i++) {
        struct chain_block *chain_block = &chain->blocks[i];
        int32_t forward = keep->forward[i], backward = keep->backward[i];
        if (forward < 0 || backward < 0) continue;
        const struct group_bytes *f = &keep->groups.items[forward], *b = &keep->groups.items[backward];
        if (forward != backward) chain_block->forward_temporary = larger(f->peak - f->before - chain_block->saved, 0);
        int64_t made = forward == backward ? chain_block->saved : 0;
        chain_block->backward_temporary = larger(b->peak - b->before - made - chain_value(chain, i), 0);
    }
}

enum status step_chain_create(const struct graph *graph, const struct costs *costs, const struct schedule_cost *keep,
                              struct chain *out) {
    struct symbolic_profile profile;
    TRY(chain_create(graph_count_blocks(graph), out));
    enum status status = symbolic_profile_create(graph, &profile);
    if (status == STATUS_OK) {
        for (size_t i = 0; i < profile.values.count; i++)
            chain_add_value(out, &profile.values.items[i], profile.values.items[i].bytes);
        add_times(graph, costs, out);
        add_temporaries(keep, out);
        status = chain_check(out);
    }
    symbolic_profile_free(&profile);
    if (status != STATUS_OK) chain_free(out);
    return status;
}
