#include "profile/operator_key.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "ops/ops.h"

enum { KEY_BYTES = 4096, ATTRIBUTES_BYTES = 512 };

struct key_text {
    char text[KEY_BYTES];
    size_t used;
};

static void add(struct key_text *key, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(struct key_text *key, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int bytes = vsnprintf(key->text + key->used, KEY_BYTES - key->used, format, arguments);
    va_end(arguments);
    BUG_IF(bytes < 0 || (size_t)bytes >= KEY_BYTES - key->used, "an operator's key of more than %d bytes", KEY_BYTES);
    key->used += (size_t)bytes;
}

static void add_linear(const struct node *node, struct key_text *key) {
    add(key, " kn=%d", NODE_ATTRIBUTES(node, linear_attributes)->weight_is_kn);
}
static void add_linear_dw(const struct node *node, struct key_text *key) {
    add(key, " kn=%d", NODE_ATTRIBUTES(node, linear_dw_attributes)->weight_is_kn);
}
static void add_attention_shape(const struct attention_attributes *attributes, struct key_text *key) {
    add(key, " heads=%" PRId64 "/%" PRId64 "x%" PRId64 " window=%" PRId64, attributes->heads, attributes->kv_heads,
        attributes->head_dim, attributes->window);
}
static void add_attention(const struct node *node, struct key_text *key) {
    add_attention_shape(NODE_ATTRIBUTES(node, attention_attributes), key);
}
static void add_attention_cache(const struct node *node, struct key_text *key) {
    add_attention_shape(&NODE_ATTRIBUTES(node, attention_cache_attributes)->attention, key);
}
static void add_rope(const struct node *node, struct key_text *key) {
    const struct rope_attributes *attributes = NODE_ATTRIBUTES(node, rope_attributes);
    add(key, " heads=%" PRId64 "x%" PRId64, attributes->heads, attributes->head_dim);
}
static void add_rope_table(const struct node *node, struct key_text *key) {
    add(key, " scaling=%d", (int)NODE_ATTRIBUTES(node, rope_table_attributes)->scaling);
}
static void add_function(const struct node *node, struct key_text *key) {
    add(key, " function=%d", (int)NODE_ATTRIBUTES(node, activation_attributes)->function);
}
/* Attributes that change values and no time, or that the operands tell too. */
static void add_nothing(const struct node *node, struct key_text *key) { (void)node, (void)key; }

static const struct {
    const struct op *op;
    void (*add)(const struct node *node, struct key_text *key);
} printers[] = {
    {&op_linear, add_linear},
    {&op_linear_dx, add_linear},
    {&op_linear_dw, add_linear_dw},
    {&op_attention, add_attention},
    {&op_attention_grad, add_attention},
    {&op_attention_cache, add_attention_cache},
    {&op_rope, add_rope},
    {&op_rope_table, add_rope_table},
    {&op_activation, add_function},
    {&op_activation_grad, add_function},
    {&op_gated_activation, add_function},
    {&op_gated_activation_grad, add_function},
    {&op_embedding, add_nothing},
    {&op_embedding_grad, add_nothing},
    {&op_scale, add_nothing},
    {&op_rms_norm, add_nothing},
    {&op_rms_norm_grad, add_nothing},
    {&op_layer_norm, add_nothing},
    {&op_layer_norm_grad, add_nothing},
    {&op_head_loss_grad, add_nothing},
    {&op_clip_factor, add_nothing},
    {&op_adamw, add_nothing},
};

/* An operator that is not in the list differs by every byte of its attributes. */
static void add_attributes(const struct node *node, struct key_text *key) {
    for (size_t i = 0; i < sizeof printers / sizeof *printers; i++)
        if (printers[i].op == node->op) {
            printers[i].add(node, key);
            return;
        }
    BUG_IF(node->op->attribute_bytes > ATTRIBUTES_BYTES, "%s: %zu bytes of attributes", node->op->name,
           node->op->attribute_bytes);
    if (node->op->attribute_bytes > 0) add(key, " ");
    for (size_t i = 0; i < node->op->attribute_bytes; i++)
        add(key, "%02x", ((const unsigned char *)node->attributes)[i]);
}

static void add_operand(const struct operands *operands, int operand, struct key_text *key) {
    if (operand == OP_INPUTS_MAX) add(key, " >");
    if (operands->storage[operand] < 0) {
        add(key, " -");
        return;
    }
    const struct operand_storage *storage = &operands->storages[operands->storage[operand]];
    const struct tensor *tensor = operand_tensor(operands->node, operand);
    add(key, " %d%c:%s", operands->storage[operand], storage->cold ? 'c' : 'w', dtype_name(tensor->shape.dtype));
    for (int i = 0; i < tensor->shape.rank; i++)
        add(key, "%c%" PRId64, i ? ',' : '[', tensor->shape.dims[i]);
    if (tensor->shape.rank > 0) add(key, "]");
    if (tensor->base) add(key, "/%" PRId64, tensor_row_stride(tensor));
}

const char *operator_key(const struct operands *operands, struct scratch *memory) {
    struct key_text key = {.used = 0};
    add(&key, "%s", operands->node->op->name);
    add_attributes(operands->node, &key);
    for (int i = 0; i < OPERAND_COUNT; i++)
        if (i < operands->node->op->inputs || i >= OP_INPUTS_MAX) add_operand(operands, i, &key);
    return scratch_format(memory, "%s", key.text);
}
