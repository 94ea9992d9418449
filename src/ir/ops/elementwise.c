/* Sums and multiples of activations. */
#include "ir/ops/check.h"

static enum status infer_add(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    TRY(check_activation(node, 0));
    TRY(check_shape(node, 1, &node->in[0]->shape));
    out[0] = node->in[0]->shape;
    return STATUS_OK;
}

static void differentiate_add(struct gradients *gradients, const struct node *node) {
    struct tensor *dy = gradient_of(gradients, node->out[0]);
    gradient_contribute(gradients, node->in[0], dy);
    gradient_contribute(gradients, node->in[1], dy);
}

void gradient_deliver_sum(struct gradients *gradients, const struct node *of, struct tensor *tensor,
                          struct tensor *gradient) {
    struct tensor *partial = gradient_partial(gradients, tensor);
    if (partial && gradient) {
        struct tensor *in[OP_INPUTS_MAX] = {gradient, partial};
        struct tensor *into[OP_OUTPUTS_MAX] = {gradient_target(gradients, tensor)};
        gradient_add_node(gradients, &op_add, of, in, NULL, into);
        gradient = into[0];
    }
    gradient_deliver(gradients, tensor, gradient);
}

const struct op op_add = {
    .name = "add",
    .min_inputs = 2,
    .inputs = 2,
    .outputs = 1,
    .infer = infer_add,
    .differentiate = differentiate_add,
    .loops = loops_alike,
    .in_place_input = 1 + 0,
};

static enum status infer_add_bias(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    TRY(check_activation(node, 0));
    out[0] = node->in[0]->shape;
    struct shape bias = vector_of(out[0].dtype, shape_columns(&out[0]));
    TRY(check_optional(node, 1, &bias));
    return check_optional(node, 2, &out[0]);
}

static void differentiate_add_bias(struct gradients *gradients, const struct node *node) {
    struct tensor *bias = node->in[1], *residual = node->in[2], *dy = gradient_of(gradients, node->out[0]);
    if (residual) gradient_contribute(gradients, residual, dy);
    gradient_contribute(gradients, node->in[0], dy);
    if (!gradient_wanted(gradients, bias)) return;
    struct tensor *in[OP_INPUTS_MAX] = {dy};
    struct tensor *into[OP_OUTPUTS_MAX] = {gradient_target(gradients, bias)};
    gradient_add_node(gradients, &op_bias_grad, node, in, NULL, into);
    gradient_deliver(gradients, bias, into[0]);
}

static bool loops_add_bias(const struct node *node, int way, struct op_loops *out) {
    loops_add_tokens(out, node->in[0]);
    op_loops_add(out, 'n', shape_columns(&node->in[0]->shape));
    op_loops_operand(out, 0, "stn");
    op_loops_operand(out, 1, "n");
    op_loops_operand(out, 2, "stn");
    op_loops_operand(out, OP_INPUTS_MAX, "stn");
    return way == 0;
}

const struct op op_add_bias = {
    .name = "add_bias",
    .min_inputs = 1,
    .inputs = 3,
    .outputs = 1,
    .infer = infer_add_bias,
    .differentiate = differentiate_add_bias,
    .loops = loops_add_bias,
    .in_place_input = 1 + 0,
};

struct tensor *ops_add_bias(struct graph *graph, const char *name, struct tensor *x, struct tensor *bias,
                            struct tensor *residual) {
    if (!x) return NULL;
    struct tensor *in[OP_INPUTS_MAX] = {x, bias, residual};
    struct node *node = graph_add(graph, &op_add_bias, name, in, NULL, NULL);
    return node ? node->out[0] : NULL;
}

static enum status infer_scale(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    out[0] = node->in[0]->shape;
    return check_activation(node, 0);
}

static void differentiate_scale(struct gradients *gradients, const struct node *node) {
    struct tensor *x = node->in[0];
    if (!gradient_wanted(gradients, x)) return;
    struct tensor *in[OP_INPUTS_MAX] = {gradient_of(gradients, node->out[0])};
    struct tensor *into[OP_OUTPUTS_MAX] = {gradient_target(gradients, x)};
    gradient_add_node(gradients, &op_scale, node, in, node->attributes, into);
    gradient_deliver_sum(gradients, node, x, into[0]);
}

const struct op op_scale = {
    .name = "scale",
    .attribute_bytes = sizeof(struct scale_attributes),
    .min_inputs = 1,
    .inputs = 1,
    .outputs = 1,
    .infer = infer_scale,
    .cost_key = op_key_nothing,
    .differentiate = differentiate_scale,
    .loops = loops_alike,
    .in_place_input = 1 + 0,
};

struct tensor *ops_add(struct graph *graph, const char *name, struct tensor *a, struct tensor *b) {
    if (!a || !b) return NULL;
    struct tensor *in[OP_INPUTS_MAX] = {a, b};
    struct node *node = graph_add(graph, &op_add, name, in, NULL, NULL);
    return node ? node->out[0] : NULL;
}

