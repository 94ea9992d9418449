#include "support/token_shift.h"

#include "ir/differentiate.h"
#include "ir/ops/check.h"
#include "ir/ops/ops.h"

static enum status infer_token_shift(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    out[0] = node->in[0]->shape;
    return check_activation(node, 0);
}

static void differentiate_token_shift(struct gradients *gradients, const struct node *node) {
    struct tensor *x = node->in[0];
    if (!gradient_wanted(gradients, x)) return;
    struct tensor *in[OP_INPUTS_MAX] = {gradient_of(gradients, node->out[0])};
    struct tensor *into[OP_OUTPUTS_MAX] = {gradient_target(gradients, x)};
    gradient_add_node(gradients, &op_token_shift_grad, node, in, node->attributes, into);
    gradient_deliver_sum(gradients, node, x, into[0]);
}

static struct shape cache_shape(const struct shape *x, const struct token_shift_cache_attributes *attributes) {
    struct shape shape = *x;
    shape.dims[0] = attributes->texts;
    shape.dims[1] = attributes->positions;
    return shape;
}

static struct node *decode_token_shift(struct graph *graph, const char *name, struct tensor *const *in,
                                       const void *attributes) {
    struct token_shift_cache_attributes own = {*(const struct token_shift_attributes *)attributes, graph->cache_texts,
                                               graph->cache_positions};
    struct shape shape = cache_shape(&in[0]->shape, &own);
    struct tensor *inputs[OP_INPUTS_MAX] = {in[0], graph_cache_rows(graph)};
    struct tensor *into[OP_OUTPUTS_MAX] = {
        NULL, graph_tensor(graph, TENSOR_CACHE, graph_format(graph, "%s.tokens", name), shape)};
    return graph_add(graph, &op_token_shift_cache, name, inputs, &own, into);
}

const struct op op_token_shift = {
    .name = "token_shift",
    .attribute_bytes = sizeof(struct token_shift_attributes),
    .inputs = 1,
    .outputs = 1,
    .infer = infer_token_shift,
    .cost_key = op_key_nothing,
    .differentiate = differentiate_token_shift,
    .decode = decode_token_shift,
};

const struct op op_token_shift_grad = {
    .name = "token_shift_grad",
    .attribute_bytes = sizeof(struct token_shift_attributes),
    .inputs = 1,
    .outputs = 1,
    .infer = infer_token_shift,
    .cost_key = op_key_nothing,
};

static const struct token_shift_cache_attributes *cache_of(const struct node *node) {
    return NODE_ATTRIBUTES(node, token_shift_cache_attributes);
}

static enum status infer_token_shift_cache(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    struct shape rows = shape_make(DTYPE_I32, 2, node->in[0]->shape.dims[0], node->in[0]->shape.dims[1], 1);
    TRY(check_activation(node, 0));
    out[0] = node->in[0]->shape;
    out[1] = cache_shape(&out[0], cache_of(node));
    return check_shape(node, 1, rows);
}

/* Each sequence goes on with a text of which half is there. */
static double example_token_shift_cache(const struct node *node, const struct tensor *tensor, int64_t index) {
    if (tensor->shape.dtype != DTYPE_I32) return op_example_default(node, tensor, index);
    int64_t length = shape_columns(&tensor->shape), text = index / length % cache_of(node)->texts;
    return (double)(text * cache_of(node)->positions + cache_of(node)->positions / 2 + index % length);
}

const struct op op_token_shift_cache = {
    .name = "token_shift_cache",
    .attribute_bytes = sizeof(struct token_shift_cache_attributes),
    .inputs = 2,
    .outputs = 2,
    .infer = infer_token_shift_cache,
    .cost_key = op_key_nothing,
    .example = example_token_shift_cache,
    .updates = 1u << 1,
};

struct tensor *ops_token_shift(struct graph *graph, const char *name, struct tensor *x, double mix) {
    if (!x) return NULL;
    struct token_shift_attributes attributes = {.mix = mix};
    return ops_apply(graph, &op_token_shift, name, OPERANDS(x), &attributes);
}
