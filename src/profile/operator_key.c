#include "profile/operator_key.h"

#include <inttypes.h>

static void add_operand(const struct operands *operands, int operand, struct op_key *key) {
    if (operand == OP_INPUTS_MAX) op_key_add(key, " >");
    if (operands->storage[operand] < 0) {
        op_key_add(key, " -");
        return;
    }
    const struct operand_storage *storage = &operands->storages[operands->storage[operand]];
    const struct tensor *tensor = operand_tensor(operands->node, operand);
    op_key_add(key, " %d%c:%s", operands->storage[operand], storage->cold ? 'c' : 'w', dtype_name(tensor->shape.dtype));
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
