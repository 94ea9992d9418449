/* The loss of pairs of sequences of which one is preferred: direct preference optimisation (Rafailov et al., arXiv
 * 2305.18290) and its variants. */

#include "ir/ops/check.h"

const char *pair_loss_name(enum pair_loss loss) {
#define PAIR_LOSS_NAME(name, text) text,
    static const char *const names[] = {PAIR_LOSS_LIST(PAIR_LOSS_NAME)};
#undef PAIR_LOSS_NAME
    return names[loss];
}

struct pair_weights pair_weights_of(const struct preference_attributes *attributes) {
    double wrong = attributes->label_smoothing, right = 1 - wrong;
    if (attributes->loss != PAIR_LOSS_ROBUST) return (struct pair_weights){right, wrong};
    return (struct pair_weights){right / (right - wrong), -wrong / (right - wrong)};
}

static enum status infer_preference_loss(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    const struct shape *y = &node->in[0]->shape;
    if (y->dtype != DTYPE_F32 || y->rank != 3 || y->dims[2] != 1)
        return status_set(STATUS_BAD_INPUT, "input 0 (%s) holds no log-probabilities [S, T, 1]", node->in[0]->name);
    if (y->dims[0] % 2 != 0) return status_set(STATUS_BAD_INPUT, "%lld sequences are no pairs", (long long)y->dims[0]);
    const struct shape targets = shape_make(DTYPE_I32, 2, y->dims[0], y->dims[1], 1),
                       reference = shape_make(DTYPE_F64, 2, y->dims[0], 1, 1);
    TRY(check_shape(node, 1, &targets));
    TRY(check_shape(node, 2, &reference));
    out[0] = vector_of(DTYPE_F64, PREFERENCE_FIGURES);
    return STATUS_OK;
}

static enum status infer_preference_loss_grad(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    TRY(infer_preference_loss(node, out));
    out[1] = node->in[0]->shape;
    return STATUS_OK;
}

static void differentiate_preference_loss(struct gradients *gradients, const struct node *node) {
    struct tensor *y = node->in[0], *in[OP_INPUTS_MAX] = {y, node->in[1], node->in[2]};
    struct tensor *into[OP_OUTPUTS_MAX] = {node->out[0], gradient_target(gradients, y)};
    gradient_add_node(gradients, &op_preference_loss_grad, node, in, node->attributes, into);
    gradient_deliver(gradients, y, into[1]);
}

/* By pairs; each needs all positions. */
static bool loops_preference_loss(const struct node *node, int way, struct op_loops *out) {
    op_loops_add(out, 's', node->in[0]->shape.dims[0] / 2);
    op_loops_operand(out, 0, "s..");
    op_loops_operand(out, 1, "s.");
    op_loops_operand(out, 2, "s.");
    return way == 0;
}

const struct op op_preference_loss = {
    .name = "preference_loss",
    .attribute_bytes = sizeof(struct preference_attributes),
    .min_inputs = 3,
    .inputs = 3,
    .outputs = 1,
    .infer = infer_preference_loss,
    .cost_key = op_key_nothing,
    .differentiate_loss = differentiate_preference_loss,
    .loops = loops_preference_loss,
    .saved_inputs = 0x7,
    .updates = 1u << 0,
};

const struct op op_preference_loss_grad = {
    .name = "preference_loss_grad",
    .attribute_bytes = sizeof(struct preference_attributes),
    .min_inputs = 3,
    .inputs = 3,
    .outputs = 2,
    .infer = infer_preference_loss_grad,
    .cost_key = op_key_nothing,
    .updates = 1u << 0,
    .reads_scalars = true,
};

struct tensor *ops_preference_loss(struct graph *graph, const char *name, struct tensor *y, struct tensor *targets,
                                   struct tensor *reference, struct preference_attributes attributes) {
    if (!y || !targets || !reference) return NULL;
    struct tensor *in[OP_INPUTS_MAX] = {y, targets, reference};
    struct shape figures = vector_of(DTYPE_F64, PREFERENCE_FIGURES);
    struct tensor *into[OP_OUTPUTS_MAX] = {graph_tensor(graph, TENSOR_RESULT, "loss", figures)};
    struct node *node = graph_add(graph, &op_preference_loss, name, in, &attributes, into);
    return node ? node->out[0] : NULL;
}
