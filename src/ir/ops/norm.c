/* RMSNorm and layer norm, of tokens or of heads, and their gradients. */
#include "ir/ops/check.h"

/* Input `at` is the weight; its length is the number of features that are normalised together. */
static enum status check_group(const struct node *node, int at, const struct shape *x) {
    const struct shape *found = &node->in[at]->shape;
    int64_t columns = shape_columns(x);
    if (found->rank == 1 && found->dtype == x->dtype && columns % found->dims[0] == 0) return STATUS_OK;
    char text[SHAPE_TEXT], expected[SHAPE_TEXT];
    struct shape whole = vector_of(x->dtype, columns);
    return status_set(STATUS_BAD_INPUT, "input %d (%s) is %s, expected %s or a divisor", at, node->in[at]->name,
                      shape_print(found, text), shape_print(&whole, expected));
}

/* One fp32 value for each group of features. */
static struct shape statistic_of(const struct shape *x, const struct shape *weight) {
    return with_columns(as_accumulator(*x), shape_columns(x) / weight->dims[0]);
}

static enum status infer_rms_norm(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    TRY(check_activation(node, 0));
    const struct shape *x = &node->in[0]->shape;
    TRY(check_group(node, 1, x));
    out[0] = *x;
    out[1] = statistic_of(x, &node->in[1]->shape);
    return STATUS_OK;
}

/* Groups of features, as heads are; never within what is normalised together. */
static bool loops_norm(const struct node *node, int way, struct op_loops *out) {
    loops_add_tokens(out, node->in[0]);
    int64_t groups = shape_columns(&node->in[0]->shape) / node->in[1]->shape.dims[0];
    if (groups > 1) op_loops_add(out, 'g', groups);
    op_loops_operand(out, 0, "stg");
    for (int i = 0; i < node->op->outputs; i++)
        op_loops_operand(out, OP_INPUTS_MAX + i, "stg");
    return way == 0;
}

static void differentiate_rms_norm(struct gradients *gradients, const struct node *node) {
    struct tensor *x = node->in[0], *weight = node->in[1];
    bool weight_too = gradient_wanted(gradients, weight);
    struct norm_grad_attributes attributes = {.dx = gradient_wanted(gradients, x),
                                              .dweight = weight_too,
                                              .one_plus = NODE_ATTRIBUTES(node, norm_attributes)->one_plus};
    struct tensor *in[OP_INPUTS_MAX] = {gradient_of(gradients, node->out[0]), x, weight, node->out[1],
                                        attributes.dx ? gradient_partial(gradients, x) : NULL};
    struct tensor *into[OP_OUTPUTS_MAX] = {attributes.dx ? gradient_target(gradients, x) : NULL,
                                           weight_too ? gradient_target(gradients, weight) : NULL};
    gradient_add_node(gradients, &op_rms_norm_grad, node, in, &attributes, into);
    if (attributes.dx) gradient_deliver(gradients, x, into[0]);
}

const struct op op_rms_norm = {
    .name = "rms_norm",
    .attribute_bytes = sizeof(struct norm_attributes),
    .min_inputs = 2,
    .inputs = 2,
    .outputs = 2,
    .infer = infer_rms_norm,
    .work = OP_WORK_NORM,
    .cost_key = op_key_nothing,
    .differentiate = differentiate_rms_norm,
    .loops = loops_norm,
    .saved_inputs = 1u << 0 | 1u << 1,
    .saved_outputs = 1u << 1,
    .light = true,
};

/* `statistics` operands stand before the addend: mean and rstd, or rstd alone. */
static enum status infer_norm_grad(const struct node *node, int statistics, struct shape out[OP_OUTPUTS_MAX]) {
    TRY(check_activation(node, 1));
    const struct norm_grad_attributes *attributes = NODE_ATTRIBUTES(node, norm_grad_attributes);
    const struct shape *x = &node->in[1]->shape;
    TRY(check_shape(node, 0, x));
    TRY(check_group(node, 2, x));
    struct shape weight = as_accumulator(node->in[2]->shape), statistic = statistic_of(x, &weight);
    for (int i = 0; i < statistics; i++)
        TRY(check_shape(node, 3 + i, &statistic));
    TRY(check_optional(node, 3 + statistics, x));
    if (attributes->dx) out[0] = *x;
    if (attributes->dweight) out[1] = weight;
    if (attributes->dbias) out[2] = weight;
    return STATUS_OK;
}

