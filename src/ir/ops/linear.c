/* The linear layer, y = x W + bias + residual, and its gradients. */
#include "ir/ops/check.h"

static bool weight_is_kn(const struct node *node) { return NODE_ATTRIBUTES(node, linear_attributes)->weight_is_kn; }

static struct shape weight_shape(const struct node *node, enum dtype dtype, int64_t inputs, int64_t outputs) {
    return weight_is_kn(node) ? shape_make(dtype, 2, inputs, outputs, 1) : shape_make(dtype, 2, outputs, inputs, 1);
}

static double product_flops(const struct node *node) {
    const struct shape *weight = node->op == &op_linear_dw ? &node->out[0]->shape : tensor_values(node->in[1]);
    return 2.0 * (double)shape_rows(&node->in[0]->shape) * (double)shape_elements(weight);
}

/* linear_dw's attributes begin with these. */
static void key_linear(const struct node *node, struct op_key *key) {
    op_key_add(key, " kn=%d", NODE_ATTRIBUTES(node, linear_attributes)->weight_is_kn);
}

static enum status infer_linear(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    TRY(check_activation(node, 0));
    const struct shape *x = &node->in[0]->shape, *weight = tensor_values(node->in[1]);
    int64_t inputs = shape_columns(x);
    int64_t outputs = weight->dims[weight_is_kn(node) ? 1 : 0];
    struct shape expected = weight_shape(node, x->dtype, inputs, outputs);
    TRY(check_shape(node, 1, &expected));
    struct shape bias = vector_of(x->dtype, outputs);
    TRY(check_optional(node, 2, &bias));
    out[0] = with_columns(*x, outputs);
    return check_optional(node, 3, &out[0]);
}

static void differentiate_linear(struct gradients *gradients, const struct node *node) {
    struct tensor *x = node->in[0], *weight = node->in[1], *bias = node->in[2], *residual = node->in[3];
    struct tensor *dy = gradient_of(gradients, node->out[0]);
    /* First, since x may be the residual too: its GEMM's gradient then takes this as its addend. */
    if (residual) gradient_contribute(gradients, residual, dy);
    if (gradient_wanted(gradients, weight)) {
        bool bias_too = gradient_wanted(gradients, bias);
        struct tensor *in[OP_INPUTS_MAX] = {x, dy};
        struct tensor *into[OP_OUTPUTS_MAX] = {gradient_target(gradients, weight),
                                               bias_too ? gradient_target(gradients, bias) : NULL};
        struct linear_dw_attributes attributes = {.weight_is_kn = weight_is_kn(node), .has_bias = bias_too};
        gradient_add_node(gradients, &op_linear_dw, node, in, &attributes, into);
        gradient_deliver(gradients, weight, into[0]);
    } else if (gradient_wanted(gradients, bias)) {
        struct tensor *in[OP_INPUTS_MAX] = {dy};
        struct tensor *into[OP_OUTPUTS_MAX] = {gradient_target(gradients, bias)};
        gradient_add_node(gradients, &op_bias_grad, node, in, NULL, into);
        gradient_deliver(gradients, bias, into[0]);
    }
    if (gradient_wanted(gradients, x)) {
        struct tensor *in[OP_INPUTS_MAX] = {dy, weight, gradient_partial(gradients, x)};
        struct tensor *into[OP_OUTPUTS_MAX] = {gradient_target(gradients, x)};
        gradient_add_node(gradients, &op_linear_dx, node, in, node->attributes, into);
        gradient_deliver(gradients, x, into[0]);
    }
}

/* Row, column and inner cuts: 'k' is summed over. */
static bool loops_linear(const struct node *node, int way, struct op_loops *out) {
    loops_add_tokens(out, node->in[0]);
    op_loops_add(out, 'k', shape_columns(&node->in[0]->shape));
    op_loops_add(out, 'n', shape_columns(&node->out[0]->shape));
    op_loops_operand(out, 0, "stk");
    op_loops_operand(out, 1, weight_is_kn(node) ? "kn" : "nk");
    op_loops_operand(out, 2, "n");
    op_loops_operand(out, 3, "stn");
    out->added = 1u << 2 | 1u << 3;
    op_loops_operand(out, OP_INPUTS_MAX, "stn");
    return way == 0;
}

