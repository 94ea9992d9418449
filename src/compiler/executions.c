#include "compiler/executions.h"

#include "plan/plan.h"

/* Appends one node's execution to the present group. */
static enum status executions_add(const struct execution_source *source, const struct node *node, int64_t slot,
                                  struct execution_list *out) {
    return vec_push(&out->list, (struct execution){.node = node, .slot = slot, .group = source->group});
}

/* A value that goes to another stage, or comes from one. */
static struct execution executions_transfer(const struct execution_source *source, const struct pipeline_value *value,
                                            int64_t slot) {
    enum execution_kind kind = value->to == source->stage ? EXECUTION_RECEIVE : EXECUTION_SEND;
    return (struct execution){.kind = kind, .value = value, .slot = slot, .group = source->group};
}

/* ---- where updates stand among a step's executions ---- */

/* Updates that wait for copies overlap with backward and do not delay it. */
static bool is_aside(const struct execution_source *source, int32_t chunk) {
    const struct policy *policy = source->policy;
    if (chunk < 0) return false;
    bool fetches = source->early && policy_home_tier(policy, chunk, policy->parameters) != TIER_DEVICE;
    return fetches || policy_defers_update(policy, chunk);
}

static enum status add_update(const struct execution_source *source, int32_t chunk, bool deferred,
                              struct execution_list *out) {
    bool aside = is_aside(source, chunk);
    for (int32_t n = source->updates.first[chunk + 1]; n < source->updates.first[chunk + 2]; n++) {
        TRY(executions_add(source, source->updates.nodes[n], 0, out));
        out->list.items[out->list.count - 1].deferred = deferred;
        out->list.items[out->list.count - 1].aside = aside;
    }
    const struct execution updated = {
        .kind = EXECUTION_UPDATED, .chunk = chunk, .group = source->group, .deferred = deferred, .aside = aside};
    bool gathered = source->cuts && source->updates.first[chunk + 1] < source->updates.first[chunk + 2];
    return gathered && chunk >= 0 ? vec_push(&out->list, updated) : STATUS_OK;
}

/* One parameter of a deferred update, sent or received. */
static enum status execution_updates_add_transfer(const struct execution_source *source,
                                                  const struct pipeline_value *value, bool deferred,
                                                  struct execution_list *out) {
    struct execution transfer = executions_transfer(source, value, 0);
    transfer.deferred = transfer.aside = deferred;
    return vec_push(&out->list, transfer);
}

/* A trained parameter of the chunk that other stages use. */
static bool execution_updates_share(const struct execution_source *source, const struct pipeline_value *value,
                                    int32_t chunk) {
    const struct tensor *tensor = value->tensor;
    bool updated = source->pipeline.trains && tensor->kind == TENSOR_PARAMETER && tensor->trainable;
    return updated && source->chunks->chunk_of[tensor->id] == chunk;
}

static enum status add_deferred_update(struct execution_source *source, int32_t chunk, struct execution_list *out) {
    TRY(add_update(source, chunk, true, out));
    for (size_t v = 0; v < source->pipeline.values.count; v++) {
        const struct pipeline_value *value = &source->pipeline.values.items[v];
        if (execution_updates_share(source, value, chunk) && value->span % source->spans.stages == source->stage)
            TRY(execution_updates_add_transfer(source, value, true, out));
    }
    return STATUS_OK;
}

/* Deferred updates that stand before the forward of `block`. */
static enum status execution_updates_add_deferred(struct execution_source *source, int32_t block,
                                                  struct execution_list *out) {
    const struct chunk_list *chunks = source->chunks;
    for (int32_t *next = &source->next_deferred; *next < (int32_t)chunks->chunks.count; ++*next) {
        if (movement_update_block(chunks->chunks.items[*next].block, source->policy) > block) break;
        if (execution_defers_update(source, *next)) TRY(add_deferred_update(source, *next, out));
    }
    return STATUS_OK;
}

