#include "compiler/execution_updates.h"

#include "plan/movement.h"

bool executions_update_early(const struct graph *graph, const struct partition *partition, int stages) {
    bool alone = graph_has_backward(graph) && stages == 1 && !partition_cuts(partition);
    for (size_t n = 0; n < graph->nodes.count && alone; n++) {
        const struct node *node = graph->nodes.items[n];
        bool updates = node->phase == PHASE_UPDATE && node->out[0] && node->out[0]->kind == TENSOR_PARAMETER;
        for (int i = 0; i < node->op->inputs && updates; i++)
            alone &= !node->in[i] || node->in[i]->kind != TENSOR_RESULT;
    }
    return alone;
}

/* Backward goes down, so the lowest block completes a chunk. */
enum status execution_updates_find(struct execution_source *source) {
    const struct graph *graph = source->graph;
    size_t chunks = source->chunks->chunks.count;
    source->early = executions_update_early(graph, &source->policy->partition, source->spans.stages);
    source->ready = mem_array(chunks + 1, sizeof *source->ready);
    if (!source->ready) return STATUS_FAILED;
    for (size_t c = 0; c < chunks; c++)
        source->ready[c] = -1;
    for (size_t i = 0; i < graph->tensors.count; i++) {
        int32_t block = source->completed_by[i];
        if (block < 0) continue;
        int32_t *ready = &source->ready[source->chunks->chunk_of[graph->tensors.items[i]->parameter->id]];
        if (*ready < 0 || block < *ready) *ready = block;
    }
    return STATUS_OK;
}

/* What waits for copies does not stand in the way of backward. */
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

enum status execution_updates_add_transfer(const struct execution_source *source, const struct pipeline_value *value,
                                           bool deferred, struct execution_list *out) {
    struct execution transfer = executions_transfer(source, value, 0);
    transfer.deferred = transfer.aside = deferred;
    return vec_push(&out->list, transfer);
}

bool execution_updates_share(const struct execution_source *source, const struct pipeline_value *value, int32_t chunk) {
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

enum status execution_updates_add_deferred(struct execution_source *source, int32_t block, struct execution_list *out) {
    const struct chunk_list *chunks = source->chunks;
    for (int32_t *next = &source->next_deferred; *next < (int32_t)chunks->chunks.count; ++*next) {
        if (movement_update_block(chunks->chunks.items[*next].block, source->policy) > block) break;
        if (execution_defers_update(source, *next)) TRY(add_deferred_update(source, *next, out));
    }
    return STATUS_OK;
}

enum status execution_updates_add_early(const struct execution_source *source, int32_t block,
                                        struct execution_list *out) {
    for (int32_t chunk = (int32_t)source->chunks->chunks.count; source->early && chunk-- > 0;)
        if (source->ready[chunk] == block) TRY(add_update(source, chunk, false, out));
    return STATUS_OK;
}

/* What makes the clip factor reads the norms of all stages. */
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
