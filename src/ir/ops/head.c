/* Logits of the vocabulary; their cross-entropy loss, alone or with its gradients in one operator; the
 * log-probabilities of targets, and their gradient. */
#include "ir/ops/check.h"

static enum status check_head(const struct node *node, int bias) {
    TRY(check_activation(node, 0));
    const struct shape *x = &node->in[0]->shape;
    int64_t vocab = node->in[1]->shape.dims[0];
    TRY(check_shape(node, 1, shape_make(x->dtype, 2, vocab, shape_columns(x), 1)));
    return check_shape(node, bias, vector_of(x->dtype, vocab));
}

static struct shape statistics_of(const struct shape *x) { return with_columns(as_accumulator(*x), HEAD_STATISTICS); }

/* Targets, and statistics of the whole vocabulary where the weight has a part of it. */
static enum status check_head_loss(const struct node *node, const struct vocabulary_part *part) {
    const struct shape *x = &node->in[0]->shape;
    TRY(check_head(node, 3));
    TRY(check_shape(node, 2, tokens_of(x)));
    if ((part->tokens > 0) == (node->in[4] != NULL)) return check_shape(node, 4, statistics_of(x));
    return status_set(STATUS_BAD_INPUT, "statistics are needed where the weight has a part of the vocabulary alone");
}

static double head_flops(const struct node *node) {
    return 2.0 * (double)shape_rows(&node->in[0]->shape) * (double)shape_elements(&node->in[1]->shape);
}

static void key_softcap(double softcap, struct op_key *key) {
    if (softcap > 0) op_key_add(key, " capped");
}

static void key_head(const struct node *node, struct op_key *key) {
    key_softcap(NODE_ATTRIBUTES(node, head_attributes)->softcap, key);
}

static void key_head_grad(const struct node *node, struct op_key *key) {
    key_softcap(NODE_ATTRIBUTES(node, head_loss_grad_attributes)->softcap, key);
}

/* An example for tokens whose vocabulary has other parts. */
static double example_statistic(int64_t index) {
    static const double values[HEAD_STATISTICS] = {[STATISTIC_LARGEST] = 1, [STATISTIC_SUM] = 20};
    return values[index % HEAD_STATISTICS] + (double)(index % 7) / 16;
}

static double example_head(const struct node *node, const struct tensor *tensor, int64_t index) {
    if (node->in[4] && tensor->id == node->in[4]->id) return example_statistic(index);
    if (tensor->shape.dtype != DTYPE_I32) return op_example_default(node, tensor, index);
    return op_example_id(tensor, index, node->in[1]->shape.dims[0]);
}

static enum status infer_head_loss(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    out[0] = vector_of(DTYPE_F64, 1);
    return check_head_loss(node, &NODE_ATTRIBUTES(node, head_attributes)->part);
}

/* Statistics tell the loss. */
static double head_loss_flops(const struct node *node) { return node->in[4] ? 0 : head_flops(node); }

/* The gradients of x, weight and bias that are wanted; with `loss` that too, else from the gradient of output 0. */
static void add_rule(struct gradients *gradients, const struct op *op, const struct node *node, struct tensor *loss) {
    const struct head_attributes *attributes = NODE_ATTRIBUTES(node, head_attributes);
    struct tensor *x = gradient_if_wanted(gradients, node->in[0]), *weight = gradient_if_wanted(gradients, node->in[1]),
                  *bias = gradient_if_wanted(gradients, node->in[3]);
    struct head_loss_grad_attributes grad = {.dx = x,
                                             .dweight = weight,
                                             .dbias = bias,
                                             .begins = gradients_graph(gradients)->single_micro_batch,
                                             .softcap = attributes->softcap,
                                             .part = attributes->part};
    struct tensor *in[OP_INPUTS_MAX] = {node->in[0], node->in[1], node->in[2], node->in[3], node->in[4]};
    if (!loss) in[5] = gradient_of(gradients, node->out[0]);
    gradient_add_rule(gradients, op, node, in, &grad,
                      loss ? OPERANDS(loss, x, weight, bias) : OPERANDS(x, weight, bias));
}