/* Early updates of the chunks whose last gradient the backward of `block` completes. */
static enum status execution_updates_add_early(const struct execution_source *source, int32_t block,
                                               struct execution_list *out) {
    for (int32_t chunk = (int32_t)source->chunks->chunks.count; source->early && chunk-- > 0;)
        if (source->ready[chunk] == block) TRY(add_update(source, chunk, false, out));
    return STATUS_OK;
}

/* The node that computes the clip factor reads the norms of all stages. */
static enum status add_clipping(struct execution_source *source, struct execution_list *out) {
    size_t begin = out->list.count;
    const struct execution results = {.kind = EXECUTION_RESULTS, .group = source->group};
    TRY(add_update(source, -1, false, out));
    if (source->spans.stages == 1) return STATUS_OK;
    size_t at = out->list.count;
    while (at > begin && stage_of_node(&source->spans, out->list.items[at - 1].node) == STAGE_SPANS_ALL)
        at--;
    TRY(vec_push(&out->list, results));
    for (size_t i = out->list.count - 1; i > at; i--)
        out->list.items[i] = out->list.items[i - 1];
    out->list.items[at] = results;
    return STATUS_OK;
}

/* A chunk's update, whose parameters other stages may use too. */
static enum status add_updated(struct execution_source *source, int32_t chunk, struct execution_list *out) {
    TRY(add_update(source, chunk, false, out));
    for (size_t v = 0; v < source->pipeline.values.count; v++) {
        const struct pipeline_value *value = &source->pipeline.values.items[v];
        int from = (int)(value->span % source->spans.stages);
        if (execution_updates_share(source, value, chunk) && (from == source->stage || value->to == source->stage))
            TRY(execution_updates_add_transfer(source, value, false, out));
    }
    return STATUS_OK;
}

enum status executions_of_update(struct execution_source *source, struct execution_list *out) {
    for (int32_t chunk = -1; chunk < (int32_t)source->chunks->chunks.count; chunk++) {
        if (chunk >= 0 && (source->early || policy_defers_update(source->policy, chunk))) continue;
        TRY(chunk < 0 ? add_clipping(source, out) : add_updated(source, chunk, out));
        source->group++;
    }
    return STATUS_OK;
}

static enum status add_nodes(struct execution_source *source, enum phase phase, int32_t block, int64_t slot,
                             struct execution_list *out) {
    int32_t index = (int32_t)phase * source->blocks + block;
    for (int32_t n = source->waves.first[index]; n < source->waves.first[index + 1]; n++)
        TRY(executions_add(source, source->waves.nodes[n], slot, out));
    return STATUS_OK;
}

/* A block for all micro-batches: forward, backward, or forward then backward for each micro-batch. Blocks of other
 * ranks are listed for one micro-batch. */
static enum status add_block(struct execution_source *source, const struct activation_step *step, bool pair,
                             const struct wave_part *wave, struct execution_list *out) {
    size_t begin = out->list.count;
    int64_t slots = wave->slots > 0 ? wave->slots : 1;
    for (int64_t slot = wave->first_slot; slot < wave->first_slot + slots; slot++) {
        if (step->action == ACTIVATION_FORWARD) TRY(add_nodes(source, PHASE_FORWARD, step->block, slot, out));
        if (step->action == ACTIVATION_BACKWARD || pair) TRY(add_nodes(source, PHASE_BACKWARD, step->block, slot, out));
    }
    for (size_t i = begin; i < out->list.count; i++) {
        out->list.items[i].elsewhere = wave->slots == 0;
        out->list.items[i].repeated = step > &source->activations.list.items[source->opening[step->block]];
    }
    return STATUS_OK;
}

static enum status add_group(struct execution_source *source, const struct node_groups *groups, int32_t block,
                             struct execution_list *out) {
    for (int32_t n = groups->first[block]; n < groups->first[block + 1]; n++)
        TRY(executions_add(source, groups->nodes[n], 0, out));
    return STATUS_OK;
}

