/* Cases of heads, losses, reductions over gradients, and updates. */
#include "support/op_case_build.h"

/* Most logits are bent by it. */
static const double LOGITS_CAP = 1.5;

static void head_inputs(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes,
                        struct tensor *in[OP_INPUTS_MAX], bool targets) {
    int next = 0;
    in[next++] = activation(graph, op_case, "x", sizes->columns);
    in[next++] = graph_parameter(graph, "weight", 2, sizes->vocab, sizes->columns);
    if (targets) in[next++] = integers(graph, "targets");
    if (has(op_case, CASE_BIAS)) in[next] = graph_parameter(graph, "bias", 1, sizes->vocab, 1);
}

static struct head_attributes head_attributes_of(const struct op_case *op_case, const struct op_sizes *sizes) {
    struct head_attributes attributes = {.softcap = has(op_case, CASE_CAPPED) ? LOGITS_CAP : 0};
    if (has(op_case, CASE_PART))
        attributes.part = (struct vocabulary_part){
            .first = PART_FIRST, .rows = sizes->vocab - PART_FIRST - PART_BEHIND, .tokens = sizes->vocab};
    return attributes;
}

void build_head_statistics(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    struct tensor *in[OP_INPUTS_MAX] = {0};
    head_inputs(graph, op_case, sizes, in, true);
    struct head_attributes head = head_attributes_of(op_case, sizes);
    add(graph, &op_head_statistics, "statistics", &head, in, NULL);
}

static struct tensor *last_made(const struct graph *graph) {
    return graph->nodes.items[graph->nodes.count - 1]->out[0];
}

void build_join_statistics(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    enum { PARTS = 3 };
    (void)op_case, (void)sizes;
    struct shape shape = shape_make(DTYPE_F32, 3, PARTS, graph->micro_batch_sequences, graph->sequence_length);
    shape.rank = 4, shape.dims[3] = HEAD_STATISTICS;
    struct tensor *in[OP_INPUTS_MAX] = {graph_tensor(graph, TENSOR_ACTIVATION, "parts", shape)};
    add(graph, &op_join_statistics, "joined", NULL, in, NULL);
}

/* Statistics of a vocabulary of one part. */
static struct tensor *statistics_of(struct graph *graph, struct tensor *const head[OP_INPUTS_MAX],
                                    const struct head_attributes *attributes) {
    add(graph, &op_head_statistics, "statistics", attributes, head, NULL);
    struct shape own = last_made(graph)->shape;
    struct convert_attributes stack = {{own.dtype, 4, {1, own.dims[0], own.dims[1], own.dims[2]}}};
    add(graph, &op_convert, "parts", &stack, (struct tensor *[OP_INPUTS_MAX]){last_made(graph)}, NULL);
    add(graph, &op_join_statistics, "joined", NULL, (struct tensor *[OP_INPUTS_MAX]){last_made(graph)}, NULL);
    return last_made(graph);
}

void build_head_loss(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    struct tensor *in[OP_INPUTS_MAX] = {0};
    head_inputs(graph, op_case, sizes, in, true);
    struct tensor *out[OP_OUTPUTS_MAX] = {
        graph_tensor(graph, TENSOR_RESULT, "loss", shape_make(DTYPE_F64, 1, 1, 1, 1))};
    struct head_attributes head = head_attributes_of(op_case, sizes);
    if (has(op_case, CASE_PART)) in[4] = statistics_of(graph, in, &head);
    add(graph, &op_head_loss, "head", &head, in, out);
    if (op_case->op == &op_head_loss) return;
    bool frozen = has(op_case, CASE_FROZEN);
    struct head_loss_grad_attributes attributes = {
        .dx = !has(op_case, CASE_NO_DX),
        .dweight = !frozen,
        .dbias = has(op_case, CASE_BIAS) && !frozen,
        .begins = has(op_case, CASE_BEGINS),
        .softcap = head.softcap,
        .part = head.part,
    };
    struct tensor *made[OP_OUTPUTS_MAX] = {
        graph_tensor(graph, TENSOR_RESULT, "loss.again", shape_make(DTYPE_F64, 1, 1, 1, 1)),
        IF_WANTED(attributes.dx, activation(graph, op_case, "d.x", sizes->columns)),
        IF_WANTED(attributes.dweight, accumulator(graph, "d.weight", 2, sizes->vocab, sizes->columns)),
        IF_WANTED(attributes.dbias, accumulator(graph, "d.bias", 1, sizes->vocab, 1))};
    add(graph, &op_head_loss_grad, "head.grad", &attributes, in, made);
}

void build_head_log_probability(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    struct tensor *in[OP_INPUTS_MAX] = {0};
    head_inputs(graph, op_case, sizes, in, true);
    struct head_attributes head = head_attributes_of(op_case, sizes);
    if (has(op_case, CASE_PART)) in[4] = statistics_of(graph, in, &head);
    add(graph, &op_head_log_probability, "y", &head, in, NULL);
    if (op_case->op == &op_head_log_probability) return;
    bool frozen = has(op_case, CASE_FROZEN);
    struct head_loss_grad_attributes attributes = {.dx = !has(op_case, CASE_NO_DX),
                                                   .dweight = !frozen,
                                                   .dbias = has(op_case, CASE_BIAS) && !frozen,
                                                   .softcap = head.softcap,
                                                   .part = head.part};
    in[5] = row_values(graph, "dy", 1);
    struct tensor *made[OP_OUTPUTS_MAX] = {
        IF_WANTED(attributes.dx, activation(graph, op_case, "d.x", sizes->columns)),
        IF_WANTED(attributes.dweight, accumulator(graph, "d.weight", 2, sizes->vocab, sizes->columns)),
        IF_WANTED(attributes.dbias, accumulator(graph, "d.bias", 1, sizes->vocab, 1))};
    add(graph, &op_head_log_probability_grad, "head.grad", &attributes, in, made);
}

