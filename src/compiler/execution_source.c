/* Prepares the inputs for listing executions: nodes by block and phase, the blocks that complete gradients, and values
 * that cross pipeline stages. */
#include "compiler/executions.h"

#include "plan/plan.h"

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

bool execution_adds_uses(const struct node *node) {
    return node->phase == PHASE_FINISH && !node->op->collective && node->out[0] &&
           node->out[0]->kind == TENSOR_GRADIENT;
}

/* Backward goes from the last block to the first, so the lowest block that adds to an accumulator adds last. `last`: by
 * tensor id; `number`: by node id, of PHASE_FINISH. */
static void find_finish_blocks(const struct graph *graph, int32_t *last, int32_t *number) {
    for (size_t i = 0; i < graph->tensors.count; i++)
        last[i] = INT32_MAX;
    for (size_t n = 0; n < graph->nodes.count; n++) {
        const struct node *node = graph->nodes.items[n];
        int32_t block = node->phase == PHASE_BACKWARD ? node->block : INT32_MAX;
        for (int i = 0; i < node->op->inputs && node->phase == PHASE_FINISH; i++)
            if (node->in[i] && node->in[i]->kind == TENSOR_GRADIENT && last[node->in[i]->id] < block)
                block = last[node->in[i]->id];
        number[n] = node->phase == PHASE_FINISH && block < INT32_MAX ? block : -1;
        for (int i = 0; i < node->op->outputs; i++)
            if (node->out[i] && node->out[i]->kind == TENSOR_GRADIENT && block < last[node->out[i]->id])
                last[node->out[i]->id] = block;
    }
}

/* Gradients of a chunk's part are summed over lanes and ranks together, when the last of them is complete. */
static enum status complete_parts(struct execution_source *source) {
    const struct graph *graph = source->graph;
    size_t columns = (size_t)source->blocks, parts = source->chunks->chunks.count * columns;
    int32_t *last = scratch_alloc(&source->memory, parts + 1, sizeof *last);
    if (!last) return STATUS_FAILED;
    for (size_t p = 0; p < parts; p++)
        last[p] = INT32_MAX;
    for (int store = 0; store < 2; store++)
        for (size_t i = 0; i < graph->tensors.count; i++) {
            int32_t *block = &source->completed_by[i];
            if (*block < 0) continue;
            struct chunk_part part = chunks_part_of(source->chunks, graph->tensors.items[i]);
            int32_t *of_part = &last[(size_t)part.chunk * columns + (size_t)part.block];
            if (store)
                *block = *of_part;
            else if (*block < *of_part)
                *of_part = *block;
        }
    return STATUS_OK;
}

/* A squared norm and the like stand where their gradients are complete. `number`: by node id. */
static void finish_behind_sums(const struct execution_source *source, int32_t *number) {
    for (size_t n = 0; n < source->graph->nodes.count; n++) {
        const struct node *node = source->graph->nodes.items[n];
        for (int i = 0; i < node->op->inputs && number[n] >= 0 && !execution_adds_uses(node); i++)
            if (node->in[i] && node->in[i]->kind == TENSOR_GRADIENT &&
                source->completed_by[node->in[i]->id] < number[n])
                number[n] = source->completed_by[node->in[i]->id];
    }
}

/* A gradient that is added to another accumulator completes nothing itself. */
static void drop_other_uses(const struct graph *graph, int32_t *completed_by) {
    for (size_t n = 0; n < graph->nodes.count; n++) {
        const struct node *node = graph->nodes.items[n];
        for (int i = 0; i < node->op->inputs && execution_adds_uses(node); i++)
            if (node->in[i] && node->in[i] != node->out[0]) completed_by[node->in[i]->id] = -1;
    }
    for (size_t i = 0; i < graph->tensors.count; i++)
        if (completed_by[i] == INT32_MAX) completed_by[i] = -1;
}

