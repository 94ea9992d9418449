/* How experts are used: counts of their slots, and the loss that balances them (Fedus et al., arXiv 2101.03961,
 * equations 4 to 6), as transformers' load_balancing_loss_func has it: over all tokens of a grain and all layers
 * together. Each layer adds what it takes to a running sum. */
#include "ops/check.h"

/* Rows of a load: how many slots each expert has, and the sum of the probabilities that tokens give it. */
static struct shape load_of(int64_t experts) { return shape_make(DTYPE_F32, 2, LOAD_ROWS, experts, 1); }

static enum status infer_expert_load(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    TRY(check_activation(node, 0));
    int64_t experts = shape_columns(&node->in[0]->shape);
    const struct shape ranges = shape_make(DTYPE_I32, 2, experts, 2, 1);
    TRY(check_shape(node, 1, &ranges));
    out[0] = load_of(experts);
    return check_optional(node, 2, &out[0]);
}

static double example_expert_load(const struct node *node, const struct tensor *tensor, int64_t index) {
    if (tensor->shape.dtype != DTYPE_I32) return op_example_default(node, tensor, index);
    return example_range(shape_rows(&node->in[0]->shape), shape_columns(&node->in[0]->shape), index);
}

static void differentiate_expert_load(struct gradients *gradients, const struct node *node) {
    struct tensor *logits = node->in[0], *previous = node->in[2], *dload = gradient_of(gradients, node->out[0]);
    if (!dload) return;
    if (previous) gradient_contribute(gradients, previous, dload);
    if (!gradient_wanted(gradients, logits)) return;
    struct tensor *in[OP_INPUTS_MAX] = {dload, logits};
    struct tensor *into[OP_OUTPUTS_MAX] = {gradient_target(gradients, logits)};
    gradient_add_node(gradients, &op_expert_load_grad, node, in, NULL, into);
    gradient_deliver_sum(gradients, node, logits, into[0]);
}

const struct op op_expert_load = {
    .name = "expert_load",
    .inputs_least = 2,
    .inputs = 3,
    .outputs = 1,
    .infer = infer_expert_load,
    .example = example_expert_load,
    .differentiate = differentiate_expert_load,
    .saved_inputs = 1u << 0,
};

static enum status infer_expert_load_grad(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    TRY(check_activation(node, 1));
    out[0] = node->in[1]->shape;
    const struct shape load = load_of(shape_columns(&out[0]));
    return check_shape(node, 0, &load);
}

const struct op op_expert_load_grad = {
    .name = "expert_load_grad",
    .inputs_least = 2,
    .inputs = 2,
    .outputs = 1,
    .infer = infer_expert_load_grad,
};

static enum status infer_balanced_loss(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    const struct shape *y = &node->in[0]->shape, *load = &node->in[2]->shape;
    if (y->dtype != DTYPE_F32 || y->rank != 3 || y->dims[2] != 1)
        return status_set(STATUS_BAD_INPUT, "input 0 (%s) holds no log-probabilities [S, T, 1]", node->in[0]->name);
    const struct shape targets = shape_make(DTYPE_I32, 2, y->dims[0], y->dims[1], 1),
                       wanted = load_of(shape_columns(load));
    TRY(check_shape(node, 1, &targets));
    out[0] = vector_of(DTYPE_F64, 1);
    return check_shape(node, 2, &wanted);
}

static enum status infer_balanced_loss_grad(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    TRY(infer_balanced_loss(node, out));
    out[1] = node->in[0]->shape;
    if (NODE_ATTRIBUTES(node, balance_grad_attributes)->dload) out[2] = node->in[2]->shape;
    return STATUS_OK;
}

/* Without experts that train, or anything before them, there is no gradient of the load. */
static void differentiate_balanced_loss(struct gradients *gradients, const struct node *node) {
    struct tensor *y = node->in[0], *load = node->in[2], *in[OP_INPUTS_MAX] = {y, node->in[1], load};
    struct balance_grad_attributes attributes = {.balance = *NODE_ATTRIBUTES(node, balance_attributes),
                                                 .dload = gradient_wanted(gradients, load)};
    struct tensor *into[OP_OUTPUTS_MAX] = {node->out[0], gradient_target(gradients, y),
                                           attributes.dload ? gradient_target(gradients, load) : NULL};
    gradient_add_node(gradients, &op_balanced_loss_grad, node, in, &attributes, into);
    gradient_deliver(gradients, y, into[1]);
    if (attributes.dload) gradient_deliver(gradients, load, into[2]);
}

const struct op op_balanced_loss = {
    .name = "balanced_loss",
    .attribute_bytes = sizeof(struct balance_attributes),
    .inputs_least = 3,
    .inputs = 3,
    .outputs = 1,
    .infer = infer_balanced_loss,
    .cost_key = op_key_nothing,
    .differentiate_loss = differentiate_balanced_loss,
    .saved_inputs = 0x7,
    .updates = 1u << 0,
};

const struct op op_balanced_loss_grad = {
    .name = "balanced_loss_grad",
    .attribute_bytes = sizeof(struct balance_grad_attributes),
    .inputs_least = 3,
    .inputs = 3,
    .outputs = 3,
    .infer = infer_balanced_loss_grad,
    .cost_key = op_key_nothing,
    .updates = 1u << 0,
    .reads_scalars = true,
};

static enum status infer_count_slots(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    const struct shape *ranges = &node->in[0]->shape;
    if (ranges->dtype != DTYPE_I32 || ranges->rank != 2 || ranges->dims[1] != 2)
        return status_set(STATUS_BAD_INPUT, "input 0 (%s) holds no ranges [E, 2]", node->in[0]->name);
    out[0] = vector_of(DTYPE_F64, ranges->dims[0]);
    return STATUS_OK;
}

static double example_ranges(const struct node *node, const struct tensor *tensor, int64_t index) {
    if (tensor->shape.dtype != DTYPE_I32) return op_example_default(node, tensor, index);
    return (double)(index / 2 + index % 2); /* one slot each */
}

const struct op op_count_slots = {
    .name = "count_slots",
    .inputs_least = 1,
    .inputs = 1,
    .outputs = 1,
    .infer = infer_count_slots,
    .example = example_ranges,
    .updates = 1u << 0,
};

struct tensor *ops_expert_load(struct graph *graph, const char *name, struct tensor *logits, struct routing routing,
                               struct tensor *previous) {
    if (!logits || !routing.ranges) return NULL;
    struct tensor *in[OP_INPUTS_MAX] = {logits, routing.ranges, previous};
    struct node *node = graph_add(graph, &op_expert_load, name, in, NULL, NULL);
    return node ? node->out[0] : NULL;
}

struct tensor *ops_balanced_loss(struct graph *graph, const char *name, struct tensor *y, struct tensor *targets,
                                 struct tensor *load, struct balance_attributes attributes) {
    if (!y || !targets || !load) return NULL;
    struct tensor *in[OP_INPUTS_MAX] = {y, targets, load};
    struct tensor *into[OP_OUTPUTS_MAX] = {graph_tensor(graph, TENSOR_RESULT, "loss", vector_of(DTYPE_F64, 1))};
    struct node *node = graph_add(graph, &op_balanced_loss, name, in, &attributes, into);
    return node ? node->out[0] : NULL;
}