/* A block's backward in the last wave of a share: the gradients that it completes are summed. */
static enum status add_sums(struct execution_source *source, int32_t block, bool computes, struct execution_list *out) {
    const struct execution sums = {.kind = EXECUTION_SUMS, .block = block, .group = source->group};
    if (computes) TRY(add_group(source, &source->tied, block, out));
    source->summed_in[block] = source->group;
    return source->sums ? vec_push(&out->list, sums) : STATUS_OK;
}

/* Adds the nodes that stand `delay` groups after the sums of each block, for the blocks that are due. */
static enum status add_late(struct execution_source *source, bool closes_step, struct execution_list *out) {
    for (; source->next_late >= 0; source->next_late--) {
        int32_t block = source->next_late;
        if (stage_of_block(&source->spans, block) != source->stage) continue;
        const struct execution totals = {.kind = EXECUTION_TOTALS, .block = block, .group = source->group};
        const struct execution norms = {.kind = EXECUTION_NORMS, .block = block, .group = source->group};
        if (source->summed_in[block] < 0 || source->summed_in[block] + source->delay > source->group) break;
        if (source->sums) TRY(vec_push(&out->list, totals));
        if (closes_step) TRY(add_group(source, &source->finish, block, out));
        if (closes_step && source->cuts_gradients) TRY(vec_push(&out->list, norms));
        if (closes_step) TRY(execution_updates_add_early(source, block, out));
    }
    return STATUS_OK;
}

/* The late ones after the last block's backward have groups without other work. */
static enum status add_latest(struct execution_source *source, bool closes_step, struct execution_list *out) {
    for (; source->next_late >= 0; source->group++)
        TRY(add_late(source, closes_step, out));
    return STATUS_OK;
}

/* Values that later executions read, collected from the end of a wave to its beginning. */
struct sweep {
    const struct graph *graph;
    bool *needed; /* by slot and storage id */
};

static bool *needed(const struct sweep *sweep, int64_t slot, struct tensor *tensor) {
    return &sweep->needed[slot * (int64_t)sweep->graph->tensors.count + tensor_storage(tensor)->id];
}

/* True when the execution has an effect: it changes an accumulator, or its result is read later. */
static bool sweep_execution(const struct sweep *sweep, struct execution *execution) {
    const struct node *node = execution->node;
    if (execution->kind == EXECUTION_SEND) *needed(sweep, execution->slot, execution->value->tensor) = true;
    if (!node) return true;
    bool useful = node->op->updates != 0;
    for (int i = 0; i < node->op->outputs; i++)
        if (node->out[i])
            useful |= node->out[i]->kind != TENSOR_ACTIVATION || *needed(sweep, execution->slot, node->out[i]);
    if (!useful) return false;
    BUG_IF(node->op->collective == OP_COLLECTIVE_REDUCE_SCATTER && *needed(sweep, execution->slot, node->in[0]),
           "%s: %s is read again", node->name, node->in[0]->name);
    int input = node_in_place_input(node);
    execution->takes_over = input >= 0 && !*needed(sweep, execution->slot, node->in[input]);
    for (int i = 0; i < node->op->inputs; i++)
        if (node->in[i]) *needed(sweep, execution->slot, node->in[i]) = true;
    return true;
}

/* Before a group begins, its outputs do not exist. */
static void forget_outputs(const struct sweep *sweep, const struct execution *executions, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (executions[i].kind == EXECUTION_RECEIVE)
            *needed(sweep, executions[i].slot, executions[i].value->tensor) = false;
        for (int k = 0; executions[i].node && k < executions[i].node->op->outputs; k++)
            if (executions[i].node->out[k]) *needed(sweep, executions[i].slot, executions[i].node->out[k]) = false;
    }
}

static void keep_useful(struct execution_list *executions, size_t begin, const bool *useful) {
    size_t kept = begin;
    for (size_t i = begin; i < executions->list.count; i++)
        if (useful[i - begin]) executions->list.items[kept++] = executions->list.items[i];
    executions->list.count = kept;
}