/* Nor does a gradient that another stage adds up. */
static void drop_other_parameters(const struct execution_source *source) {
    for (size_t i = 0; i < source->graph->tensors.count; i++) {
        const struct tensor *tensor = source->graph->tensors.items[i];
        if (tensor->kind == TENSOR_GRADIENT && stage_of_tensor(&source->spans, tensor->parameter) != source->stage)
            source->completed_by[i] = -1;
    }
}

/* `number` by node id: below 0 for those in no group. */
static enum status group_nodes(struct execution_source *source, const int32_t *number, int32_t groups,
                               struct node_groups *out) {
    const struct graph *graph = source->graph;
    TRY(scratch_items(&source->memory, &out->nodes, graph->nodes.count + 1));
    TRY(scratch_items(&source->memory, &out->first, (size_t)groups + 2));
    int32_t *next = out->first + 1; /* while filling, the group's next place; in the end, where the one after begins */
    for (size_t n = 0; n < graph->nodes.count; n++)
        if (number[n] >= 0) next[number[n] + 1]++;
    for (int32_t g = 1; g <= groups; g++)
        next[g] += next[g - 1];
    for (size_t n = 0; n < graph->nodes.count; n++)
        if (number[n] >= 0) out->nodes[next[number[n]]++] = graph->nodes.items[n];
    return STATUS_OK;
}

/* The nodes of PHASE_FINISH that add up uses, or the others. */
static enum status group_finish(struct execution_source *source, const int32_t *blocks, bool uses,
                                struct node_groups *out) {
    size_t nodes = source->graph->nodes.count;
    int32_t *number = scratch_alloc(&source->memory, nodes + 1, sizeof *number);
    if (!number) return STATUS_FAILED;
    for (size_t n = 0; n < nodes; n++)
        number[n] = execution_adds_uses(source->graph->nodes.items[n]) == uses ? blocks[n] : -1;
    return group_nodes(source, number, source->blocks, out);
}

/* Whether this rank executes it. */
static bool is_own(const struct execution_source *source, const struct node *node) {
    int stage = stage_of_node(&source->spans, node);
    return stage == source->stage || stage == STAGE_SPANS_ALL;
}

static void drop_other_stages(const struct execution_source *source, int32_t *number) {
    for (size_t n = 0; n < source->graph->nodes.count; n++)
        if (!is_own(source, source->graph->nodes.items[n])) number[n] = -1;
}

/* Finds source->early and source->ready; completed_by is known. FAILED without memory. Backward goes down, so the
 * lowest block completes a chunk. */
