#include "plan/layout/block_costs.h"

#include "base/mem.h"

/* A parameter that several stages use is on each of them. */
static enum status add_states(const struct graph *graph, const struct partition *partition, struct block_costs *costs) {
    bool *counted = mem_array(graph->tensors.count * (size_t)costs->blocks + 1, sizeof *counted);
    if (!counted) return STATUS_FAILED;
    for (size_t t = 0; t < graph->tensors.count; t++) {
        const struct tensor *tensor = graph->tensors.items[t];
        bool gradient = tensor->kind == TENSOR_GRADIENT, state = tensor->kind == TENSOR_STATE;
        int width = partition_width(gradient ? partition->gradients : partition->optimizer);
        int block = gradient ? tensor->block : state ? tensor->parameter->block : -1;
        if (block >= 0 && block < costs->blocks) costs->held_bytes[block] += shape_bytes(&tensor->shape) / width;
    }
    for (size_t n = 0; n < graph->nodes.count; n++) {
        const struct node *node = graph->nodes.items[n];
        for (int i = 0; i < node->op->inputs && node->phase <= PHASE_BACKWARD; i++) {
            const struct tensor *tensor = node->in[i] ? tensor_storage(node->in[i]) : NULL;
            if (!tensor || tensor->kind != TENSOR_PARAMETER) continue;
            bool *known = &counted[(size_t)tensor->id * (size_t)costs->blocks + (size_t)node->block];
            if (!*known)
                costs->held_bytes[node->block] += shape_bytes(&tensor->shape) / partition_width(partition->parameters);
            *known = true;
        }
    }
    mem_free(counted);
    return STATUS_OK;
}

/* What forward makes and backward reads. */
static enum status add_activations(const struct graph *graph, int64_t micro_batches, struct block_costs *costs) {
    bool *counted = mem_array(graph->tensors.count + 1, sizeof *counted);
    if (!counted) return STATUS_FAILED;
    for (size_t n = 0; n < graph->nodes.count; n++) {
        const struct node *node = graph->nodes.items[n];
        for (int i = 0; i < node->op->inputs && node->phase == PHASE_BACKWARD; i++) {
            const struct tensor *tensor = node->in[i] ? tensor_storage(node->in[i]) : NULL;
            const struct node *maker = tensor && tensor->kind == TENSOR_ACTIVATION ? tensor->producer : NULL;
            if (!maker || maker->phase != PHASE_FORWARD || counted[tensor->id]) continue;
            costs->wave_bytes[maker->block] += micro_batches * shape_bytes(&tensor->shape);
            counted[tensor->id] = true;
        }
    }
    mem_free(counted);
    return STATUS_OK;
}

static void add_flops(const struct graph *graph, struct block_costs *costs) {
    for (int32_t b = 0; b < costs->blocks; b++)
        costs->seconds[b] = 1;
    for (size_t n = 0; n < graph->nodes.count; n++) {
        const struct node *node = graph->nodes.items[n];
        struct op_cost cost;
        if (node->phase > PHASE_BACKWARD) continue;
        op_cost(node, &cost);
        costs->seconds[node->block] += cost.flops;
    }
}

enum status block_costs_create(const struct graph *graph, const struct policy *policy, struct block_costs *out) {
    int32_t blocks = graph_count_blocks(graph);
    size_t count = (size_t)blocks + 1;
    *out = (struct block_costs){.blocks = blocks,
                                .seconds = mem_array(count, sizeof *out->seconds),
                                .held_bytes = mem_array(count, sizeof *out->held_bytes),
                                .wave_bytes = mem_array(count, sizeof *out->wave_bytes)};
    if (!out->seconds || !out->held_bytes || !out->wave_bytes) return STATUS_FAILED;
    add_flops(graph, out);
    TRY(add_states(graph, &policy->partition, out));
    return add_activations(graph, policy->micro_batches_per_wave, out);
}

void block_costs_free(struct block_costs *costs) {
    mem_free(costs->seconds);
    mem_free(costs->held_bytes);
    mem_free(costs->wave_bytes);
    *costs = (struct block_costs){0};
}
