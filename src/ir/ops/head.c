/* Logits of the vocabulary; their cross-entropy loss, alone or with its gradients in one operator; the
 * log-probabilities of targets, and their gradient. */
#include "ir/ops/check.h"
#include "ir/ops/group_collectives.h"

static enum status check_head(const struct node *node, int bias) {
    TRY(check_activation(node, 0));
    const struct shape *x = &node->in[0]->shape;
    int64_t vocab = node->in[1]->shape.dims[0];
    struct shape weight = shape_make(x->dtype, 2, vocab, shape_columns(x), 1);
    TRY(check_shape(node, 1, &weight));
    struct shape vector = vector_of(x->dtype, vocab);
    return check_optional(node, bias, &vector);
}

static enum status check_targets(const struct node *node) {
    const struct shape *x = &node->in[0]->shape;
    struct shape targets = shape_make(DTYPE_I32, 2, x->dims[0], x->dims[1], 1);
    return check_shape(node, 2, &targets);
}

/* Of the whole vocabulary, where the weight has a part of it. */
static enum status check_statistics(const struct node *node, const struct vocabulary_part *part) {
    const struct shape *x = &node->in[0]->shape,
                       statistics = shape_make(DTYPE_F32, 3, x->dims[0], x->dims[1], HEAD_STATISTICS);
    if ((part->tokens > 0) == (node->in[4] != NULL)) return check_optional(node, 4, &statistics);
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

/* Of tokens whose vocabulary has other parts. */
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
    TRY(check_head(node, 3));
    TRY(check_statistics(node, &NODE_ATTRIBUTES(node, head_attributes)->part));
    out[0] = vector_of(DTYPE_F64, 1);
    return check_targets(node);
}

/* Statistics tell the loss. */
static double head_loss_flops(const struct node *node) { return node->in[4] ? 0 : head_flops(node); }

static struct head_loss_grad_attributes grad_attributes_of(struct gradients *gradients, const struct node *node) {
    const struct head_attributes *attributes = NODE_ATTRIBUTES(node, head_attributes);
    return (struct head_loss_grad_attributes){.dx = gradient_wanted(gradients, node->in[0]),
                                              .dweight = gradient_wanted(gradients, node->in[1]),
                                              .dbias = gradient_wanted(gradients, node->in[3]),
                                              .begins = gradients_graph(gradients)->single_micro_batch,
                                              .softcap = attributes->softcap,
                                              .part = attributes->part};
}

static void differentiate_head_loss(struct gradients *gradients, const struct node *node) {
    struct tensor *x = node->in[0], *weight = node->in[1], *bias = node->in[3];
    struct head_loss_grad_attributes attributes = grad_attributes_of(gradients, node);
    struct tensor *in[OP_INPUTS_MAX] = {x, weight, node->in[2], bias, node->in[4]};
    struct tensor *into[OP_OUTPUTS_MAX] = {node->out[0], attributes.dx ? gradient_target(gradients, x) : NULL,
                                           attributes.dweight ? gradient_target(gradients, weight) : NULL,
                                           attributes.dbias ? gradient_target(gradients, bias) : NULL};
    gradient_add_node(gradients, &op_head_loss_grad, node, in, &attributes, into);
    if (attributes.dx) gradient_deliver(gradients, x, into[1]);
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
    op_loops_operand(out, 0, "st.");
    op_loops_operand(out, 1, "v.");
    op_loops_operand(out, 2, "st");
    op_loops_operand(out, 3, "v");
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
    const struct collective_attributes all = {.part = {part->parts, part->position, part->stride}};
    if (letter != 'v') return false;
    struct node *own =
        graph_add(graph, &op_head_statistics, graph_format(graph, "%s.statistics", name), in, attributes, NULL);
    struct tensor *parts =
        own ? chain_add(graph, &op_all_gather, graph_format(graph, "%s.gathered", name), own->out[0], &all) : NULL;
    in[4] = parts ? chain_add(graph, &op_join_statistics, graph_format(graph, "%s.joined", name), parts, NULL) : NULL;
    return true;
}