/* Removes executions without effect and decides which outputs are in place, from `begin` on. */
static enum status sweep_wave(const struct graph *graph, int64_t slots, size_t begin,
                              struct execution_list *executions) {
    struct execution *items = executions->list.items;
    size_t count = executions->list.count - begin;
    struct sweep sweep = {graph, mem_array(graph->tensors.count * (size_t)slots + 1, sizeof(bool))};
    bool *useful = mem_array(count, sizeof *useful);
    enum status status;
    TRY_GOTO(status, sweep.needed && useful ? STATUS_OK : STATUS_FAILED, done);
    for (size_t i = 0; i < graph->tensors.count * (size_t)slots; i++)
        sweep.needed[i] = graph->tensors.items[i % graph->tensors.count]->kept;
    for (size_t end = begin + count, first; end > begin; end = first) {
        for (first = end; first > begin && items[first - 1].group == items[end - 1].group;) {
            first--;
            useful[first - begin] = sweep_execution(&sweep, &items[first]);
        }
        forget_outputs(&sweep, items + first, end - first);
    }
    keep_useful(executions, begin, useful);
done:
    mem_free(sweep.needed);
    mem_free(useful);
    return status;
}

/* Whether step s is a forward whose backward follows at once, so that each micro-batch does both before the next
 * micro-batch. */
static bool is_pair(const struct activation_steps *steps, size_t s) {
    const struct activation_step *items = steps->list.items;
    return items[s].action == ACTIVATION_FORWARD && s + 1 < steps->list.count &&
           items[s + 1].action == ACTIVATION_BACKWARD && items[s + 1].block == items[s].block;
}

static void note_groups(struct execution_source *source, int32_t block, bool forward, bool backward) {
    if (forward && source->forward_groups[block] < 0) source->forward_groups[block] = source->group;
    if (backward) source->backward_groups[block] = source->group;
}

/* Stage s of the schedule; with its backward where `pair`. */
static enum status add_stage(struct execution_source *source, const struct wave_part *wave, size_t s, bool pair,
                             struct execution_list *out) {
    const struct activation_step *step = &source->activations.list.items[s];
    bool forward = step->action == ACTIVATION_FORWARD, backward = pair || !forward;
    if (wave->opens_step && forward) TRY(execution_updates_add_deferred(source, step->block, out));
    TRY(add_block(source, step, pair, wave, out));
    if (wave->closes_share && backward) TRY(add_sums(source, step->block, wave->slots > 0, out));
    if (wave->closes_share) TRY(add_late(source, wave->closes_step, out));
    note_groups(source, step->block, forward, backward);
    source->group++;
    return STATUS_OK;
}

/* A span's forward is the first forwards of its blocks, its backward the rest of the schedule; a micro-batch's last
 * forward that is directly followed by its backward belongs to that. `event` NULL: all of the schedule. */
static bool is_in(const struct execution_source *source, const struct pipeline_event *event, size_t s, bool pair) {
    const struct activation_step *step = &source->activations.list.items[s];
    if (step->action == ACTIVATION_MOVE) return false;
    if (event && stage_spans_of_block(&source->spans, step->block) != event->span) return false;
    if (!event || !source->pipeline.trains) return true;
    bool opens = step->action == ACTIVATION_FORWARD && source->opening[step->block] == (int32_t)s && !pair;
    return opens != event->backward;
}

static enum status add_steps(struct execution_source *source, const struct pipeline_event *event,
                             const struct wave_part *wave, struct execution_list *out) {
    for (size_t s = 0; s < source->activations.list.count; s++) {
        bool pair = is_pair(&source->activations, s);
        if (is_in(source, event, s, pair)) TRY(add_stage(source, wave, s, pair, out));
        s += pair;
    }
    return STATUS_OK;
}

/* Without micro-batches, where nothing is cut: deferred updates, and the sums in the order in which ranks with
 * micro-batches have them. Collectives of shards need the very groups of these ranks. */