static struct tensor *figures(struct graph *graph, const char *name) {
    return graph_tensor(graph, TENSOR_RESULT, name, shape_make(DTYPE_F64, 1, PREFERENCE_FIGURES, 1, 1));
}

void build_preference(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    struct preference_attributes attributes = op_case->pairs;
    if (attributes.beta <= 0) attributes.beta = 0.3;
    struct tensor *in[OP_INPUTS_MAX] = {
        row_values(graph, "y", 1), integers(graph, "targets"),
        graph_tensor(graph, TENSOR_INPUT, "reference", shape_make(DTYPE_F64, 2, sizes->sequences, 1, 1))};
    add(graph, &op_preference_loss, "preference", &attributes, in,
        (struct tensor *[OP_OUTPUTS_MAX]){figures(graph, "loss")});
    if (op_case->op == &op_preference_loss) return;
    struct tensor *made[OP_OUTPUTS_MAX] = {figures(graph, "loss.again"), row_values(graph, "d.y", 1)};
    add(graph, &op_preference_loss_grad, "preference.grad", &attributes, in, made);
}

void build_head_logits(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    struct tensor *in[OP_INPUTS_MAX] = {0};
    head_inputs(graph, op_case, sizes, in, false);
    struct head_attributes head = head_attributes_of(op_case, sizes);
    add(graph, &op_head_logits, "logits", &head, in, NULL);
}

void build_gradient_sum(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    (void)op_case;
    struct tensor *in[OP_INPUTS_MAX] = {accumulator(graph, "a", 2, sizes->vocab, sizes->columns),
                                        accumulator(graph, "b", 2, sizes->vocab, sizes->columns)};
    add(graph, &op_gradient_sum, "sum", NULL, in, NULL);
}

void build_squared_sums(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    (void)op_case;
    struct tensor *in[OP_INPUTS_MAX] = {accumulator(graph, "gradient", 2, sizes->vocab, sizes->columns)};
    add(graph, &op_squared_sums, "squares", NULL, in, NULL);
}

/* Of a vector of so many blocks. */
void build_squared_norm(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    (void)op_case;
    struct tensor *in[OP_INPUTS_MAX] = {
        graph_tensor(graph, TENSOR_RESULT, "squares", shape_make(DTYPE_F64, 1, sizes->columns, 1, 1))};
    add(graph, &op_squared_norm, "norm", NULL, in, NULL);
}

void build_clip_factor(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    (void)op_case;
    struct tensor *in[OP_INPUTS_MAX] = {
        graph_tensor(graph, TENSOR_RESULT, "squared_norms", shape_make(DTYPE_F64, 1, sizes->columns, 1, 1))};
    struct clip_attributes attributes = {.limit = 1};
    add(graph, &op_clip_factor, "clip_factor", &attributes, in, NULL);
}

static enum dtype moments_of(const struct op_case *op_case) {
    if (op_case->flags & CASE_INT8_STATE) return DTYPE_U8;
    return op_case->flags & CASE_BF16_STATE ? DTYPE_BF16 : DTYPE_F32;
}

static struct tensor *add_scales(struct graph *graph, const char *moment, int64_t elements) {
    int64_t blocks = (elements + UPDATE_SCALE_BLOCK - 1) / UPDATE_SCALE_BLOCK;
    struct tensor *scales = graph_tensor(graph, TENSOR_STATE, graph_format(graph, "%s_absmax", moment),
                                         shape_make(DTYPE_F32, 1, blocks, 1, 1));
    if (scales) scales->block_elements = UPDATE_SCALE_BLOCK;
    return scales;
}

void build_update(struct graph *graph, const struct op_case *op_case, const struct op_sizes *sizes) {
    enum update_rule rule = update_rule_of(op_case->op);
    int moments = update_rule_moments(rule);
    bool master = graph->dtype == DTYPE_BF16 && !(op_case->flags & CASE_NO_MASTER);
    bool split = master && has(op_case, CASE_SPLIT_MASTER);
    struct update_attributes attributes = {.beta1 = 0.9,
                                           .beta2 = 0.95,
                                           .epsilon = 1e-8,
                                           .weight_decay = 0.1,
                                           .parameter = graph->dtype,
                                           .moments = moments_of(op_case),
                                           .has_master = master,
                                           .split_master = split,
                                           .seed = UINT64_C(0x123456789abcdef),
                                           .number = 5};
    struct shape moment = shape_make(attributes.moments, 2, sizes->vocab, sizes->columns, 1), state = moment;
    state.dtype = split ? DTYPE_U16 : DTYPE_F32;
    struct tensor *in[OP_INPUTS_MAX] = {
        accumulator(graph, "gradient", 2, sizes->vocab, sizes->columns),
        IF_WANTED(!has(op_case, CASE_UNCLIPPED),
                  graph_tensor(graph, TENSOR_RESULT, "clip", shape_make(DTYPE_F64, 1, 2, 1, 1)))};
    struct tensor *out[OP_OUTPUTS_MAX] = {graph_parameter(graph, "weight", 2, sizes->vocab, sizes->columns)};
    for (int i = 0; i < moments; i++)
        out[1 + i] = graph_tensor(graph, TENSOR_STATE, update_rule_moment(rule, i), moment);
    if (master) out[1 + moments] = graph_tensor(graph, TENSOR_STATE, split ? "master_low" : "master", state);
    for (int i = 0; i < moments && attributes.moments == DTYPE_U8; i++)
        out[2 + moments + i] = add_scales(graph, update_rule_moment(rule, i), shape_elements(&moment));
    add(graph, op_case->op, update_rule_name(rule), &attributes, in, out);
}