static void differentiate_head_loss(struct gradients *gradients, const struct node *node) {
    add_rule(gradients, &op_head_loss_grad, node, node->out[0]);
}

/* By rows of the vocabulary too: the parts tell each other the maximum, the sum of exponentials and the target's logit
 * of each token, and make their logits again for the gradients. */
static bool loops_head_loss(const struct node *node, int way, struct op_loops *out) {
    if (node->in[4]) return false; /* it is a part already */
    loops_add_tokens(out, node->in[0]);
    struct op_index *rows = op_loops_add(out, 'v', node->in[1]->shape.dims[0]);
    rows->padded = true;
    rows->collective_bytes = HEAD_STATISTICS * (double)dtype_bytes(DTYPE_F32) * (double)shape_rows(&node->in[0]->shape);
    rows->extra_flops = head_flops(node);
    op_loops_operands(out, node->op == &op_head_loss ? "st.,v.,st,v" : "st.,v.,st,v->st.");
    return way == 0;
}

static void take_part_head(void *attributes, char letter, const struct index_part *part) {
    if (letter == 'v')
        ((struct head_attributes *)attributes)->part =
            (struct vocabulary_part){index_part_first(part), index_part_used(part), part->size};
}

static bool collective_parts_head_loss(struct graph *graph, const char *name, char letter,
                                       const struct index_part *part, const void *attributes,
                                       struct tensor *in[OP_INPUTS_MAX]) {
    const struct collective_attributes all = {
        .part = {.parts = part->parts, .position = part->position, .stride = part->stride}};
    if (letter != 'v') return false;
    struct tensor *own =
        ops_apply(graph, &op_head_statistics, graph_format(graph, "%s.statistics", name), in, attributes);
    struct tensor *parts =
        ops_apply(graph, &op_all_gather, graph_format(graph, "%s.gathered", name), OPERANDS(own), &all);
    in[4] = ops_apply(graph, &op_join_statistics, graph_format(graph, "%s.joined", name), OPERANDS(parts), NULL);
    return true;
}

#define HEAD_OP(op_name, ...)                                                                                          \
    const struct op op_##op_name = {                                                                                   \
        .name = #op_name,                                                                                              \
        .attribute_bytes = sizeof(struct head_attributes),                                                             \
        .inputs = 5,                                                                                                   \
        .optional = 2,                                                                                                 \
        .outputs = 1,                                                                                                  \
        .infer = infer_##op_name,                                                                                      \
        .work = OP_WORK_LOSS,                                                                                          \
        .cost_key = key_head,                                                                                          \
        .example = example_head,                                                                                       \
        .flops = head_loss_flops,                                                                                      \
        .loops = loops_head_loss,                                                                                      \
        .take_part = take_part_head,                                                                                   \
        .collective_parts = collective_parts_head_loss,                                                                \
        .saved_inputs = 0x1f,                                                                                          \
        __VA_ARGS__,                                                                                                   \
    };
#define HEAD_GRAD_OP(op_name, ...)                                                                                     \
    const struct op op_##op_name = {                                                                                   \
        .name = #op_name,                                                                                              \
        .attribute_bytes = sizeof(struct head_loss_grad_attributes),                                                   \
        .infer = infer_##op_name,                                                                                      \
        .work = OP_WORK_LOSS_GRAD,                                                                                     \
        .cost_key = key_head_grad,                                                                                     \
        .example = example_head,                                                                                       \
        .flops = head_grad_flops,                                                                                      \
        __VA_ARGS__,                                                                                                   \
    };
HEAD_OP(head_loss, .differentiate_loss = differentiate_head_loss, .updates = 1u << 0)

static void infer_gradients(const struct node *node, const struct head_loss_grad_attributes *attributes,
                            struct shape *out) {
    const struct shape *weight = &node->in[1]->shape;
    if (attributes->dx) out[0] = node->in[0]->shape;
    if (attributes->dweight) out[1] = as_accumulator(*weight);
    if (attributes->dbias) out[2] = vector_of(DTYPE_F32, weight->dims[0]);
}