static enum status infer_rms_norm_grad(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    return infer_norm_grad(node, 1, out);
}

const struct op op_rms_norm_grad = {
    .name = "rms_norm_grad",
    .attribute_bytes = sizeof(struct norm_grad_attributes),
    .min_inputs = 4,
    .inputs = 5,
    .outputs = 2,
    .infer = infer_rms_norm_grad,
    .work = OP_WORK_NORM_GRAD,
    .cost_key = op_key_nothing,
    .updates = 1u << 1,
    .in_place_input = 1 + 4,
};

static enum status infer_layer_norm(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    TRY(check_activation(node, 0));
    const struct shape *x = &node->in[0]->shape;
    TRY(check_group(node, 1, x));
    out[0] = *x;
    out[1] = out[2] = statistic_of(x, &node->in[1]->shape);
    return check_optional(node, 2, &node->in[1]->shape);
}

static void differentiate_layer_norm(struct gradients *gradients, const struct node *node) {
    struct tensor *x = node->in[0], *weight = node->in[1], *bias = node->in[2];
    struct norm_grad_attributes attributes = {
        .dx = gradient_wanted(gradients, x),
        .dweight = gradient_wanted(gradients, weight),
        .dbias = gradient_wanted(gradients, bias),
    };
    struct tensor *in[OP_INPUTS_MAX] = {gradient_of(gradients, node->out[0]),
                                        x,
                                        weight,
                                        node->out[1],
                                        node->out[2],
                                        attributes.dx ? gradient_partial(gradients, x) : NULL};
    struct tensor *into[OP_OUTPUTS_MAX] = {attributes.dx ? gradient_target(gradients, x) : NULL,
                                           attributes.dweight ? gradient_target(gradients, weight) : NULL,
                                           attributes.dbias ? gradient_target(gradients, bias) : NULL};
    gradient_add_node(gradients, &op_layer_norm_grad, node, in, &attributes, into);
    if (attributes.dx) gradient_deliver(gradients, x, into[0]);
}

const struct op op_layer_norm = {
    .name = "layer_norm",
    .attribute_bytes = sizeof(struct norm_attributes),
    .min_inputs = 2,
    .inputs = 3,
    .outputs = 3,
    .infer = infer_layer_norm,
    .work = OP_WORK_NORM,
    .cost_key = op_key_nothing,
    .differentiate = differentiate_layer_norm,
    .loops = loops_norm,
    .saved_inputs = 1u << 0 | 1u << 1,
    .saved_outputs = 1u << 1 | 1u << 2,
    .light = true,
};

static enum status infer_layer_norm_grad(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    return infer_norm_grad(node, 2, out);
}

const struct op op_layer_norm_grad = {
    .name = "layer_norm_grad",
    .attribute_bytes = sizeof(struct norm_grad_attributes),
    .min_inputs = 5,
    .inputs = 6,
    .outputs = 3,
    .infer = infer_layer_norm_grad,
    .work = OP_WORK_NORM_GRAD,
    .cost_key = op_key_nothing,
    .updates = 1u << 1 | 1u << 2,
    .in_place_input = 1 + 5,
};

static struct tensor *add_norm(struct graph *graph, const struct op *op, const char *name, struct tensor *x,
                               struct tensor *weight, struct tensor *bias, struct norm_attributes attributes) {
    if (!x || !weight) return NULL;
    struct tensor *in[OP_INPUTS_MAX] = {x, weight, bias};
    struct node *node = graph_add(graph, op, name, in, &attributes, NULL);
    return node ? node->out[0] : NULL;
}

struct tensor *ops_rms_norm(struct graph *graph, const char *name, struct tensor *x, struct tensor *weight,
                            struct norm_attributes attributes) {
    return add_norm(graph, &op_rms_norm, name, x, weight, NULL, attributes);
}

struct tensor *ops_layer_norm(struct graph *graph, const char *name, struct tensor *x, struct tensor *weight,
                              struct tensor *bias, double epsilon) {
    return add_norm(graph, &op_layer_norm, name, x, weight, bias, (struct norm_attributes){.epsilon = epsilon});
}
