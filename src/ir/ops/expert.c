/* One expert: a gated MLP of the rows that are routed to it. */
#include "ir/ops/check.h"

static const struct expert_attributes *attributes_of(const struct node *node) {
    return NODE_ATTRIBUTES(node, expert_attributes);
}

double expert_mean_rows(const struct node *node) {
    return (double)attributes_of(node)->slots / (double)attributes_of(node)->experts;
}

/* op.touched of an operand whose rows all experts share: those of one. */
static double touched_by_expert(const struct node *node, const struct tensor *rows) {
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

/* One expert as gpt-oss has it (arXiv 2508.10925): gate and up, interleaved, are one GEMM with a bias, the gate is
 * clamped, and so is up, to which 1 is added. */

enum { WEIGHTS = 4 }; /* gate_up, down, and their biases */

/* FLOPs of `products` GEMMs of the size of down. */
static double flops_of_glu(const struct node *node, int products) {
    return 2 * products * (double)shape_elements(tensor_values(expert_down(node))) * expert_mean_rows(node);
}

static double glu_flops(const struct node *node) { return flops_of_glu(node, 3); }

/* Always recomputes gate_up (two GEMMs) and the gradient of the input of down. */
static double glu_grad_flops(const struct node *node) {
    const struct expert_glu_grad_attributes *attributes = NODE_ATTRIBUTES(node, expert_glu_grad_attributes);
    return flops_of_glu(node, 3 + 2 * attributes->dx + 2 * attributes->dweight[0] + attributes->dweight[1]);
}

/* As touched_expert in expert.c. */
static double touched_glu(const struct node *node, int operand) {
    bool gradient = node->op == &op_expert_glu_grad, result = operand == OP_INPUTS_MAX;
    if (operand == 6) return 0;
    return operand <= (gradient ? 1 : 0) || (result && node->in[6]) ? touched_by_expert(node, node->in[0]) : 1;
}

static void key_glu(const struct node *node, struct op_key *key) {
    const struct expert_glu_attributes *attributes = NODE_ATTRIBUTES(node, expert_glu_attributes);
    op_key_add(key, " slots=%lld experts=%lld%s", (long long)attributes->expert.slots,
               (long long)attributes->expert.experts, attributes->weights_are_kn ? " kn" : "");
}

static double example_glu(const struct node *node, const struct tensor *tensor, int64_t index) {
    const struct expert_attributes *expert = &NODE_ATTRIBUTES(node, expert_glu_attributes)->expert;
    if (tensor->shape.dtype != DTYPE_I32) return op_example_default(node, tensor, index);
    return example_range(expert->slots, expert->experts, index);
}

/* Ranges, gate_up, down and gate_up's bias from input `first` on, for rows of this shape. */
static enum status check_glu(const struct node *node, int first, const struct shape *rows) {
    const struct expert_glu_attributes *attributes = NODE_ATTRIBUTES(node, expert_glu_attributes);
    const struct expert_attributes *expert = &attributes->expert;
    const struct shape *down = tensor_values(node->in[first + 2]);
    struct shape ranges = shape_make(DTYPE_I32, 2, expert->experts, 2, 1);
    if (expert->expert < 0 || expert->expert >= expert->experts)
        return status_set(STATUS_BAD_INPUT, "expert %lld of %lld", (long long)expert->expert,
                          (long long)expert->experts);
    TRY(check_shape(node, first, &ranges));
    bool kn = attributes->weights_are_kn;
    int64_t columns = shape_columns(rows), width = down->dims[kn ? 0 : 1];
    struct shape in = shape_make(rows->dtype, 2, kn ? columns : 2 * width, kn ? 2 * width : columns, 1);
    struct shape out = shape_make(rows->dtype, 2, kn ? width : columns, kn ? columns : width, 1);
    struct shape bias = vector_of(rows->dtype, 2 * width);
    TRY(check_shape(node, first + 1, &in));
    TRY(check_shape(node, first + 2, &out));
    return check_shape(node, first + 3, &bias);
}

static enum status infer_expert_glu(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    TRY(check_activation(node, 0));
    out[0] = node->in[0]->shape;
    struct shape bias = vector_of(out[0].dtype, shape_columns(&out[0]));
    TRY(check_glu(node, 1, &out[0]));
    TRY(check_shape(node, 5, &bias));
    return check_optional(node, 6, &out[0]);
}

/* The rows of all experts share a tensor, and their gradients too (expert.c). */
static void differentiate_expert_glu(struct gradients *gradients, const struct node *node) {
    struct tensor *x = node->in[0], *previous = node->in[6], *dy = gradient_of(gradients, node->out[0]);
    if (!dy) return;
    if (previous) gradient_contribute(gradients, previous, dy);
    struct expert_glu_grad_attributes attributes = {.glu = *NODE_ATTRIBUTES(node, expert_glu_attributes),
                                                    .dx = gradient_wanted(gradients, x)};
    struct tensor *in[OP_INPUTS_MAX] = {dy, x, node->in[1], node->in[2], node->in[3], node->in[4]};
    struct tensor *into[OP_OUTPUTS_MAX] = {0};
    bool any = attributes.dx;
    for (int i = 0; i < WEIGHTS; i++) {
        attributes.dweight[i] = gradient_wanted(gradients, node->in[2 + i]);
        if (attributes.dweight[i]) into[1 + i] = gradient_target(gradients, node->in[2 + i]);
        any |= attributes.dweight[i];
    }
    if (!any) return;
    if (attributes.dx) {
        in[6] = gradient_partial(gradients, x);
        into[0] = gradient_target(gradients, x);
    }
    gradient_add_node(gradients, &op_expert_glu_grad, node, in, &attributes, into);
    for (int i = 0; i < WEIGHTS; i++)
        if (attributes.dweight[i]) gradient_deliver(gradients, node->in[2 + i], into[1 + i]);
    if (attributes.dx) gradient_deliver(gradients, x, into[0]);
}

/* By pairs of inner features, as one of experts with three weights (expert.c). The gradient of down's bias is that of
 * whole rows, which all parts have alike. */
static bool loops_expert_glu(const struct node *node, int way, struct op_loops *out) {
    bool kn = NODE_ATTRIBUTES(node, expert_glu_attributes)->weights_are_kn;
    op_loops_add(out, 'f', expert_width(node));
    op_loops_operand(out, 2, kn ? ".f" : "f.");
    op_loops_operand(out, 3, kn ? "f." : ".f");
    op_loops_operand(out, 4, "f");
    out->apart = 1u << 0 | 1u << 5 | 1u << 6 | 1u << OP_INPUTS_MAX;
    return way == 0;
}

static void take_part_expert_glu(void *attributes, char letter, const struct index_part *part) {
    struct expert_glu_attributes *own = attributes;
    own->down_bias_elsewhere |= letter == 'f' && part->position > 0;
}

const struct op op_expert_glu = {
    .name = "expert_glu",
    .attribute_bytes = sizeof(struct expert_glu_attributes),
    .min_inputs = 6,
    .inputs = 7,
    .outputs = 1,
    .infer = infer_expert_glu,
    .work = OP_WORK_EXPERT,
    .flops = glu_flops,
    .touched = touched_glu,
    .cost_key = key_glu,
    .example = example_glu,
    .differentiate = differentiate_expert_glu,
    .loops = loops_expert_glu,
    .take_part = take_part_expert_glu,
    .saved_inputs = 0x1f,
    .in_place_input = 1 + 6,
};

static enum status infer_expert_glu_grad(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    TRY(check_activation(node, 0));
    const struct expert_glu_grad_attributes *attributes = NODE_ATTRIBUTES(node, expert_glu_grad_attributes);
    const struct shape rows = node->in[0]->shape;
    TRY(check_shape(node, 1, &rows));
    TRY(check_glu(node, 2, &rows));
    if (attributes->dx) out[0] = rows;
    for (int i = 0; i < 3; i++)
        if (attributes->dweight[i]) out[1 + i] = as_accumulator(node->in[3 + i]->shape);
    if (attributes->dweight[3]) out[4] = vector_of(DTYPE_F32, shape_columns(&rows));
    return check_optional(node, 6, &rows);
}

static void key_glu_grad(const struct node *node, struct op_key *key) {
    const struct expert_glu_grad_attributes *attributes = NODE_ATTRIBUTES(node, expert_glu_grad_attributes);
    key_glu(node, key);
    op_key_add(key, " %d", attributes->dx);
    for (int i = 0; i < WEIGHTS; i++)
        op_key_add(key, "%d", attributes->dweight[i]);
}

const struct op op_expert_glu_grad = {
    .name = "expert_glu_grad",
    .attribute_bytes = sizeof(struct expert_glu_grad_attributes),
    .min_inputs = 6,
    .inputs = 7,
    .outputs = 5,
    .infer = infer_expert_glu_grad,
    .work = OP_WORK_EXPERT,
    .flops = glu_grad_flops,
    .touched = touched_glu,
    .cost_key = key_glu_grad,
    .example = example_glu,
    .updates = 1u << 1 | 1u << 2 | 1u << 3 | 1u << 4,
    .in_place_input = 1 + 6,
};

const struct tensor *expert_down(const struct node *node) {
    if (node->op == &op_expert_glu) return node->in[3];
    return node->in[node->op == &op_expert_mlp_grad ? 5 : 4]; /* of expert_glu_grad, and of expert_mlp */
}

int64_t expert_width(const struct node *node) {
    bool pairs = node->op == &op_expert_glu || node->op == &op_expert_glu_grad;
    bool kn = pairs && NODE_ATTRIBUTES(node, expert_glu_attributes)->weights_are_kn;
    return tensor_values(expert_down(node))->dims[kn ? 0 : 1];
}

struct tensor *ops_expert_glu(struct graph *graph, const char *name, struct tensor *rows, struct routing routing,
                              const struct expert_glu_weights *weights, struct tensor *previous,
                              struct expert_glu_attributes attributes) {
    if (!rows || !routing.ranges || !weights->gate_up || !weights->down || !weights->gate_up_bias ||
        !weights->down_bias)
        return NULL;
    struct tensor *in[OP_INPUTS_MAX] = {
        rows, routing.ranges, weights->gate_up, weights->down, weights->gate_up_bias, weights->down_bias, previous};
    struct node *node = graph_add(graph, &op_expert_glu, name, in, &attributes, NULL);
    return node ? node->out[0] : NULL;
}