static enum status add_empty(struct execution_source *source, const struct wave_part *wave,
                             struct execution_list *out) {
    for (int32_t block = 0; wave->opens_step && block < source->blocks; block++, source->group++)
        TRY(execution_updates_add_deferred(source, block, out));
    for (int32_t block = source->blocks; block-- > 0; source->group++) {
        TRY(add_sums(source, block, false, out));
        TRY(add_late(source, wave->closes_step, out));
    }
    return STATUS_OK;
}

static void begin_share(struct execution_source *source, bool closes_share) {
    size_t bytes = (size_t)source->blocks * sizeof(int32_t);
    source->next_deferred = 0;
    source->next_late = closes_share && graph_has_backward(source->graph) ? source->blocks - 1 : -1;
    memset(source->forward_groups, -1, bytes);
    memset(source->backward_groups, -1, bytes);
    memset(source->summed_in, -1, bytes);
}

enum status executions_of_wave(struct execution_source *source, const struct wave_part *wave,
                               struct execution_list *out) {
    size_t begin = out->list.count;
    begin_share(source, wave->closes_share);
    bool stages = wave->slots > 0 || source->cuts;
    TRY(stages ? add_steps(source, NULL, wave, out) : add_empty(source, wave, out));
    TRY(add_latest(source, wave->closes_step, out));
    return sweep_wave(source->graph, wave->slots > 0 ? wave->slots : 1, begin, out);
}

/* ---- pipelines ---- */

/* Activations send one message a micro-batch. Parameters come here only if this step makes their deferred update and
 * sends them during it (add_deferred_update). */
static enum status add_message(struct execution_source *source, const struct pipeline_event *event,
                               const struct wave_part *wave, struct execution_list *out) {
    const struct pipeline_value *value = &source->pipeline.values.items[event->value];
    const struct tensor *tensor = value->tensor;
    if (tensor->kind == TENSOR_PARAMETER) {
        int32_t chunk = source->chunks->chunk_of[tensor->id];
        bool left = wave->opens_step && execution_defers_update(source, chunk);
        if (left && execution_updates_share(source, value, chunk) && value->to == source->stage)
            TRY(execution_updates_add_transfer(source, value, true, out));
    } else {
        int64_t times = tensor->kind == TENSOR_ACTIVATION && wave->slots > 0 ? wave->slots : 1;
        for (int64_t slot = wave->first_slot; slot < wave->first_slot + times; slot++) {
            struct execution transfer = executions_transfer(source, value, slot);
            transfer.elsewhere = wave->slots == 0;
            TRY(vec_push(&out->list, transfer));
        }
    }
    source->group++;
    return STATUS_OK;
}

/* Wave `number` of the share. Waves that only other ranks have come first, each with a slot behind the share's. */
static struct wave_part part_of_pipeline(const struct wave_part *share, int64_t wave_micro_batches, int32_t waves,
                                         int32_t number) {
    int32_t own = (int32_t)((share->slots + wave_micro_batches - 1) / wave_micro_batches), absent = waves - own;
    bool last = number + 1 == waves;
    struct wave_part wave = {.first_slot = share->slots + number,
                             .opens_step = share->opens_step && number == 0,
                             .closes_share = share->closes_share && last,
                             .closes_step = share->closes_step && last};
    if (number < absent) return wave;
    wave.first_slot = (number - absent) * wave_micro_batches;
    wave.slots = last ? share->slots - wave.first_slot : wave_micro_batches;
    return wave;
}

/* Activations that come while step `e` is computed stand before it: their space is none that it makes free, for which
 * their sender would wait. No other operation of this stage lies between. */
static enum status add_arrivals(struct execution_source *source, size_t e, const struct wave_part *share,
                                int64_t wave_micro_batches, int32_t waves, struct execution_list *out, size_t *next) {
    const struct pipeline *pipeline = &source->pipeline;
    int64_t end = pipeline_step_end(&pipeline->events.items[e]);
    for (*next = e + 1; *next < pipeline->events.count; ++*next) {
        const struct pipeline_event *event = &pipeline->events.items[*next];
        if (!pipeline_concerns(pipeline, event, source->stage)) continue;
        const struct pipeline_value *value = event->value >= 0 ? &pipeline->values.items[event->value] : NULL;
        bool arrives = value && value->to == source->stage && value->tensor->kind == TENSOR_ACTIVATION;
        if (!arrives || event->time >= end) return STATUS_OK;
        const struct wave_part wave = part_of_pipeline(share, wave_micro_batches, waves, event->wave);
        TRY(add_message(source, event, &wave, out));
    }
    return STATUS_OK;
}