static enum status execution_updates_find(struct execution_source *source) {
    const struct graph *graph = source->graph;
    size_t chunks = source->chunks->chunks.count;
    source->early = executions_update_early(graph, &source->policy->partition, source->spans.stages);
    TRY(scratch_items(&source->memory, &source->ready, chunks + 1));
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

static enum status group_all(struct execution_source *source, int32_t *number) {
    const struct graph *graph = source->graph;
    for (size_t n = 0; n < graph->nodes.count; n++) {
        const struct node *node = graph->nodes.items[n];
        number[n] = node->phase <= PHASE_BACKWARD ? (int32_t)node->phase * source->blocks + node->block : -1;
    }
    TRY(group_nodes(source, number, 2 * source->blocks, &source->waves));
    find_finish_blocks(graph, source->completed_by, number);
    drop_other_uses(graph, source->completed_by);
    drop_other_parameters(source);
    if (source->sums) TRY(complete_parts(source));
    if (source->sums) finish_behind_sums(source, number);
    TRY(execution_updates_find(source));
    drop_other_stages(source, number);
    TRY(group_finish(source, number, true, &source->tied));
    TRY(group_finish(source, number, false, &source->finish));
    for (size_t n = 0; n < graph->nodes.count; n++) {
        const struct node *node = graph->nodes.items[n];
        number[n] = node->phase == PHASE_UPDATE ? 1 + chunks_updated_by(source->chunks, node) : -1;
    }
    drop_other_stages(source, number);
    return group_nodes(source, number, 1 + (int32_t)source->chunks->chunks.count, &source->updates);
}

/* ---- crossings ---- */

/* The first of a stage's blocks from `block` on. */
static int32_t own_block(const struct execution_source *source, int32_t block, int stage) {
    while (block + 1 < source->blocks && stage_of_block(&source->spans, block) != stage)
        block++;
    return block;
}

/* Parameters that stages share go with the span before whose forward they are updated. */
static void place_parameters(struct execution_source *source) {
    for (size_t v = 0; v < source->pipeline.values.count; v++) {
        struct pipeline_value *value = &source->pipeline.values.items[v];
        if (value->tensor->kind != TENSOR_PARAMETER) continue;
        const struct chunk *chunk = &source->chunks->chunks.items[source->chunks->chunk_of[value->tensor->id]];
        int32_t block = (int32_t)movement_update_block(chunk->block, source->policy);
        int stage = (int)(value->span % source->spans.stages);
        value->span = stage_spans_of_block(&source->spans, own_block(source, block, stage));
    }
}

/* Values cross stages if one rank with all blocks would read them across the stages' border. */
static enum status find_crossings(struct execution_source *source) {
    AUTO(execution_source_free) struct execution_source whole = {0};
    AUTO_VEC struct execution_list executions = {.list = {0}};
    AUTO_VEC VEC(const struct node *) nodes = {0};
    const struct wave_part wave = {.slots = 1, .closes_share = true};
    struct policy policy = *source->policy;
    policy.spans[0] = 0;
    TRY(execution_source_create(source->graph, &policy, source->chunks, false, &whole));
    TRY(executions_of_wave(&whole, &wave, &executions));
    for (size_t i = 0; i < executions.list.count; i++) {
        const struct node *node = executions.list.items[i].node;
        if (node && node->phase <= PHASE_BACKWARD) TRY(vec_push(&nodes, node));
    }
    TRY(pipeline_create(&source->spans, nodes.items, nodes.count, &source->pipeline));
    place_parameters(source);
    return STATUS_OK;
}

enum status execution_source_create_stage(const struct graph *graph, const struct policy *policy,
                                          const struct chunk_list *chunks, bool sums, int stages, int stage,
                                          struct execution_source *out) {
    *out = (struct execution_source){.graph = graph,
                                     .policy = policy,
                                     .chunks = chunks,
                                     .blocks = graph_count_blocks(graph),
                                     .sums = sums,
                                     .stage = stage};
    TRY(stage_spans_create(graph, policy->spans, stages, &out->spans));
    out->cuts = partition_cuts(&policy->partition);
    out->cuts_gradients = partition_width(policy->partition.gradients) > 1;
    /* The plan's schedule is that of training; a graph without backward has only forwards. */
    TRY(activations_parse(graph_has_backward(graph) ? policy->schedule : "", out->blocks, &out->activations));
    size_t blocks = (size_t)out->blocks;
    int32_t *number;
    TRY(scratch_items(&out->memory, &out->forward_groups, blocks + 1));
    TRY(scratch_items(&out->memory, &out->backward_groups, blocks + 1));
    TRY(scratch_items(&out->memory, &out->summed_in, blocks + 1));
    TRY(scratch_items(&out->memory, &out->completed_by, graph->tensors.count + 1));
    TRY(scratch_items(&out->memory, &out->opening, blocks + 1));
    TRY(scratch_items(&out->memory, &number, graph->nodes.count + 1));
    for (size_t s = out->activations.list.count; s-- > 0;)
        if (out->activations.list.items[s].action == ACTIVATION_FORWARD)
            out->opening[out->activations.list.items[s].block] = (int32_t)s;
    TRY(group_all(out, number));
    return stages > 1 ? find_crossings(out) : STATUS_OK;
}

enum status execution_source_create(const struct graph *graph, const struct policy *policy,
                                    const struct chunk_list *chunks, bool sums, struct execution_source *out) {
    return execution_source_create_stage(graph, policy, chunks, sums, 1, 0, out);
}

void execution_source_free(struct execution_source *source) {
    activation_steps_free(&source->activations);
    scratch_free(&source->memory);
    stage_spans_free(&source->spans);
    pipeline_free(&source->pipeline);
}
