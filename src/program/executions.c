#include "program/executions.h"

#include <string.h>

#include "plan/movement.h"

/* Backward goes from the last block to the first, so the lowest block that adds to an accumulator adds last. */
static enum status find_finish_blocks(const struct graph *graph, int32_t *number) {
    int32_t *last = mem_array(graph->tensors.count + 1, sizeof *last);
    if (!last) return STATUS_FAILED;
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
    mem_free(last);
    return STATUS_OK;
}

/* `number` by node id: below 0 for those in no group. */
static enum status group_nodes(const struct graph *graph, const int32_t *number, int32_t groups,
                               struct node_groups *out) {
    out->nodes = mem_array(graph->nodes.count + 1, sizeof *out->nodes);
    out->first = mem_array((size_t)groups + 2, sizeof *out->first);
    if (!out->nodes || !out->first) return STATUS_FAILED;
    int32_t *next = out->first + 1; /* while filling, the group's next place; in the end, where the one after begins */
    for (size_t n = 0; n < graph->nodes.count; n++)
        if (number[n] >= 0) next[number[n] + 1]++;
    for (int32_t g = 1; g <= groups; g++)
        next[g] += next[g - 1];
    for (size_t n = 0; n < graph->nodes.count; n++)
        if (number[n] >= 0) out->nodes[next[number[n]]++] = graph->nodes.items[n];
    return STATUS_OK;
}

static enum status group_all(struct execution_source *source, int32_t *number) {
    const struct graph *graph = source->graph;
    for (size_t n = 0; n < graph->nodes.count; n++) {
        const struct node *node = graph->nodes.items[n];
        number[n] = node->phase <= PHASE_BACKWARD ? (int32_t)node->phase * source->blocks + node->block : -1;
    }
    TRY(group_nodes(graph, number, 2 * source->blocks, &source->passes));
    TRY(find_finish_blocks(graph, number));
    TRY(group_nodes(graph, number, source->blocks, &source->finish));
    for (size_t n = 0; n < graph->nodes.count; n++) {
        const struct node *node = graph->nodes.items[n];
        number[n] = node->phase == PHASE_UPDATE ? 1 + chunks_updated_by(source->chunks, node) : -1;
    }
    return group_nodes(graph, number, 1 + (int32_t)source->chunks->chunks.count, &source->updates);
}

enum status execution_source_create(const struct graph *graph, const struct policy *policy,
                                    const struct chunk_list *chunks, struct execution_source *out) {
    *out = (struct execution_source){
        .graph = graph, .policy = policy, .chunks = chunks, .blocks = graph_count_blocks(graph)};
    /* The plan's schedule is that of training; a graph without backward has only forwards. */
    TRY(activations_parse(graph_has_backward(graph) ? policy->schedule : "", out->blocks, &out->stages));
    out->forward_groups = mem_array((size_t)out->blocks + 1, sizeof *out->forward_groups);
    out->backward_groups = mem_array((size_t)out->blocks + 1, sizeof *out->backward_groups);
    if (!out->forward_groups || !out->backward_groups) return STATUS_FAILED;
    int32_t *number = mem_array(graph->nodes.count + 1, sizeof *number);
    enum status status = number ? group_all(out, number) : STATUS_FAILED;
    mem_free(number);
    return status;
}

static void free_groups(struct node_groups *groups) {
    mem_free(groups->nodes);
    mem_free(groups->first);
}

void execution_source_free(struct execution_source *source) {
    stage_list_free(&source->stages);
    free_groups(&source->passes);
    free_groups(&source->finish);
    free_groups(&source->updates);
    mem_free(source->forward_groups);
    mem_free(source->backward_groups);
}

static enum status add_execution(struct execution_source *source, const struct node *node, int64_t slot,
                                 struct execution_list *out) {
    return vec_push(&out->list, (struct execution){.node = node, .slot = slot, .group = source->group});
}

static enum status add_nodes(struct execution_source *source, enum phase phase, int32_t block, int64_t slot,
                             struct execution_list *out) {
    int32_t index = (int32_t)phase * source->blocks + block;
    for (int32_t n = source->passes.first[index]; n < source->passes.first[index + 1]; n++) {
        TRY(add_execution(source, source->passes.nodes[n], slot, out));
        out->list.items[out->list.count - 1].repeated = block < source->forwards;
    }
    return STATUS_OK;
}

/* A block for all grains: forward, backward, or for each grain forward and then backward. */
static enum status add_block(struct execution_source *source, int32_t block, bool forward, bool backward, int64_t slots,
                             struct execution_list *out) {
    for (int64_t slot = 0; slot < slots; slot++) {
        if (forward) TRY(add_nodes(source, PHASE_FORWARD, block, slot, out));
        if (backward) TRY(add_nodes(source, PHASE_BACKWARD, block, slot, out));
    }
    return STATUS_OK;
}