enum status executions_of_pipeline(struct execution_source *source, const struct wave_part *share,
                                   int64_t wave_micro_batches, int32_t waves, struct execution_list *out) {
    size_t begin = out->list.count;
    begin_share(source, share->closes_share);
    TRY(pipeline_order_waves(&source->pipeline, waves));
    size_t next = 0; /* the first event of this stage that is not listed yet */
    for (size_t e = 0; e < source->pipeline.events.count; e++) {
        const struct pipeline_event *event = &source->pipeline.events.items[e];
        if (e < next || !pipeline_concerns(&source->pipeline, event, source->stage)) continue;
        if (event->value < 0) TRY(add_arrivals(source, e, share, wave_micro_batches, waves, out, &next));
        const struct wave_part wave = part_of_pipeline(share, wave_micro_batches, waves, event->wave);
        TRY(event->value < 0 ? add_steps(source, event, &wave, out) : add_message(source, event, &wave, out));
    }
    TRY(add_latest(source, share->closes_step, out));
    return sweep_wave(source->graph, share->slots + waves, begin, out);
}

/* ---- instances ---- */

enum status instances_create(const struct graph *graph, const struct activation_steps *steps, int64_t slots,
                             struct instances *out) {
    *out = (struct instances){.graph = graph, .slots = slots};
    TRY(mem_items(&out->current, (graph->tensors.count + 1) * (size_t)slots));
    TRY(mem_items(&out->home_tiers, graph->blocks.count + 1));
    instances_clear(out);
    for (size_t s = 0; s < steps->list.count; s++)
        if (steps->list.items[s].action == ACTIVATION_MOVE)
            out->home_tiers[steps->list.items[s].block] = steps->list.items[s].tier;
    return STATUS_OK;
}

void instances_free(struct instances *instances) {
    mem_free(instances->current);
    mem_free(instances->home_tiers);
    *instances = (struct instances){0};
}

void instances_clear(struct instances *instances) {
    memset(instances->current, -1, (size_t)instances->slots * instances->graph->tensors.count * sizeof(int32_t));
}

void instances_begin_group(struct instances *instances, const struct execution *executions, size_t count) {
    for (size_t i = 0; i < count && executions[i].group == executions[0].group; i++) {
        if (executions[i].kind == EXECUTION_RECEIVE && executions[i].value->tensor->kind == TENSOR_ACTIVATION)
            *instances_at(instances, executions[i].slot, executions[i].value->tensor) = -1;
        for (int k = 0; executions[i].node && k < executions[i].node->op->outputs; k++) {
            struct tensor *tensor = executions[i].node->out[k];
            if (tensor) *instances_at(instances, executions[i].slot, tensor_storage(tensor)) = -1;
        }
    }
}

int32_t *instances_of_output(const struct instances *instances, const struct execution *execution, int i) {
    const struct node *node = execution->node;
    const struct tensor *tensor = node->out[i] ? tensor_storage(node->out[i]) : NULL;
    if (!tensor || tensor->kind != TENSOR_ACTIVATION) return NULL;
    int32_t *current = instances_at(instances, execution->slot, tensor);
    if (i == 0 && execution->takes_over)
        *current = *instances_at(instances, execution->slot, node->in[node->op->in_place_input - 1]);
    return current;
}

enum tier instances_home_tier(const struct instances *instances, const struct execution *execution,
                              const struct tensor *tensor) {
    bool waits = execution->node->phase == PHASE_FORWARD && !execution->repeated && !tensor->kept;
    return waits ? instances->home_tiers[execution->node->block] : TIER_DEVICE;
}