static enum status infer_head_loss_grad(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    const struct head_loss_grad_attributes *attributes = NODE_ATTRIBUTES(node, head_loss_grad_attributes);
    TRY(check_head_loss(node, &attributes->part));
    out[0] = vector_of(DTYPE_F64, 1);
    infer_gradients(node, attributes, out + 1);
    return STATUS_OK;
}

static double head_grad_flops(const struct node *node) {
    const struct head_loss_grad_attributes *attributes = NODE_ATTRIBUTES(node, head_loss_grad_attributes);
    return head_flops(node) * (1 + attributes->dx + attributes->dweight);
}

HEAD_GRAD_OP(head_loss_grad, .inputs = 5, .optional = 2, .outputs = 4, .updates = 1u << 0 | 1u << 2 | 1u << 3,
             .reads_scalars = true)

static enum status infer_head_log_probability(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    out[0] = with_columns(as_accumulator(node->in[0]->shape), 1);
    return check_head_loss(node, &NODE_ATTRIBUTES(node, head_attributes)->part);
}

static void differentiate_head_log_probability(struct gradients *gradients, const struct node *node) {
    add_rule(gradients, &op_head_log_probability_grad, node, NULL);
}

HEAD_OP(head_log_probability, .differentiate = differentiate_head_log_probability)

static enum status infer_head_log_probability_grad(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    const struct head_loss_grad_attributes *attributes = NODE_ATTRIBUTES(node, head_loss_grad_attributes);
    TRY(check_head_loss(node, &attributes->part));
    TRY(check_shape(node, 5, with_columns(as_accumulator(node->in[0]->shape), 1)));
    infer_gradients(node, attributes, out);
    return STATUS_OK;
}

HEAD_GRAD_OP(head_log_probability_grad, .inputs = 6, .optional = 3, .outputs = 3, .updates = 1u << 1 | 1u << 2)

static enum status infer_head_statistics(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    const struct shape *x = &node->in[0]->shape;
    TRY(check_head(node, 3));
    out[0] = statistics_of(x);
    return check_shape(node, 2, tokens_of(x));
}

const struct op op_head_statistics = {
    .name = "head_statistics",
    .attribute_bytes = sizeof(struct head_attributes),
    .inputs = 4,
    .optional = 1,
    .outputs = 1,
    .infer = infer_head_statistics,
    .work = OP_WORK_LOSS,
    .cost_key = key_head,
    .example = example_head,
    .flops = head_flops,
};

static enum status infer_join_statistics(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    const struct shape *parts = &node->in[0]->shape;
    if (parts->dtype != DTYPE_F32 || parts->rank != 4 || parts->dims[3] != HEAD_STATISTICS)
        return status_set(STATUS_BAD_INPUT, "input 0 (%s) holds no statistics [N, S, T, 3] of parts",
                          node->in[0]->name);
    out[0] = parts_one_of(parts);
    return STATUS_OK;
}

static double example_join(const struct node *node, const struct tensor *tensor, int64_t index) {
    (void)node, (void)tensor;
    return example_statistic(index);
}

const struct op op_join_statistics = {
    .name = "join_statistics",
    .inputs = 1,
    .outputs = 1,
    .infer = infer_join_statistics,
    .example = example_join,
    .cost_key = op_key_nothing,
};

static enum status infer_head_logits(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    TRY(check_head(node, 2));
    out[0] = with_columns(as_accumulator(node->in[0]->shape), node->in[1]->shape.dims[0]);
    return STATUS_OK;
}

/* Logits of a part are columns of all. */
static bool loops_head_logits(const struct node *node, int way, struct op_loops *out) {
    loops_add_tokens(out, node->in[0]);
    op_loops_add(out, 'v', node->in[1]->shape.dims[0])->padded = true;
    op_loops_operands(out, "st.,v.,v->stv");
    return way == 0;
}

