/* A second graph like a first one. */
#include <string.h>

#include "ir/graph.h"

static struct tensor *tensor_like(const struct graph *copy, const struct tensor *tensor) {
    return tensor ? copy->tensors.items[tensor->id] : NULL;
}

static enum status copy_tensors(const struct graph *graph, struct graph *copy) {
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *from = graph->tensors.items[i];
        struct tensor *tensor = graph_tensor(copy, from->kind, from->name, from->shape);
        if (!tensor) return graph_status(copy);
        *tensor = *from;
        tensor->name = scratch_format(&copy->memory, "%s", from->name);
        if (from->stack.name) tensor->stack.name = scratch_format(&copy->memory, "%s", from->stack.name);
        if (!tensor->name || (from->stack.name && !tensor->stack.name)) return STATUS_FAILED;
        tensor->base = tensor_like(copy, from->base);
        tensor->parameter = tensor_like(copy, from->parameter);
        tensor->producer = NULL;
    }
    return STATUS_OK;
}

static enum status copy_node(const struct node *from, struct graph *copy) {
    size_t bytes = from->op->attribute_bytes;
    struct node *node = scratch_alloc(&copy->memory, 1, sizeof *node);
    void *attributes = scratch_alloc(&copy->memory, 1, bytes);
    const char *name = scratch_format(&copy->memory, "%s", from->name);
    if (!node || !attributes || !name) return STATUS_FAILED;
    *node = *from;
    node->name = name, node->attributes = attributes;
    if (bytes > 0) memcpy(attributes, from->attributes, bytes);
    for (int i = 0; i < OP_INPUTS_MAX; i++)
        node->in[i] = tensor_like(copy, from->in[i]);
    for (int i = 0; i < OP_OUTPUTS_MAX; i++)
        node->out[i] = tensor_like(copy, from->out[i]);
    return vec_push(&copy->nodes, node);
}

static enum status copy_into(const struct graph *graph, struct graph *copy) {
    for (size_t i = 0; i < graph->blocks.count; i++)
        graph_begin_block(copy, graph->blocks.items[i]);
    TRY(copy_tensors(graph, copy));
    for (size_t i = 0; i < graph->nodes.count; i++) {
        BUG_IF(graph->nodes.items[i]->phase != PHASE_FORWARD, "a copy of a graph with gradients");
        TRY(copy_node(graph->nodes.items[i], copy));
    }
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct node *producer = graph->tensors.items[i]->producer;
        if (producer) copy->tensors.items[i]->producer = copy->nodes.items[producer->id];
    }
    return graph_status(copy);
}

struct graph *graph_copy(const struct graph *graph) {
    struct graph *copy = graph_create(graph->dtype, graph->micro_batch_sequences, graph->sequence_length);
    if (!copy) return NULL;
    copy->cache_texts = graph->cache_texts, copy->cache_positions = graph->cache_positions;
    if (copy_into(graph, copy) == STATUS_OK) return copy;
    graph_free(copy);
    return NULL;
}