const struct op op_head_loss = {
    .name = "head_loss",
    .attribute_bytes = sizeof(struct head_attributes),
    .min_inputs = 3,
    .inputs = 5,
    .outputs = 1,
    .infer = infer_head_loss,
    .work = OP_WORK_LOSS,
    .cost_key = key_head,
    .example = example_head,
    .flops = head_loss_flops,
    .differentiate_loss = differentiate_head_loss,
    .loops = loops_head_loss,
    .take_part = take_part_head,
    .collective_parts = collective_parts_head_loss,
    .saved_inputs = 0x1f,
    .updates = 1u << 0,
};

static void infer_gradients(const struct node *node, const struct head_loss_grad_attributes *attributes,
                            struct shape *out) {
    const struct shape *weight = &node->in[1]->shape;
    if (attributes->dx) out[0] = node->in[0]->shape;
    if (attributes->dweight) out[1] = as_accumulator(*weight);
    if (attributes->dbias) out[2] = vector_of(DTYPE_F32, weight->dims[0]);
}

static enum status infer_head_loss_grad(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    const struct head_loss_grad_attributes *attributes = NODE_ATTRIBUTES(node, head_loss_grad_attributes);
    TRY(check_head(node, 3));
    TRY(check_targets(node));
    TRY(check_statistics(node, &attributes->part));
    out[0] = vector_of(DTYPE_F64, 1);
    infer_gradients(node, attributes, out + 1);
    return STATUS_OK;
}

static double head_grad_flops(const struct node *node) {
    const struct head_loss_grad_attributes *attributes = NODE_ATTRIBUTES(node, head_loss_grad_attributes);
    return head_flops(node) * (1 + attributes->dx + attributes->dweight);
}

const struct op op_head_loss_grad = {
    .name = "head_loss_grad",
    .attribute_bytes = sizeof(struct head_loss_grad_attributes),
    .min_inputs = 3,
    .inputs = 5,
    .outputs = 4,
    .infer = infer_head_loss_grad,
    .work = OP_WORK_LOSS_GRAD,
    .cost_key = key_head_grad,
    .example = example_head,
    .flops = head_grad_flops,
    .updates = 1u << 0 | 1u << 2 | 1u << 3,
    .reads_scalars = true,
};

static enum status infer_head_log_probability(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    TRY(check_head(node, 3));
    TRY(check_statistics(node, &NODE_ATTRIBUTES(node, head_attributes)->part));
    out[0] = with_columns(as_accumulator(node->in[0]->shape), 1);
    return check_targets(node);
}

static void differentiate_head_log_probability(struct gradients *gradients, const struct node *node) {
    struct tensor *x = node->in[0], *weight = node->in[1], *bias = node->in[3];
    struct head_loss_grad_attributes attributes = grad_attributes_of(gradients, node);
    struct tensor *in[OP_INPUTS_MAX] = {x,    weight,      node->in[2],
                                        bias, node->in[4], gradient_of(gradients, node->out[0])};
    struct tensor *into[OP_OUTPUTS_MAX] = {attributes.dx ? gradient_target(gradients, x) : NULL,
                                           attributes.dweight ? gradient_target(gradients, weight) : NULL,
                                           attributes.dbias ? gradient_target(gradients, bias) : NULL};
    gradient_add_node(gradients, &op_head_log_probability_grad, node, in, &attributes, into);
    if (attributes.dx) gradient_deliver(gradients, x, into[0]);
}

static bool loops_head_log_probability(const struct node *node, int way, struct op_loops *out) {
    bool there = loops_head_loss(node, way, out);
    op_loops_operand(out, OP_INPUTS_MAX, "st.");
    return there;
}

const struct op op_head_log_probability = {
    .name = "head_log_probability",
    .attribute_bytes = sizeof(struct head_attributes),
    .min_inputs = 3,
    .inputs = 5,
    .outputs = 1,
    .infer = infer_head_log_probability,
    .work = OP_WORK_LOSS,
    .cost_key = key_head,
    .example = example_head,
    .flops = head_loss_flops,
    .differentiate = differentiate_head_log_probability,
    .loops = loops_head_log_probability,
    .take_part = take_part_head,
    .collective_parts = collective_parts_head_loss,
    .saved_inputs = 0x1f,
};

