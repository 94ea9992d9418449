/* One expert: a gated MLP of the rows that are routed to it. */
#include "ir/ops/check.h"

static const struct expert_attributes *attributes_of(const struct node *node) {
    return NODE_ATTRIBUTES(node, expert_attributes);
}

double expert_mean_rows(const struct node *node) {
    return (double)attributes_of(node)->slots / (double)attributes_of(node)->experts;
}

double touched_by_expert(const struct node *node, const struct tensor *rows) {
    return expert_mean_rows(node) / (double)shape_rows(&rows->shape);
}

static double flops_of_products(const struct node *node, int products, const struct tensor *weight) {
    return 2 * products * (double)shape_elements(tensor_values(weight)) * expert_mean_rows(node);
}

static double expert_flops(const struct node *node) { return flops_of_products(node, 3, node->in[2]); }

/* Gate, up and the gradient of what down reads in any case. */
static double expert_grad_flops(const struct node *node) {
    const struct expert_grad_attributes *attributes = NODE_ATTRIBUTES(node, expert_grad_attributes);
    int products = 3 + 2 * attributes->dx;
    for (int i = 0; i < 3; i++)
        products += attributes->dweight[i];
    return flops_of_products(node, products, node->in[3]);
}

/* The first expert clears the rows of all others; each further one takes over the buffer. */
static double touched_expert(const struct node *node, int operand) {
    bool result = operand == OP_INPUTS_MAX, previous = operand == 5;
    if (previous) return 0;
    return operand == 0 || (result && node->in[5]) ? touched_by_expert(node, node->in[0]) : 1;
}

static double touched_expert_grad(const struct node *node, int operand) {
    bool result = operand == OP_INPUTS_MAX, previous = operand == 6;
    if (previous) return 0;
    return operand <= 1 || (result && node->in[6]) ? touched_by_expert(node, node->in[0]) : 1;
}

static void key_expert(const struct node *node, struct op_key *key) {
    const struct expert_attributes *attributes = attributes_of(node);
    op_key_add(key, " slots=%lld experts=%lld %s", (long long)attributes->slots, (long long)attributes->experts,
               activation_name(attributes->function));
}

static double example_expert(const struct node *node, const struct tensor *tensor, int64_t index) {
    const struct expert_attributes *attributes = attributes_of(node);
    if (tensor->shape.dtype != DTYPE_I32) return op_example_default(node, tensor, index);
    return example_range(attributes->slots, attributes->experts, index);
}

/* Ranges, gate, up and down from input `first` on, for rows of this shape. */
static enum status check_expert(const struct node *node, int first, const struct shape *rows) {
    const struct expert_attributes *attributes = attributes_of(node);
    const struct shape *gate = tensor_values(node->in[first + 1]);
    struct shape ranges = shape_make(DTYPE_I32, 2, attributes->experts, 2, 1);
    if (attributes->expert < 0 || attributes->expert >= attributes->experts)
        return status_set(STATUS_BAD_INPUT, "expert %lld of %lld", (long long)attributes->expert,
                          (long long)attributes->experts);
    TRY(check_shape(node, first, &ranges));
    struct shape in = shape_make(rows->dtype, 2, gate->dims[0], shape_columns(rows), 1);
    struct shape out = shape_make(rows->dtype, 2, shape_columns(rows), gate->dims[0], 1);
    TRY(check_shape(node, first + 1, &in));
    TRY(check_shape(node, first + 2, &in));
    return check_shape(node, first + 3, &out);
}

static enum status infer_expert_mlp(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    TRY(check_activation(node, 0));
    out[0] = node->in[0]->shape;
    TRY(check_expert(node, 1, &out[0]));
    return check_optional(node, 5, &out[0]);
}

/* The rows of x that are this expert's are no other's, so the gradients of all experts share a tensor, as their results
 * do. */