struct tensor *ops_scale(struct graph *graph, const char *name, struct tensor *x, double factor) {
    if (!x) return NULL;
    struct tensor *in[OP_INPUTS_MAX] = {x};
    struct scale_attributes attributes = {.factor = factor};
    struct node *node = graph_add(graph, &op_scale, name, in, &attributes, NULL);
    return node ? node->out[0] : NULL;
}

/* Activation functions, alone and times another operand, and their gradients. */

enum { HUB_NAMES = 4 };
static const struct {
    const char *name;
    const char *hub_names[HUB_NAMES]; /* NULL after the last */
} functions[] = {
#define ACTIVATION_ROW(name, text, ...) [ACTIVATION_##name] = {text, {__VA_ARGS__, NULL}},
    ACTIVATION_LIST(ACTIVATION_ROW)
#undef ACTIVATION_ROW
};

const char *activation_name(enum activation function) { return functions[function].name; }

const char *activation_hub_name(enum activation function, int index) { return functions[function].hub_names[index]; }

/* All inputs are activations of one shape, and so is each output. */
static enum status infer_alike(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    TRY(check_activation(node, 0));
    for (int i = 1; i < node->op->inputs; i++)
        TRY(check_shape(node, i, &node->in[0]->shape));
    for (int i = 0; i < node->op->outputs; i++)
        out[i] = node->in[0]->shape;
    return STATUS_OK;
}

static void key_activation(const struct node *node, struct op_key *key) {
    op_key_add(key, " function=%s", activation_name(NODE_ATTRIBUTES(node, activation_attributes)->function));
}

static void differentiate_activation(struct gradients *gradients, const struct node *node) {
    struct tensor *x = node->in[0];
    if (!gradient_wanted(gradients, x)) return;
    struct tensor *in[OP_INPUTS_MAX] = {gradient_of(gradients, node->out[0]), x};
    struct tensor *into[OP_OUTPUTS_MAX] = {gradient_target(gradients, x)};
    gradient_add_node(gradients, &op_activation_grad, node, in, node->attributes, into);
    gradient_deliver_sum(gradients, node, x, into[0]);
}

const struct op op_activation = {
    .name = "activation",
    .attribute_bytes = sizeof(struct activation_attributes),
    .min_inputs = 1,
    .inputs = 1,
    .outputs = 1,
    .infer = infer_alike,
    .cost_key = key_activation,
    .differentiate = differentiate_activation,
    .loops = loops_alike,
    .saved_inputs = 1u << 0,
    .by_rows = true,
    .light = true,
};

const struct op op_activation_grad = {
    .name = "activation_grad",
    .attribute_bytes = sizeof(struct activation_attributes),
    .min_inputs = 2,
    .inputs = 2,
    .outputs = 1,
    .infer = infer_alike,
    .cost_key = key_activation,
    .in_place_input = 1 + 0,
    .by_rows = true,
};

static void differentiate_gated(struct gradients *gradients, const struct node *node) {
    struct tensor *gate = node->in[0], *up = node->in[1];
    if (!gradient_wanted(gradients, gate) && !gradient_wanted(gradients, up)) return;
    struct tensor *in[OP_INPUTS_MAX] = {gradient_of(gradients, node->out[0]), gate, up};
    struct tensor *into[OP_OUTPUTS_MAX] = {gradient_target(gradients, gate), gradient_target(gradients, up)};
    gradient_add_node(gradients, &op_gated_activation_grad, node, in, node->attributes, into);
    gradient_deliver_sum(gradients, node, gate, into[0]);
    gradient_deliver_sum(gradients, node, up, into[1]);
}

const struct op op_gated_activation = {
    .name = "gated_activation",
    .attribute_bytes = sizeof(struct activation_attributes),
    .min_inputs = 2,
    .inputs = 2,
    .outputs = 1,
    .infer = infer_alike,
    .cost_key = key_activation,
    .differentiate = differentiate_gated,
    .loops = loops_alike,
    .saved_inputs = 1u << 0 | 1u << 1,
    .by_rows = true,
    .light = true,
};

const struct op op_gated_activation_grad = {
    .name = "gated_activation_grad",
    .attribute_bytes = sizeof(struct activation_attributes),
    .min_inputs = 3,
    .inputs = 3,
    .outputs = 2,
    .infer = infer_alike,
    .cost_key = key_activation,
    .in_place_input = 1 + 0,
    .by_rows = true,
};

struct tensor *ops_activation(struct graph *graph, const char *name, struct tensor *x, enum activation function) {
    if (!x) return NULL;
    struct tensor *in[OP_INPUTS_MAX] = {x};
    struct activation_attributes attributes = {.function = function};
    struct node *node = graph_add(graph, &op_activation, name, in, &attributes, NULL);
    return node ? node->out[0] : NULL;
}

struct tensor *ops_gated_activation(struct graph *graph, const char *name, struct tensor *gate, struct tensor *up,
                                    enum activation function) {
    if (!gate || !up) return NULL;
    struct tensor *in[OP_INPUTS_MAX] = {gate, up};
    struct activation_attributes attributes = {.function = function};
    struct node *node = graph_add(graph, &op_gated_activation, name, in, &attributes, NULL);
    return node ? node->out[0] : NULL;
}