static enum status infer_head_log_probability_grad(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    const struct head_loss_grad_attributes *attributes = NODE_ATTRIBUTES(node, head_loss_grad_attributes);
    TRY(check_head(node, 3));
    TRY(check_targets(node));
    TRY(check_statistics(node, &attributes->part));
    struct shape dy = with_columns(as_accumulator(node->in[0]->shape), 1);
    TRY(check_shape(node, 5, &dy));
    infer_gradients(node, attributes, out);
    return STATUS_OK;
}

const struct op op_head_log_probability_grad = {
    .name = "head_log_probability_grad",
    .attribute_bytes = sizeof(struct head_loss_grad_attributes),
    .min_inputs = 3,
    .inputs = 6,
    .outputs = 3,
    .infer = infer_head_log_probability_grad,
    .work = OP_WORK_LOSS_GRAD,
    .cost_key = key_head_grad,
    .example = example_head,
    .flops = head_grad_flops,
    .updates = 1u << 1 | 1u << 2,
};

static enum status infer_head_statistics(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    const struct shape *x = &node->in[0]->shape;
    TRY(check_head(node, 3));
    out[0] = shape_make(DTYPE_F32, 3, x->dims[0], x->dims[1], HEAD_STATISTICS);
    return check_targets(node);
}

const struct op op_head_statistics = {
    .name = "head_statistics",
    .attribute_bytes = sizeof(struct head_attributes),
    .min_inputs = 3,
    .inputs = 4,
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
    .min_inputs = 1,
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
    op_loops_operand(out, 0, "st.");
    op_loops_operand(out, 1, "v.");
    op_loops_operand(out, 2, "v");
    op_loops_operand(out, OP_INPUTS_MAX, "stv");
    return way == 0;
}

const struct op op_head_logits = {
    .name = "head_logits",
    .attribute_bytes = sizeof(struct head_attributes),
    .min_inputs = 2,
    .inputs = 3,
    .outputs = 1,
    .infer = infer_head_logits,
    .work = OP_WORK_LOGITS,
    .cost_key = key_head,
    .flops = head_flops,
    .loops = loops_head_logits,
};

struct tensor *ops_head_loss(struct graph *graph, const char *name, struct tensor *x, struct tensor *weight,
                             struct tensor *targets, struct tensor *bias, struct head_attributes attributes) {
    if (!x || !weight || !targets) return NULL;
    struct tensor *in[OP_INPUTS_MAX] = {x, weight, targets, bias};
    struct tensor *into[OP_OUTPUTS_MAX] = {graph_tensor(graph, TENSOR_RESULT, "loss", vector_of(DTYPE_F64, 1))};
    struct node *node = graph_add(graph, &op_head_loss, name, in, &attributes, into);
    return node ? node->out[0] : NULL;
}

struct tensor *ops_head_log_probability(struct graph *graph, const char *name, struct tensor *x, struct tensor *weight,
                                        struct tensor *targets, struct tensor *bias,
                                        struct head_attributes attributes) {
    if (!x || !weight || !targets) return NULL;
    struct tensor *in[OP_INPUTS_MAX] = {x, weight, targets, bias};
    struct node *node = graph_add(graph, &op_head_log_probability, name, in, &attributes, NULL);
    return node ? node->out[0] : NULL;
}

struct tensor *ops_head_logits(struct graph *graph, const char *name, struct tensor *x, struct tensor *weight,
                               struct tensor *bias, struct head_attributes attributes) {
    if (!x || !weight) return NULL;
    struct tensor *in[OP_INPUTS_MAX] = {x, weight, bias};
    struct node *node = graph_add(graph, &op_head_logits, name, in, &attributes, NULL);
    if (!node) return NULL;
    node->out[0]->kept = true;
    return node->out[0];
}
