#include "program/executions.h"

#include <string.h>

#include "plan/movement.h"

bool execution_adds_uses(const struct node *node) {
    return node->phase == PHASE_FINISH && !node->op->exchange && node->out[0] && node->out[0]->kind == TENSOR_GRADIENT;
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
static enum status complete_parts(const struct execution_source *source) {
    const struct graph *graph = source->graph;
    size_t columns = (size_t)source->blocks, parts = source->chunks->chunks.count * columns;
    int32_t *last = mem_array(parts + 1, sizeof *last);
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
    mem_free(last);
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

/* What is added to another accumulator completes nothing itself. */
static void drop_other_uses(const struct graph *graph, int32_t *completed_by) {
    for (size_t n = 0; n < graph->nodes.count; n++) {
        const struct node *node = graph->nodes.items[n];
        for (int i = 0; i < node->op->inputs && execution_adds_uses(node); i++)
            if (node->in[i] && node->in[i] != node->out[0]) completed_by[node->in[i]->id] = -1;
    }
    for (size_t i = 0; i < graph->tensors.count; i++)
        if (completed_by[i] == INT32_MAX) completed_by[i] = -1;
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

/* The nodes of PHASE_FINISH that add up uses, or the others. */
static enum status group_finish(struct execution_source *source, const int32_t *blocks, bool uses,
                                struct node_groups *out) {
    size_t nodes = source->graph->nodes.count;
    int32_t *number = mem_array(nodes + 1, sizeof *number);
    if (!number) return STATUS_FAILED;
    for (size_t n = 0; n < nodes; n++)
        number[n] = execution_adds_uses(source->graph->nodes.items[n]) == uses ? blocks[n] : -1;
    enum status status = group_nodes(source->graph, number, source->blocks, out);
    mem_free(number);
    return status;
}

static enum status group_all(struct execution_source *source, int32_t *number) {
    const struct graph *graph = source->graph;
    for (size_t n = 0; n < graph->nodes.count; n++) {
        const struct node *node = graph->nodes.items[n];
        number[n] = node->phase <= PHASE_BACKWARD ? (int32_t)node->phase * source->blocks + node->block : -1;
    }
    TRY(group_nodes(graph, number, 2 * source->blocks, &source->passes));
    find_finish_blocks(graph, source->completed_by, number);
    drop_other_uses(graph, source->completed_by);
    if (source->sums) TRY(complete_parts(source));
    if (source->sums) finish_behind_sums(source, number);
    TRY(group_finish(source, number, true, &source->tied));
    TRY(group_finish(source, number, false, &source->finish));
    for (size_t n = 0; n < graph->nodes.count; n++) {
        const struct node *node = graph->nodes.items[n];
        number[n] = node->phase == PHASE_UPDATE ? 1 + chunks_updated_by(source->chunks, node) : -1;
    }
    return group_nodes(graph, number, 1 + (int32_t)source->chunks->chunks.count, &source->updates);
}

enum status execution_source_create(const struct graph *graph, const struct policy *policy,
                                    const struct chunk_list *chunks, bool sums, struct execution_source *out) {
    *out = (struct execution_source){
        .graph = graph, .policy = policy, .chunks = chunks, .blocks = graph_count_blocks(graph), .sums = sums};
    out->cuts = partition_cuts(&policy->partition);
    out->cuts_gradients = partition_width(policy->partition.gradients) > 1;
    /* The plan's schedule is that of training; a graph without backward has only forwards. */
    TRY(activations_parse(graph_has_backward(graph) ? policy->schedule : "", out->blocks, &out->stages));
    out->forward_groups = mem_array((size_t)out->blocks + 1, sizeof *out->forward_groups);
    out->backward_groups = mem_array((size_t)out->blocks + 1, sizeof *out->backward_groups);
    out->summed_in = mem_array((size_t)out->blocks + 1, sizeof *out->summed_in);
    out->completed_by = mem_array(graph->tensors.count + 1, sizeof *out->completed_by);
    if (!out->forward_groups || !out->backward_groups || !out->summed_in || !out->completed_by) return STATUS_FAILED;
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
    free_groups(&source->tied);
    free_groups(&source->finish);
    free_groups(&source->updates);
    mem_free(source->forward_groups);
    mem_free(source->backward_groups);
    mem_free(source->summed_in);
    mem_free(source->completed_by);
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

/* A block for all grains: forward, backward, or for each grain forward and then backward. What other ranks compute is
 * that of one grain. */
static enum status add_block(struct execution_source *source, int32_t block, bool forward, bool backward, int64_t slots,
                             struct execution_list *out) {
    size_t begin = out->list.count;
    for (int64_t slot = 0; slot < (slots > 0 ? slots : 1); slot++) {
        if (forward) TRY(add_nodes(source, PHASE_FORWARD, block, slot, out));
        if (backward) TRY(add_nodes(source, PHASE_BACKWARD, block, slot, out));
    }
    for (size_t i = begin; i < out->list.count; i++)
        out->list.items[i].elsewhere = slots == 0;
    return STATUS_OK;
}

static enum status add_group(struct execution_source *source, const struct node_groups *groups, int32_t block,
                             struct execution_list *out) {
    for (int32_t n = groups->first[block]; n < groups->first[block + 1]; n++)
        TRY(add_execution(source, groups->nodes[n], 0, out));
    return STATUS_OK;
}

/* A block's backward in the last pass of a share: what it completes is summed. */
static enum status add_sums(struct execution_source *source, int32_t block, bool computes, struct execution_list *out) {
    const struct execution sums = {.kind = EXECUTION_SUMS, .block = block, .group = source->group};
    if (computes) TRY(add_group(source, &source->tied, block, out));
    source->summed_in[block] = source->group;
    return source->sums ? vec_push(&out->list, sums) : STATUS_OK;
}

/* What stands `delay` groups after the sums of each block, for those whose turn has come. */
static enum status add_late(struct execution_source *source, bool closes_step, struct execution_list *out) {
    for (; source->next_late >= 0; source->next_late--) {
        int32_t block = source->next_late;
        const struct execution totals = {.kind = EXECUTION_TOTALS, .block = block, .group = source->group};
        const struct execution norms = {.kind = EXECUTION_NORMS, .block = block, .group = source->group};
        if (source->summed_in[block] < 0 || source->summed_in[block] + source->delay > source->group) break;
        if (source->sums) TRY(vec_push(&out->list, totals));
        if (closes_step) TRY(add_group(source, &source->finish, block, out));
        if (closes_step && source->cuts_gradients) TRY(vec_push(&out->list, norms));
    }
    return STATUS_OK;
}

/* The late ones after the last block's backward have groups without other work. */
static enum status add_latest(struct execution_source *source, bool closes_step, struct execution_list *out) {
    for (; source->next_late >= 0; source->group++)
        TRY(add_late(source, closes_step, out));
    return STATUS_OK;
}

static enum status add_update(struct execution_source *source, int32_t chunk, bool deferred,
                              struct execution_list *out) {
    for (int32_t n = source->updates.first[chunk + 1]; n < source->updates.first[chunk + 2]; n++) {
        TRY(add_execution(source, source->updates.nodes[n], 0, out));
        out->list.items[out->list.count - 1].deferred = deferred;
    }
    const struct execution updated = {
        .kind = EXECUTION_UPDATED, .chunk = chunk, .group = source->group, .deferred = deferred};
    bool exchanged = source->cuts && source->updates.first[chunk + 1] < source->updates.first[chunk + 2];
    return exchanged && chunk >= 0 ? vec_push(&out->list, updated) : STATUS_OK;
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
    if (!node) return true;
    bool useful = node->op->updates != 0;
    for (int i = 0; i < node->op->outputs; i++)
        if (node->out[i])
            useful |= node->out[i]->kind != TENSOR_ACTIVATION || *needed(sweep, execution->slot, node->out[i]);
    if (!useful) return false;
    BUG_IF(node->op->exchange == OP_EXCHANGE_REDUCE_SCATTER && *needed(sweep, execution->slot, node->in[0]),
           "%s: %s is read again", node->name, node->in[0]->name);
    int input = node_in_place_input(node);
    execution->takes_over = input >= 0 && !*needed(sweep, execution->slot, node->in[input]);
    for (int i = 0; i < node->op->inputs; i++)
        if (node->in[i]) *needed(sweep, execution->slot, node->in[i]) = true;
    return true;
}

/* Before a group begins, its outputs do not exist. */
static void forget_outputs(const struct sweep *sweep, const struct execution *executions, size_t count) {
    for (size_t i = 0; i < count; i++)
        for (int k = 0; executions[i].node && k < executions[i].node->op->outputs; k++)
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

static enum status add_stages(struct execution_source *source, const struct pass_part *pass,
                              struct execution_list *out) {
    int32_t updated = 0;
    for (size_t s = 0; s < source->stages.list.count; s++) {
        bool pair = is_pair(&source->stages, s);
        const struct stage *stage = &source->stages.list.items[s];
        if (stage->action == STAGE_MOVE) continue;
        bool forward = stage->action == STAGE_FORWARD, backward = pair || !forward;
        if (pass->opens_step && forward) TRY(add_deferred(source, stage->block, &updated, out));
        TRY(add_block(source, stage->block, forward, backward, pass->slots, out));
        if (pass->closes_share && backward) TRY(add_sums(source, stage->block, pass->slots > 0, out));
        if (pass->closes_share) TRY(add_late(source, pass->closes_step, out));
        note_groups(source, stage->block, forward, backward);
        if (forward && stage->block == source->forwards) source->forwards++;
        source->group++;
        s += pair;
    }
    return STATUS_OK;
}

/* Without grains, where nothing is cut: deferred updates, and the sums in the order in which ranks with grains have
 * them. What is exchanged of shards needs the very groups of these ranks. */
static enum status add_empty(struct execution_source *source, const struct pass_part *pass,
                             struct execution_list *out) {
    int32_t updated = 0;
    for (int32_t block = 0; pass->opens_step && block < source->blocks; block++, source->group++)
        TRY(add_deferred(source, block, &updated, out));
    for (int32_t block = source->blocks; block-- > 0; source->group++) {
        TRY(add_sums(source, block, false, out));
        TRY(add_late(source, pass->closes_step, out));
    }
    return STATUS_OK;
}

enum status executions_of_pass(struct execution_source *source, const struct pass_part *pass,
                               struct execution_list *out) {
    size_t begin = out->list.count, bytes = (size_t)source->blocks * sizeof(int32_t);
    source->forwards = 0;
    source->next_late = pass->closes_share && graph_has_backward(source->graph) ? source->blocks - 1 : -1;
    memset(source->forward_groups, -1, bytes);
    memset(source->backward_groups, -1, bytes);
    memset(source->summed_in, -1, bytes);
    bool stages = pass->slots > 0 || source->cuts;
    TRY(stages ? add_stages(source, pass, out) : add_empty(source, pass, out));
    TRY(add_latest(source, pass->closes_step, out));
    return sweep_pass(source->graph, pass->slots > 0 ? pass->slots : 1, begin, out);
}

enum status executions_of_update(struct execution_source *source, struct execution_list *out) {
    for (int32_t chunk = -1; chunk < (int32_t)source->chunks->chunks.count; chunk++) {
        if (chunk >= 0 && policy_defers_update(source->policy, chunk)) continue;
        TRY(add_update(source, chunk, false, out));
        source->group++;
    }
    return STATUS_OK;
}
