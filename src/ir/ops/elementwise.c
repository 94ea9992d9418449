/* Sums and multiples of activations. */
#include "ir/ops/check.h"

/* All inputs are activations of one shape, and so is each output. */
static enum status infer_alike(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    TRY(check_activation(node, 0));
    for (int i = 1; i < node->op->inputs; i++)
        TRY(check_shape(node, i, node->in[0]->shape));
    for (int i = 0; i < node->op->outputs; i++)
        out[i] = node->in[0]->shape;
    return STATUS_OK;
}

static void differentiate_add(struct gradients *gradients, const struct node *node) {
    struct tensor *dy = gradient_of(gradients, node->out[0]);
    gradient_contribute(gradients, node->in[0], dy);
    gradient_contribute(gradients, node->in[1], dy);
}

const struct op op_add = {
    .name = "add",
    .inputs = 2,
    .outputs = 1,
    .infer = infer_alike,
    .differentiate = differentiate_add,
    .loops = loops_alike,
    .in_place_input = 1 + 0,
};

static enum status infer_add_bias(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    TRY(check_activation(node, 0));
    out[0] = node->in[0]->shape;
    TRY(check_shape(node, 1, vector_of(out[0].dtype, shape_columns(&out[0]))));
    return check_shape(node, 2, out[0]);
}

static void differentiate_add_bias(struct gradients *gradients, const struct node *node) {
    struct tensor *bias = node->in[1], *residual = node->in[2], *dy = gradient_of(gradients, node->out[0]);
    if (residual) gradient_contribute(gradients, residual, dy);
    gradient_contribute(gradients, node->in[0], dy);
    gradient_add_rule(gradients, &op_bias_grad, node, OPERANDS(dy), NULL, OPERANDS(bias));
}

static bool loops_add_bias(const struct node *node, int way, struct op_loops *out) {
    loops_add_tokens(out, node->in[0]);
    op_loops_add(out, 'n', shape_columns(&node->in[0]->shape));
    op_loops_operands(out, "stn,n,stn->stn");
    return way == 0;
}

const struct op op_add_bias = {
    .name = "add_bias",
    .inputs = 3,
    .optional = 2,
    .outputs = 1,
    .infer = infer_add_bias,
    .differentiate = differentiate_add_bias,
    .loops = loops_add_bias,
    .in_place_input = 1 + 0,
};

struct tensor *ops_add_bias(struct graph *graph, const char *name, struct tensor *x, struct tensor *bias,
                            struct tensor *residual) {
    return ops_apply(graph, &op_add_bias, name, OPERANDS(x, bias, residual), NULL);
}

static void differentiate_scale(struct gradients *gradients, const struct node *node) {
    gradient_add_rule(gradients, &op_scale, node, OPERANDS(gradient_of(gradients, node->out[0])), node->attributes,
                      OPERANDS(node->in[0]));
}

const struct op op_scale = {
    .name = "scale",
    .attribute_bytes = sizeof(struct scale_attributes),
    .inputs = 1,
    .outputs = 1,
    .infer = infer_alike,
    .cost_key = op_key_nothing,
    .differentiate = differentiate_scale,
    .loops = loops_alike,
    .in_place_input = 1 + 0,
};

struct tensor *ops_add(struct graph *graph, const char *name, struct tensor *a, struct tensor *b) {
    return ops_apply(graph, &op_add, name, OPERANDS(a, b), NULL);
}

struct tensor *ops_scale(struct graph *graph, const char *name, struct tensor *x, double factor) {
    struct scale_attributes attributes = {.factor = factor};
    return ops_apply(graph, &op_scale, name, OPERANDS(x), &attributes);
}

/* Activation functions, alone and times another operand, and their gradients. */

enum { HUB_NAMES = 4 };
static const struct {
    const char *name;
    const char *hub_names[HUB_NAMES]; /* NULL after the last */
} functions[] = {
#define ACTIVATION_ROW(name, text, ...) [ACTIVATION_##name] = {text, {__VA_ARGS__, NULL}},
    ACTIVATION_LIST(ACTIVATION_ROW)};

const char *activation_name(enum activation function) { return functions[function].name; }

const char *activation_hub_name(enum activation function, int index) { return functions[function].hub_names[index]; }

static void key_activation(const struct node *node, struct op_key *key) {
    op_key_add(key, " function=%s", activation_name(NODE_ATTRIBUTES(node, activation_attributes)->function));
}

/* Gradients of a function's input and of its multiplier. */
static void differentiate_function(struct gradients *gradients, const struct node *node) {
    const struct op *op = node->op == &op_activation ? &op_activation_grad : &op_gated_activation_grad;
    struct tensor *gate = node->in[0], *up = node->in[1];
    gradient_add_rule(gradients, op, node, OPERANDS(gradient_of(gradients, node->out[0]), gate, up), node->attributes,
                      OPERANDS(gate, up));
}

/* A function of one operand, or times another one, and the gradients of its operands. */
#define FUNCTION_OPS(which, operands)                                                                                  \
    const struct op op_##which = {                                                                                     \
        .name = #which,                                                                                                \
        .attribute_bytes = sizeof(struct activation_attributes),                                                       \
        .inputs = operands,                                                                                            \
        .outputs = 1,                                                                                                  \
        .infer = infer_alike,                                                                                          \
        .cost_key = key_activation,                                                                                    \
        .differentiate = differentiate_function,                                                                       \
        .loops = loops_alike,                                                                                          \
        .saved_inputs = (1u << operands) - 1,                                                                          \
        .by_rows = true,                                                                                               \
        .light = true,                                                                                                 \
    };                                                                                                                 \
    const struct op op_##which##_grad = {                                                                              \
        .name = #which "_grad",                                                                                        \
        .attribute_bytes = sizeof(struct activation_attributes),                                                       \
        .inputs = 1 + operands,                                                                                        \
        .outputs = operands,                                                                                           \
        .infer = infer_alike,                                                                                          \
        .cost_key = key_activation,                                                                                    \
        .in_place_input = 1 + 0,                                                                                       \
        .by_rows = true,                                                                                               \
    };
FUNCTION_OPS(activation, 1)
FUNCTION_OPS(gated_activation, 2)

struct tensor *ops_activation(struct graph *graph, const char *name, struct tensor *x, enum activation function) {
    struct activation_attributes attributes = {.function = function};
    return ops_apply(graph, &op_activation, name, OPERANDS(x), &attributes);
}

struct tensor *ops_gated_activation(struct graph *graph, const char *name, struct tensor *gate, struct tensor *up,
                                    enum activation function) {
    struct activation_attributes attributes = {.function = function};
    return ops_apply(graph, &op_gated_activation, name, OPERANDS(gate, up), &attributes);
}