static void differentiate_expert_mlp(struct gradients *gradients, const struct node *node) {
    struct tensor *x = node->in[0], *previous = node->in[5], *dy = gradient_of(gradients, node->out[0]);
    if (!dy) return;
    if (previous) gradient_contribute(gradients, previous, dy);
    struct expert_grad_attributes attributes = {.expert = *attributes_of(node), .dx = gradient_wanted(gradients, x)};
    struct tensor *in[OP_INPUTS_MAX] = {dy, x, node->in[1], node->in[2], node->in[3], node->in[4]};
    struct tensor *into[OP_OUTPUTS_MAX] = {0};
    bool any = attributes.dx;
    for (int i = 0; i < 3; i++) {
        attributes.dweight[i] = gradient_wanted(gradients, node->in[2 + i]);
        if (attributes.dweight[i]) into[1 + i] = gradient_target(gradients, node->in[2 + i]);
        any |= attributes.dweight[i];
    }
    if (!any) return;
    if (attributes.dx) {
        in[6] = gradient_partial(gradients, x);
        into[0] = gradient_target(gradients, x);
    }
    gradient_add_node(gradients, &op_expert_mlp_grad, node, in, &attributes, into);
    for (int i = 0; i < 3; i++)
        if (attributes.dweight[i]) gradient_deliver(gradients, node->in[2 + i], into[1 + i]);
    if (attributes.dx) gradient_deliver(gradients, x, into[0]);
}

/* By inner features: rows are whole, and each part makes a part of the sum that is the result. */
static bool loops_expert_mlp(const struct node *node, int way, struct op_loops *out) {
    op_loops_add(out, 'f', tensor_values(node->in[2])->dims[0])->padded = true;
    op_loops_operand(out, 2, "f.");
    op_loops_operand(out, 3, "f.");
    op_loops_operand(out, 4, ".f");
    out->apart = 1u << 0 | 1u << 5 | 1u << OP_INPUTS_MAX;
    return way == 0;
}

const struct op op_expert_mlp = {
    .name = "expert_mlp",
    .attribute_bytes = sizeof(struct expert_attributes),
    .min_inputs = 5,
    .inputs = 6,
    .outputs = 1,
    .infer = infer_expert_mlp,
    .work = OP_WORK_EXPERT,
    .flops = expert_flops,
    .touched = touched_expert,
    .cost_key = key_expert,
    .example = example_expert,
    .differentiate = differentiate_expert_mlp,
    .loops = loops_expert_mlp,
    .saved_inputs = 1u << 0 | 1u << 1 | 1u << 2 | 1u << 3 | 1u << 4,
    .in_place_input = 1 + 5,
};

static enum status infer_expert_mlp_grad(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    TRY(check_activation(node, 0));
    const struct expert_grad_attributes *attributes = NODE_ATTRIBUTES(node, expert_grad_attributes);
    const struct shape rows = node->in[0]->shape;
    TRY(check_shape(node, 1, &rows));
    TRY(check_expert(node, 2, &rows));
    if (attributes->dx) out[0] = rows;
    for (int i = 0; i < 3; i++)
        if (attributes->dweight[i]) out[1 + i] = as_accumulator(node->in[3 + i]->shape);
    return check_optional(node, 6, &rows);
}

static void key_expert_grad(const struct node *node, struct op_key *key) {
    const struct expert_grad_attributes *attributes = NODE_ATTRIBUTES(node, expert_grad_attributes);
    key_expert(node, key);
    op_key_add(key, " %d%d%d%d", attributes->dx, attributes->dweight[0], attributes->dweight[1],
               attributes->dweight[2]);
}

const struct op op_expert_mlp_grad = {
    .name = "expert_mlp_grad",
    .attribute_bytes = sizeof(struct expert_grad_attributes),
    .min_inputs = 6,
    .inputs = 7,
    .outputs = 4,
    .infer = infer_expert_mlp_grad,
    .work = OP_WORK_EXPERT,
    .flops = expert_grad_flops,
    .touched = touched_expert_grad,
    .cost_key = key_expert_grad,
    .example = example_expert,
    .updates = 1u << 1 | 1u << 2 | 1u << 3,
    .in_place_input = 1 + 6,
};

struct tensor *ops_expert_mlp(struct graph *graph, const char *name, struct tensor *rows, struct routing routing,
                              const struct expert_weights *weights, struct tensor *previous,
                              struct expert_attributes attributes) {
    if (!rows || !routing.ranges || !weights->gate || !weights->up || !weights->down) return NULL;
    struct tensor *in[OP_INPUTS_MAX] = {rows, routing.ranges, weights->gate, weights->up, weights->down, previous};
    struct node *node = graph_add(graph, &op_expert_mlp, name, in, &attributes, NULL);
    return node ? node->out[0] : NULL;
}