const struct op op_linear = {
    .name = "linear",
    .attribute_bytes = sizeof(struct linear_attributes),
    .min_inputs = 2,
    .inputs = 4,
    .outputs = 1,
    .infer = infer_linear,
    .work = OP_WORK_PRODUCT,
    .cost_key = key_linear,
    .flops = product_flops,
    .differentiate = differentiate_linear,
    .loops = loops_linear,
    .saved_inputs = 1u << 0 | 1u << 1,
    .by_rows = true,
};

static enum status infer_linear_dx(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    TRY(check_activation(node, 0));
    const struct shape *dy = &node->in[0]->shape, *weight = tensor_values(node->in[1]);
    int64_t inputs = weight->dims[weight_is_kn(node) ? 0 : 1];
    struct shape expected = weight_shape(node, dy->dtype, inputs, shape_columns(dy));
    TRY(check_shape(node, 1, &expected));
    out[0] = with_columns(*dy, inputs);
    return check_optional(node, 2, &out[0]);
}

const struct op op_linear_dx = {
    .name = "linear_dx",
    .attribute_bytes = sizeof(struct linear_attributes),
    .min_inputs = 2,
    .inputs = 3,
    .outputs = 1,
    .infer = infer_linear_dx,
    .work = OP_WORK_PRODUCT,
    .cost_key = key_linear,
    .flops = product_flops,
    .in_place_input = 1 + 2,
    .by_rows = true,
};

static enum status infer_linear_dw(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    TRY(check_activation(node, 0));
    const struct linear_dw_attributes *attributes = NODE_ATTRIBUTES(node, linear_dw_attributes);
    const struct shape *x = &node->in[0]->shape;
    int64_t inputs = shape_columns(x), outputs = shape_columns(&node->in[1]->shape);
    struct shape dy = with_columns(*x, outputs);
    TRY(check_shape(node, 1, &dy));
    out[0] = attributes->weight_is_kn ? shape_make(DTYPE_F32, 2, inputs, outputs, 1)
                                      : shape_make(DTYPE_F32, 2, outputs, inputs, 1);
    if (attributes->has_bias) out[1] = vector_of(DTYPE_F32, outputs);
    return STATUS_OK;
}

const struct op op_linear_dw = {
    .name = "linear_dw",
    .attribute_bytes = sizeof(struct linear_dw_attributes),
    .min_inputs = 2,
    .inputs = 2,
    .outputs = 2,
    .infer = infer_linear_dw,
    .work = OP_WORK_PRODUCT,
    .cost_key = key_linear,
    .flops = product_flops,
    .updates = 1u << 0 | 1u << 1,
    .by_rows = true,
};

static enum status infer_bias_grad(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    TRY(check_activation(node, 0));
    out[0] = vector_of(DTYPE_F32, shape_columns(&node->in[0]->shape));
    return STATUS_OK;
}

const struct op op_bias_grad = {
    .name = "bias_grad",
    .min_inputs = 1,
    .inputs = 1,
    .outputs = 1,
    .infer = infer_bias_grad,
    .work = OP_WORK_NORM_GRAD,
    .updates = 1u << 0,
    .by_rows = true,
};

struct tensor *ops_linear(struct graph *graph, const char *name, struct tensor *x, struct tensor *weight,
                          struct tensor *bias, struct tensor *residual, struct linear_attributes attributes) {
    if (!x || !weight) return NULL;
    struct tensor *in[OP_INPUTS_MAX] = {x, weight, bias, residual};
    struct node *node = graph_add(graph, &op_linear, name, in, &attributes, NULL);
    return node ? node->out[0] : NULL;
}