static enum status add_finish(struct execution_source *source, int32_t block, struct execution_list *out) {
    for (int32_t n = source->finish.first[block]; n < source->finish.first[block + 1]; n++)
        TRY(add_execution(source, source->finish.nodes[n], 0, out));
    return STATUS_OK;
}

static enum status add_update(struct execution_source *source, int32_t chunk, bool deferred,
                              struct execution_list *out) {
    for (int32_t n = source->updates.first[chunk + 1]; n < source->updates.first[chunk + 2]; n++) {
        TRY(add_execution(source, source->updates.nodes[n], 0, out));
        out->list.items[out->list.count - 1].deferred = deferred;
    }
    return STATUS_OK;
}

/* Deferred updates that stand before the forward of `block`, of the chunks from *next on. */
static enum status add_deferred(struct execution_source *source, int32_t block, int32_t *next,
                                struct execution_list *out) {
    const struct chunk_list *chunks = source->chunks;
    int64_t lookahead = source->policy->lookahead;
    for (; *next < (int32_t)chunks->chunks.count; ++*next) {
        if (movement_update_block(chunks->chunks.items[*next].block, lookahead) > block) break;
        if (policy_defers_update(source->policy, *next)) TRY(add_update(source, *next, true, out));
    }
    return STATUS_OK;
}

/* What later executions read, collected from the end of a pass to its beginning. */
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
    bool useful = node->op->updates != 0;
    for (int i = 0; i < node->op->outputs; i++)
        if (node->out[i])
            useful |= node->out[i]->kind != TENSOR_ACTIVATION || *needed(sweep, execution->slot, node->out[i]);
    if (!useful) return false;
    int input = node_in_place_input(node);
    execution->takes_over = input >= 0 && !*needed(sweep, execution->slot, node->in[input]);
    for (int i = 0; i < node->op->inputs; i++)
        if (node->in[i]) *needed(sweep, execution->slot, node->in[i]) = true;
    return true;
}

/* Before a group begins, its outputs do not exist. */
static void forget_outputs(const struct sweep *sweep, const struct execution *executions, size_t count) {
    for (size_t i = 0; i < count; i++)
        for (int k = 0; k < executions[i].node->op->outputs; k++)
            if (executions[i].node->out[k]) *needed(sweep, executions[i].slot, executions[i].node->out[k]) = false;
}

static void keep_useful(struct execution_list *executions, size_t begin, const bool *useful) {
    size_t kept = begin;
    for (size_t i = begin; i < executions->list.count; i++)
        if (useful[i - begin]) executions->list.items[kept++] = executions->list.items[i];
    executions->list.count = kept;
}

/* Removes executions without effect and decides which outputs are in place, from `begin` on. */
static enum status sweep_pass(const struct graph *graph, int64_t slots, size_t begin,
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

/* Whether stage s is a forward whose backward follows at once, so that each grain does both before the next grain. */
static bool is_pair(const struct stage_list *stages, size_t s) {
    const struct stage *items = stages->list.items;
    return items[s].action == STAGE_FORWARD && s + 1 < stages->list.count && items[s + 1].action == STAGE_BACKWARD &&
           items[s + 1].block == items[s].block;
}

static void note_groups(struct execution_source *source, int32_t block, bool forward, bool backward) {
    if (forward && source->forward_groups[block] < 0) source->forward_groups[block] = source->group;
    if (backward) source->backward_groups[block] = source->group;
}

enum status executions_of_pass(struct execution_source *source, int64_t slots, bool first, bool last,
                               struct execution_list *out) {
    size_t begin = out->list.count;
    int32_t updated = 0;
    source->forwards = 0;
    memset(source->forward_groups, -1, (size_t)source->blocks * sizeof *source->forward_groups);
    memset(source->backward_groups, -1, (size_t)source->blocks * sizeof *source->backward_groups);
    for (size_t s = 0; s < source->stages.list.count; s++) {
        bool pair = is_pair(&source->stages, s);
        const struct stage *stage = &source->stages.list.items[s];
        if (stage->action == STAGE_MOVE) continue;
        bool forward = stage->action == STAGE_FORWARD, backward = pair || !forward;
        if (first && forward) TRY(add_deferred(source, stage->block, &updated, out));
        TRY(add_block(source, stage->block, forward, backward, slots, out));
        if (last && backward) TRY(add_finish(source, stage->block, out));
        note_groups(source, stage->block, forward, backward);
        if (forward && stage->block == source->forwards) source->forwards++;
        source->group++;
        s += pair;
    }
    return sweep_pass(source->graph, slots, begin, out);
}

enum status executions_of_update(struct execution_source *source, struct execution_list *out) {
    for (int32_t chunk = -1; chunk < (int32_t)source->chunks->chunks.count; chunk++) {
        if (chunk >= 0 && policy_defers_update(source->policy, chunk)) continue;
        TRY(add_update(source, chunk, false, out));
        source->group++;
    }
    return STATUS_OK;
}
