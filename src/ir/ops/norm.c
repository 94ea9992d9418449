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

static enum status infer_norm(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    TRY(check_activation(node, 0));
    const struct shape *x = &node->in[0]->shape;
    TRY(check_group(node, 1, x));
    out[0] = *x;
    for (int i = 1; i < node->op->outputs; i++)
        out[i] = statistic_of(x, &node->in[1]->shape);
    return check_shape(node, 2, node->in[1]->shape);
}

/* Groups of features, as heads are; never within what is normalised together. */
static bool loops_norm(const struct node *node, int way, struct op_loops *out) {
    loops_add_tokens(out, node->in[0]);
    int64_t groups = shape_columns(&node->in[0]->shape) / node->in[1]->shape.dims[0];
    if (groups > 1) op_loops_add(out, 'g', groups);
    op_loops_operands(out, node->op->outputs == 2 ? "stg->stg,stg" : "stg->stg,stg,stg");
    return way == 0;
}

/* The gradient reads what the norm makes besides y, and then its addend. */
static void differentiate_norm(struct gradients *gradients, const struct node *node) {
    bool layer = node->op == &op_layer_norm;
    struct tensor *x = gradient_if_wanted(gradients, node->in[0]), *weight = gradient_if_wanted(gradients, node->in[1]),
                  *bias = gradient_if_wanted(gradients, node->in[2]);
    struct norm_grad_attributes attributes = {
        .dx = x, .dweight = weight, .dbias = bias, .one_plus = NODE_ATTRIBUTES(node, norm_attributes)->one_plus};
    struct tensor *in[OP_INPUTS_MAX] = {gradient_of(gradients, node->out[0]), node->in[0], node->in[1], node->out[1],
                                        node->out[2]};
    in[layer ? 5 : 4] = x ? gradient_partial(gradients, x) : NULL;
    gradient_add_rule(gradients, layer ? &op_layer_norm_grad : &op_rms_norm_grad, node, in, &attributes,
                      OPERANDS(x, weight, bias));
}

/* Mean and rstd, or rstd alone, stand before the addend. */
static enum status infer_norm_grad(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    int statistics = node->op == &op_layer_norm_grad ? 2 : 1;
    TRY(check_activation(node, 1));
    const struct norm_grad_attributes *attributes = NODE_ATTRIBUTES(node, norm_grad_attributes);
    const struct shape *x = &node->in[1]->shape;
    TRY(check_shape(node, 0, *x));
    TRY(check_group(node, 2, x));
    struct shape weight = as_accumulator(node->in[2]->shape), statistic = statistic_of(x, &weight);
    for (int i = 0; i < statistics; i++)
        TRY(check_shape(node, 3 + i, statistic));
    TRY(check_shape(node, 3 + statistics, *x));
    if (attributes->dx) out[0] = *x;
    if (attributes->dweight) out[1] = weight;
    if (attributes->dbias) out[2] = weight;
    return STATUS_OK;
}

/* With so many statistics for each group of features, next to y and before the addend of the gradient. */
#define NORM_OPS(op_name, input_count, optional_count, statistics)                                                     \
    const struct op op_##op_name = {                                                                                   \
        .name = #op_name,                                                                                              \
        .attribute_bytes = sizeof(struct norm_attributes),                                                             \
        .inputs = (input_count),                                                                                       \
        .optional = (optional_count),                                                                                  \
        .outputs = 1 + (statistics),                                                                                   \
        .infer = infer_norm,                                                                                           \
        .work = OP_WORK_NORM,                                                                                          \
        .cost_key = op_key_nothing,                                                                                    \
        .differentiate = differentiate_norm,                                                                           \
        .loops = loops_norm,                                                                                           \
        .saved_inputs = 1u << 0 | 1u << 1,                                                                             \
        .saved_outputs = (1u << (1 + (statistics))) - 2,                                                               \
        .light = true,                                                                                                 \
    };                                                                                                                 \
    const struct op op_##op_name##_grad = {                                                                            \
        .name = #op_name "_grad",                                                                                      \
        .attribute_bytes = sizeof(struct norm_grad_attributes),                                                        \
        .inputs = 4 + (statistics),                                                                                    \
        .optional = 1,                                                                                                 \
        .outputs = (input_count),                                                                                      \
        .infer = infer_norm_grad,                                                                                      \
        .work = OP_WORK_NORM_GRAD,                                                                                     \
        .cost_key = op_key_nothing,                                                                                    \
        .updates = (1u << (input_count)) - 2,                                                                          \
        .in_place_input = 4 + (statistics),                                                                            \
    };
NORM_OPS(rms_norm, 2, 0, 1)
NORM_OPS(layer_norm, 3, 1, 2)

struct tensor *ops_rms_norm(struct graph *graph, const char *name, struct tensor *x, struct tensor *weight,
                            struct norm_attributes attributes) {
    return ops_apply(graph, &op_rms_norm, name, OPERANDS(x, weight), &attributes);
}

struct tensor *ops_layer_norm(struct graph *graph, const char *name, struct tensor *x, struct tensor *weight,
                              struct tensor *bias, double epsilon) {
    struct norm_attributes attributes = {.epsilon = epsilon};
    return ops_apply(graph, &op_layer_norm, name, OPERANDS(x, weight, bias), &attributes);
}
