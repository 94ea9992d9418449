#include "search/schedule_cost.h"

#include <string.h>

#include "plan/movement.h"

/* An activation in memory: made by one execution, read by others. */
struct instance {
    int64_t bytes;
    enum tier home_tier;
    int32_t first, last;             /* executions of the present residency on the device */
    int32_t first_group, last_group; /* their groups */
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
    int32_t *begin; /* by group, empty ones too: its first execution; one more at the end */
    int32_t groups;
    VEC(struct instance) instances;
    struct instances current; /* numbered by their place in `instances` */
    int64_t *changes[TIER_COUNT];
};

static void add_live(const struct measurer *measurer, enum tier tier, int32_t first, int first_place, int32_t last,
                     int last_place, int64_t bytes) {
    measurer->changes[tier][PLACES * first + first_place] += bytes;
    measurer->changes[tier][PLACES * last + last_place + 1] -= bytes;
}

/* The first execution of the group; at most where the last group ends. */
static int32_t group_begin(const struct measurer *measurer, int64_t group) {
    return measurer->begin[group < measurer->groups ? group : measurer->groups];
}

/* A residency on the device ends; `again`: another comes. */
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

/* From the store behind the first residency to the fetch before the last. */
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
    measurer->begin = mem_array((size_t)measurer->groups + 1, sizeof *measurer->begin);
    if (!measurer->begin) return STATUS_FAILED;
    for (int32_t r = 0, group = 0; r <= measurer->count; r++)
        while (group <= (r < measurer->count ? measurer->executions[r].group : measurer->groups))
            measurer->begin[group++] = r;
    return STATUS_OK;
}

/* Which groups the blocks' forwards and backwards are. */
static enum status note_groups(struct measurer *measurer) {
    const struct execution_source *source = measurer->source;
    struct schedule_cost *cost = measurer->cost;
    size_t bytes = (size_t)source->blocks * sizeof(int32_t);
    cost->blocks = source->blocks;
    cost->forward = mem_array((size_t)source->blocks, sizeof *cost->forward);
    cost->backward = mem_array((size_t)source->blocks, sizeof *cost->backward);
    if (!cost->forward || !cost->backward) return STATUS_FAILED;
    memcpy(cost->forward, source->forward_groups, bytes);
    memcpy(cost->backward, source->backward_groups, bytes);
    return STATUS_OK;
}

static enum status measure_executions(struct measurer *measurer, const struct execution_list *executions) {
    const struct graph *graph = measurer->source->graph;
    TRY(find_groups(measurer, executions));
    TRY(instances_create(graph, &measurer->source->activations, 1, &measurer->current));
    for (enum tier tier = 0; tier < TIER_COUNT; tier++) {
        measurer->changes[tier] = mem_array(PLACES * ((size_t)measurer->count + 1), sizeof(int64_t));
        if (!measurer->changes[tier]) return STATUS_FAILED;
    }
    for (size_t block = 0; block < graph->blocks.count; block++)
        measurer->cost->moves |= measurer->current.home_tiers[block] != TIER_DEVICE;
    TRY(note_groups(measurer));
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
                                  const struct workspace_table *workspace, const struct costs *costs,
                                  const char *schedule, int64_t lookahead, struct schedule_cost *out) {
    *out = (struct schedule_cost){.schedule = schedule, .lookahead = lookahead};
    struct measurer measurer = {.source = source, .workspace = workspace, .costs = costs, .cost = out};
    enum status status = measure_executions(&measurer, executions);
    for (enum tier tier = 0; tier < TIER_COUNT; tier++)
        mem_free(measurer.changes[tier]);
    vec_free(&measurer.instances);
    mem_free(measurer.begin);
    instances_free(&measurer.current);
    return status;
}

static enum status copy_groups(const struct schedule_cost *cost, size_t blocks, struct schedule_cost *out) {
    out->groups = (typeof(out->groups)){0};
    out->forward = mem_array(blocks, sizeof *out->forward);
    out->backward = mem_array(blocks, sizeof *out->backward);
    if (!out->forward || !out->backward) return STATUS_FAILED;
    memcpy(out->forward, cost->forward, blocks * sizeof *out->forward);
    memcpy(out->backward, cost->backward, blocks * sizeof *out->backward);
    for (size_t i = 0; i < cost->groups.count; i++)
        TRY(vec_push(&out->groups, cost->groups.items[i]));
    return STATUS_OK;
}

enum status schedule_cost_copy(const struct schedule_cost *cost, const char *schedule, enum tier tier,
                               struct schedule_cost *out) {
    *out = *cost;
    out->schedule = schedule;
    for (enum tier t = TIER_HOST; t < TIER_COUNT; t++)
        if (t != tier) {
            out->out[tier] = cost->out[t], out->out[t] = (struct copy_traffic){0};
            out->in[tier] = cost->in[t], out->in[t] = (struct copy_traffic){0};
            out->away_bytes[tier] = cost->away_bytes[t], out->away_bytes[t] = 0;
        }
    return copy_groups(cost, (size_t)cost->blocks, out);
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
