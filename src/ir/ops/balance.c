/* How experts are used: counts of their slots, and the loss that balances them (Fedus et al., arXiv 2101.03961,
 * equations 4 to 6), as transformers' load_balancing_loss_func computes it: over all tokens of a micro-batch that its
 * attention mask keeps, and all layers together. Each layer adds its load to a running sum. */
#include "ir/ops/check.h"

/* Rows of a load: how many slots each expert has, and the sum of the probabilities that tokens give it. */
static struct shape load_of(int64_t experts) { return shape_make(DTYPE_F32, 2, LOAD_ROWS, experts, 1); }

/* Logits and targets of the same tokens. */
static enum status check_router(const struct node *node, int logits, int targets) {
    TRY(check_activation(node, logits));
    const struct shape *own = &node->in[logits]->shape,
                       wanted = shape_make(DTYPE_I32, 2, own->dims[0], own->dims[1], 1);
    return check_shape(node, targets, &wanted);
}

static enum status infer_expert_load(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    TRY(check_router(node, 0, 2));
    int64_t experts = shape_columns(&node->in[0]->shape);
    const struct shape slots = vector_of(DTYPE_I32, experts);
    TRY(check_shape(node, 1, &slots));
    out[0] = load_of(experts);
    return check_optional(node, 3, &out[0]);
}

static void differentiate_expert_load(struct gradients *gradients, const struct node *node) {
    struct tensor *logits = node->in[0], *previous = node->in[3], *dload = gradient_of(gradients, node->out[0]);
    if (!dload) return;
    if (previous) gradient_contribute(gradients, previous, dload);
    if (!gradient_wanted(gradients, logits)) return;
    struct tensor *in[OP_INPUTS_MAX] = {dload, logits, node->in[2]};
    struct tensor *into[OP_OUTPUTS_MAX] = {gradient_target(gradients, logits)};
    gradient_add_node(gradients, &op_expert_load_grad, node, in, NULL, into);
    gradient_deliver_sum(gradients, node, logits, into[0]);
}

const struct op op_expert_load = {
    .name = "expert_load",
    .min_inputs = 3,
    .inputs = 4,
    .outputs = 1,
    .infer = infer_expert_load,
    .differentiate = differentiate_expert_load,
    .saved_inputs = 1u << 0 | 1u << 2,
};

static enum status infer_expert_load_grad(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    TRY(check_router(node, 1, 2));
    out[0] = node->in[1]->shape;
    const struct shape load = load_of(shape_columns(&out[0]));
    return check_shape(node, 0, &load);
}

const struct op op_expert_load_grad = {
    .name = "expert_load_grad",
    .min_inputs = 3,
    .inputs = 3,
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
    .min_inputs = 3,
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
    .min_inputs = 3,
    .inputs = 3,
    .outputs = 3,
    .infer = infer_balanced_loss_grad,
    .cost_key = op_key_nothing,
    .updates = 1u << 0,
    .reads_scalars = true,
};

static enum status infer_count_slots(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    const struct shape slots = vector_of(DTYPE_I32, shape_elements(&node->in[0]->shape));
    TRY(check_shape(node, 0, &slots));
    out[0] = vector_of(DTYPE_F64, slots.dims[0]);
    return STATUS_OK;
}

const struct op op_count_slots = {
    .name = "count_slots",
    .min_inputs = 1,
    .inputs = 1,
    .outputs = 1,
    .infer = infer_count_slots,
    .updates = 1u << 0,
};

struct tensor *ops_expert_load(struct graph *graph, const char *name, struct tensor *logits, struct routing routing,
                               struct tensor *targets, struct tensor *previous) {
    if (!logits || !routing.slots || !targets) return NULL;
    struct tensor *in[OP_INPUTS_MAX] = {logits, routing.slots, targets, previous};
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
