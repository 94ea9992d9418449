#include "profile/operands.h"

const struct tensor *operand_tensor(const struct node *node, int operand) {
    return operand < OP_INPUTS_MAX ? node->in[operand] : node->out[operand - OP_INPUTS_MAX];
}

static const struct tensor *storage_of(const struct tensor *tensor) { return tensor->base ? tensor->base : tensor; }

static bool is_cold(const struct node *node, const struct tensor *tensor) {
    switch (tensor->kind) {
    case TENSOR_PARAMETER:
    case TENSOR_GRADIENT:
    case TENSOR_CACHE:
    case TENSOR_STATE: return true;
    case TENSOR_ACTIVATION: return tensor->producer && tensor->producer->phase != node->phase;
    default: return false;
    }
}

static bool read_later(const struct graph *graph, const struct node *node, const struct tensor *storage) {
    for (size_t i = (size_t)node->id + 1; i < graph->nodes.count; i++)
        for (int k = 0; k < OP_INPUTS_MAX; k++) {
            const struct tensor *in = graph->nodes.items[i]->in[k];
            if (in && storage_of(in) == storage) return true;
        }
    return false;
}

static int find_storage(struct operands *operands, const struct tensor *tensor) {
    for (int i = 0; i < operands->storage_count; i++)
        if (operands->storages[i].tensor == tensor) return i;
    operands->storages[operands->storage_count] =
        (struct operand_storage){.tensor = tensor, .cold = is_cold(operands->node, tensor)};
    return operands->storage_count++;
}

void operands_find(const struct graph *graph, const struct node *node, struct operands *out) {
    *out = (struct operands){.node = node};
    int in_place = node_in_place_input(node);
    if (in_place >= 0 && read_later(graph, node, node->in[in_place])) in_place = -1;
    for (int i = 0; i < OPERAND_COUNT; i++) {
        const struct tensor *tensor = operand_tensor(node, i);
        if (i == OP_INPUTS_MAX && in_place >= 0)
            out->storage[i] = out->storage[in_place];
        else
            out->storage[i] = tensor ? find_storage(out, storage_of(tensor)) : -1;
    }
}

bool *operands_kept(const struct graph *graph) {
    bool *kept = mem_array(graph->tensors.count, sizeof *kept);
    for (size_t i = 0; i < graph->nodes.count && kept; i++)
        for (int k = 0; k < OP_INPUTS_MAX; k++) {
            const struct node *node = graph->nodes.items[i];
            const struct tensor *storage = node->in[k] ? storage_of(node->in[k]) : NULL;
            if (storage && storage->producer && storage->producer->phase != node->phase) kept[storage->id] = true;
        }
    return kept;
}

static bool is_input(const struct operands *operands, int storage) {
    for (int i = 0; i < OP_INPUTS_MAX; i++)
        if (operands->storage[i] == storage) return true;
    return false;
}

uint32_t operands_out_of_caches(const struct operands *operands, const bool *kept) {
    uint32_t bits = 0;
    for (int i = 0; i < operands->storage_count; i++) {
        const struct operand_storage *storage = &operands->storages[i];
        bool waits = kept[storage->tensor->id] && !is_input(operands, i);
        if (storage->cold || waits) bits |= UINT32_C(1) << i;
    }
    return bits;
}

static void add_operand(const struct operands *operands, int operand, struct op_key *key) {
    if (operand == OP_INPUTS_MAX) op_key_add(key, " >");
    if (operands->storage[operand] < 0) {
        op_key_add(key, " -");
        return;
    }
    const struct operand_storage *storage = &operands->storages[operands->storage[operand]];
    const struct tensor *tensor = operand_tensor(operands->node, operand);
    op_key_add(key, " %d%c:%s", operands->storage[operand], storage->cold ? 'c' : 'w', dtype_name(tensor->shape.dtype));
    if (tensor->code.format != WEIGHT_PLAIN) op_key_add(key, "=%s", weight_format_name(tensor->code.format));
    if (tensor->code.block != 0) op_key_add(key, "/%" PRId64, tensor->code.block);
    for (int i = 0; i < tensor->shape.rank; i++)
        op_key_add(key, "%c%" PRId64, i ? ',' : '[', tensor->shape.dims[i]);
    if (tensor->shape.rank > 0) op_key_add(key, "]");
    if (tensor->base) op_key_add(key, "/%" PRId64, tensor_row_stride(tensor));
}

const char *operator_key(const struct operands *operands, struct scratch *memory) {
    struct op_key key = {.used = 0};
    op_key_begin(operands->node, &key);
    for (int i = 0; i < OPERAND_COUNT; i++)
        if (i < operands->node->op->inputs || i >= OP_INPUTS_MAX) add_operand(operands, i, &key);
    return scratch_format(memory, "%s", key.text);
}