const struct op op_head_logits = {
    .name = "head_logits",
    .attribute_bytes = sizeof(struct head_attributes),
    .inputs = 3,
    .optional = 1,
    .outputs = 1,
    .infer = infer_head_logits,
    .work = OP_WORK_LOGITS,
    .cost_key = key_head,
    .flops = head_flops,
    .loops = loops_head_logits,
};

struct tensor *ops_head_loss(struct graph *graph, const char *name, struct tensor *x, struct tensor *weight,
                             struct tensor *targets, struct tensor *bias, struct head_attributes attributes) {
    return ops_apply_loss(graph, &op_head_loss, name, OPERANDS(x, weight, targets, bias), &attributes, 1);
}

struct tensor *ops_head_log_probability(struct graph *graph, const char *name, struct tensor *x, struct tensor *weight,
                                        struct tensor *targets, struct tensor *bias,
                                        struct head_attributes attributes) {
    return ops_apply(graph, &op_head_log_probability, name, OPERANDS(x, weight, targets, bias), &attributes);
}

struct tensor *ops_head_logits(struct graph *graph, const char *name, struct tensor *x, struct tensor *weight,
                               struct tensor *bias, struct head_attributes attributes) {
    struct tensor *logits = ops_apply(graph, &op_head_logits, name, OPERANDS(x, weight, bias), &attributes);
    if (logits) logits->kept = true;
    return logits;
}

/* ---- the loss of pairs ----
 *
 * For preference pairs: direct preference optimisation (Rafailov et al., arXiv 2305.18290) and its variants. */

const char *pair_loss_name(enum pair_loss loss) {
#define PAIR_LOSS_NAME(name, text) text,
    static const char *const names[] = {PAIR_LOSS_LIST(PAIR_LOSS_NAME)};
    return names[loss];
}

struct pair_weights pair_weights_of(const struct preference_attributes *attributes) {
    double wrong = attributes->label_smoothing, right = 1 - wrong;
    if (attributes->loss != PAIR_LOSS_ROBUST) return (struct pair_weights){right, wrong};
    return (struct pair_weights){right / (right - wrong), -wrong / (right - wrong)};
}

static enum status infer_preference_loss(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    const struct shape *y = &node->in[0]->shape;
    TRY(check_log_probabilities(node));
    if (y->dims[0] % 2 != 0) return status_set(STATUS_BAD_INPUT, "%lld sequences are no pairs", (long long)y->dims[0]);
    out[0] = vector_of(DTYPE_F64, PREFERENCE_FIGURES);
    return check_shape(node, 2, shape_make(DTYPE_F64, 2, y->dims[0], 1, 1));
}

static enum status infer_preference_loss_grad(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    TRY(infer_preference_loss(node, out));
    out[1] = node->in[0]->shape;
    return STATUS_OK;
}

static void differentiate_preference_loss(struct gradients *gradients, const struct node *node) {
    gradient_add_rule(gradients, &op_preference_loss_grad, node, node->in, node->attributes,
                      OPERANDS(node->out[0], node->in[0]));
}

/* By pairs; each needs all positions. */
static bool loops_preference_loss(const struct node *node, int way, struct op_loops *out) {
    op_loops_add(out, 's', node->in[0]->shape.dims[0] / 2);
    op_loops_operands(out, "s..,s.,s.");
    return way == 0;
}

const struct op op_preference_loss = {
    .name = "preference_loss",
    .attribute_bytes = sizeof(struct preference_attributes),
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
    .inputs = 3,
    .outputs = 2,
    .infer = infer_preference_loss_grad,
    .cost_key = op_key_nothing,
    .updates = 1u << 0,
    .reads_scalars = true,
};

struct tensor *ops_preference_loss(struct graph *graph, const char *name, struct tensor *y, struct tensor *targets,
                                   struct tensor *reference, struct preference_attributes attributes) {
    return ops_apply_loss(graph, &op_preference_loss, name, OPERANDS(y, targets, reference), &attributes,
                          PREFERENCE_FIGURES);
}
