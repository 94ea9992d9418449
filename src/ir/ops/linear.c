/* The linear layer, y = x W + bias + residual, and its gradients. */
#include "ir/ops/check.h"

/* linear_dw's attributes begin with linear's. */
static bool weight_is_kn(const struct node *node) { return NODE_ATTRIBUTES(node, linear_attributes)->weight_is_kn; }

static struct shape weight_shape(const struct node *node, enum dtype dtype, int64_t inputs, int64_t outputs) {
    return weight_is_kn(node) ? shape_make(dtype, 2, inputs, outputs, 1) : shape_make(dtype, 2, outputs, inputs, 1);
}

static double product_flops(const struct node *node) {
    const struct shape *weight = node->op == &op_linear_dw ? &node->out[0]->shape : tensor_values(node->in[1]);
    return 2.0 * (double)shape_rows(&node->in[0]->shape) * (double)shape_elements(weight);
}

static void key_linear(const struct node *node, struct op_key *key) { op_key_add(key, " kn=%d", weight_is_kn(node)); }

static enum status infer_linear(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    TRY(check_activation(node, 0));
    const struct shape *x = &node->in[0]->shape, *weight = tensor_values(node->in[1]);
    int64_t inputs = shape_columns(x);
    int64_t outputs = weight->dims[weight_is_kn(node) ? 1 : 0];
    TRY(check_shape(node, 1, weight_shape(node, x->dtype, inputs, outputs)));
    TRY(check_shape(node, 2, vector_of(x->dtype, outputs)));
    out[0] = with_columns(*x, outputs);
    return check_shape(node, 3, out[0]);
}

static void differentiate_linear(struct gradients *gradients, const struct node *node) {
    struct tensor *x = node->in[0], *weight = node->in[1], *bias = node->in[2], *residual = node->in[3];
    struct tensor *dy = gradient_of(gradients, node->out[0]);
    /* First, since x may be the residual too: its GEMM's gradient then takes this as its addend. */
    if (residual) gradient_contribute(gradients, residual, dy);
    if (gradient_wanted(gradients, weight)) {
        struct linear_dw_attributes attributes = {.weight_is_kn = weight_is_kn(node),
                                                  .has_bias = gradient_wanted(gradients, bias)};
        gradient_add_rule(gradients, &op_linear_dw, node, OPERANDS(x, dy), &attributes,
                          OPERANDS(weight, gradient_if_wanted(gradients, bias)));
    } else {
        gradient_add_rule(gradients, &op_bias_grad, node, OPERANDS(dy), NULL, OPERANDS(bias));
    }
    gradient_add_rule(gradients, &op_linear_dx, node, OPERANDS(dy, weight, gradient_partial(gradients, x)),
                      node->attributes, OPERANDS(x));
}

/* Row, column and inner cuts: 'k' is summed over. */
static bool loops_linear(const struct node *node, int way, struct op_loops *out) {
    loops_add_tokens(out, node->in[0]);
    op_loops_add(out, 'k', shape_columns(&node->in[0]->shape));
    op_loops_add(out, 'n', shape_columns(&node->out[0]->shape));
    op_loops_operands(out, weight_is_kn(node) ? "stk,kn,n,stn->stn" : "stk,nk,n,stn->stn");
    out->added = 1u << 2 | 1u << 3;
    return way == 0;
}

const struct op op_linear = {
    .name = "linear",
    .attribute_bytes = sizeof(struct linear_attributes),
    .inputs = 4,
    .optional = 2,
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
    TRY(check_shape(node, 1, weight_shape(node, dy->dtype, inputs, shape_columns(dy))));
    out[0] = with_columns(*dy, inputs);
    return check_shape(node, 2, out[0]);
}

const struct op op_linear_dx = {
    .name = "linear_dx",
    .attribute_bytes = sizeof(struct linear_attributes),
    .inputs = 3,
    .optional = 1,
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
    const struct shape *x = &node->in[0]->shape;
    int64_t outputs = shape_columns(&node->in[1]->shape);
    TRY(check_shape(node, 1, with_columns(*x, outputs)));
    out[0] = weight_shape(node, DTYPE_F32, shape_columns(x), outputs);
    if (NODE_ATTRIBUTES(node, linear_dw_attributes)->has_bias) out[1] = vector_of(DTYPE_F32, outputs);
    return STATUS_OK;
}

const struct op op_linear_dw = {
    .name = "linear_dw",
    .attribute_bytes = sizeof(struct linear_dw_attributes),
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
    .inputs = 1,
    .outputs = 1,
    .infer = infer_bias_grad,
    .work = OP_WORK_NORM_GRAD,
    .updates = 1u << 0,
    .by_rows = true,
};

struct tensor *ops_linear(struct graph *graph, const char *name, struct tensor *x, struct tensor *weight,
                          struct tensor *bias, struct tensor *residual, struct linear_attributes attributes) {
    return ops_apply(graph, &op_linear, name, OPERANDS(x, weight, bias, residual), &attributes);
}
