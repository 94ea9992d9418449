/* One expert: a gated MLP of the rows that are routed to it. */
#include "ir/ops/check.h"

enum {
    MLP_WEIGHTS = 3, /* gate, up, down */
    GLU_WEIGHTS = 4  /* gate_up, down, and their biases */
};

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

/* FLOPs of `products` GEMMs of the size of down. */
static double flops_of_products(const struct node *node, int products) {
    return 2 * products * (double)shape_elements(tensor_values(expert_down(node))) * expert_mean_rows(node);
}

static double expert_flops(const struct node *node) { return flops_of_products(node, 3); }

/* The gradients that a gradient's node computes. */
struct wanted {
    bool glu, dx;
    int weights;
    const bool *dweight;
};

static struct wanted wanted_of(const struct node *node) {
    if (node->op == &op_expert_glu_grad) {
        const struct expert_glu_grad_attributes *glu = NODE_ATTRIBUTES(node, expert_glu_grad_attributes);
        return (struct wanted){true, glu->dx, GLU_WEIGHTS, glu->dweight};
    }
    const struct expert_grad_attributes *mlp = NODE_ATTRIBUTES(node, expert_grad_attributes);
    return (struct wanted){false, mlp->dx, MLP_WEIGHTS, mlp->dweight};
}

/* Gate, up and the gradient of down's input are always recomputed. gate_up has twice the size of down. */
static double expert_grad_flops(const struct node *node) {
    const struct wanted wanted = wanted_of(node);
    int products = 3 + 2 * wanted.dx + wanted.dweight[0] + wanted.dweight[1];
    return flops_of_products(node, products + wanted.dweight[wanted.glu ? 0 : 2]);
}

/* The first expert clears the rows of all others; each further one takes over the buffer, which is the last input. */
static double touched_expert(const struct node *node, int operand) {
    int previous = node->op->inputs - 1;
    bool gradient = node->op == &op_expert_mlp_grad || node->op == &op_expert_glu_grad;
    bool rows = operand <= (gradient ? 1 : 0), result = operand == OP_INPUTS_MAX && node->in[previous];
    if (operand == previous) return 0;
    return rows || result ? touched_by_expert(node, node->in[0]) : 1;
}

static void key_expert(const struct node *node, struct op_key *key) {
    const struct expert_attributes *attributes = attributes_of(node);
    op_key_add(key, " slots=%lld experts=%lld %s", (long long)attributes->slots, (long long)attributes->experts,
               activation_name(attributes->function));
}

static void key_glu(const struct node *node, struct op_key *key) {
    const struct expert_glu_attributes *attributes = NODE_ATTRIBUTES(node, expert_glu_attributes);
    op_key_add(key, " slots=%lld experts=%lld%s", (long long)attributes->expert.slots,
               (long long)attributes->expert.experts, attributes->weights_are_kn ? " kn" : "");
}

static void key_expert_grad(const struct node *node, struct op_key *key) {
    const struct wanted wanted = wanted_of(node);
    (wanted.glu ? key_glu : key_expert)(node, key);
    op_key_add(key, " %d", wanted.dx);
    for (int i = 0; i < wanted.weights; i++)
        op_key_add(key, "%d", wanted.dweight[i]);
}

static double example_expert(const struct node *node, const struct tensor *tensor, int64_t index) {
    const struct expert_attributes *attributes = attributes_of(node);
    if (tensor->shape.dtype != DTYPE_I32) return op_example_default(node, tensor, index);
    return example_range(attributes->slots, attributes->experts, index);
}

static enum status check_ranges(const struct node *node, int input) {
    const struct expert_attributes *attributes = attributes_of(node);
    if (attributes->expert < 0 || attributes->expert >= attributes->experts)
        return status_set(STATUS_BAD_INPUT, "expert %lld of %lld", (long long)attributes->expert,
                          (long long)attributes->experts);
    return check_shape(node, input, shape_make(DTYPE_I32, 2, attributes->experts, 2, 1));
}

/* Ranges, gate, up and down from input `first` on, for rows of this shape. */
static enum status check_expert(const struct node *node, int first, const struct shape *rows) {
    const struct shape *gate = tensor_values(node->in[first + 1]);
    TRY(check_ranges(node, first));
    struct shape in = shape_make(rows->dtype, 2, gate->dims[0], shape_columns(rows), 1);
    struct shape out = shape_make(rows->dtype, 2, shape_columns(rows), gate->dims[0], 1);
    TRY(check_shape(node, first + 1, in));
    TRY(check_shape(node, first + 2, in));
    return check_shape(node, first + 3, out);
}

/* Ranges, gate_up, down and gate_up's bias from input `first` on, for rows of this shape. */
static enum status check_glu(const struct node *node, int first, const struct shape *rows) {
    const struct shape *down = tensor_values(node->in[first + 2]);
    bool kn = NODE_ATTRIBUTES(node, expert_glu_attributes)->weights_are_kn;
    TRY(check_ranges(node, first));
    int64_t columns = shape_columns(rows), width = down->dims[kn ? 0 : 1];
    struct shape in = shape_make(rows->dtype, 2, kn ? columns : 2 * width, kn ? 2 * width : columns, 1);
    struct shape out = shape_make(rows->dtype, 2, kn ? width : columns, kn ? columns : width, 1);
    TRY(check_shape(node, first + 1, in));
    TRY(check_shape(node, first + 2, out));
    return check_shape(node, first + 3, vector_of(rows->dtype, 2 * width));
}

static enum status infer_expert_grad(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    const struct wanted wanted = wanted_of(node);
    const struct shape rows = node->in[0]->shape;
    TRY(check_activation(node, 0));
    TRY(check_shape(node, 1, rows));
    TRY(wanted.glu ? check_glu(node, 2, &rows) : check_expert(node, 2, &rows));
    if (wanted.dx) out[0] = rows;
    for (int i = 0; i < 3; i++)
        if (wanted.dweight[i]) out[1 + i] = as_accumulator(node->in[3 + i]->shape);
    if (wanted.glu && wanted.dweight[3]) out[4] = vector_of(DTYPE_F32, shape_columns(&rows));
    return check_shape(node, 6, rows);
}

static enum status infer_expert_mlp(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    TRY(check_activation(node, 0));
    out[0] = node->in[0]->shape;
    TRY(check_expert(node, 1, &out[0]));
    return check_shape(node, 5, out[0]);
}

/* Finds which of x and the `weights` weights need a gradient. */
static void find_wanted(const struct gradients *gradients, const struct node *node, int weights, bool *dx,
                        bool *dweight) {
    *dx = gradient_wanted(gradients, node->in[0]);
    for (int i = 0; i < weights; i++)
        dweight[i] = gradient_wanted(gradients, node->in[2 + i]);
}

/* Adds gradients of x and of the weights, which are inputs 2 on. Each expert has its own rows of x, so the gradients of
 * all experts share a tensor, as their results do. */
static void add_rule(struct gradients *gradients, const struct op *op, const struct node *node,
                     const void *attributes) {
    struct tensor *x = gradient_if_wanted(gradients, node->in[0]), *previous = node->in[node->op->inputs - 1];
    struct tensor *dy = gradient_of(gradients, node->out[0]), *of[OP_OUTPUTS_MAX] = {x};
    if (!dy) return;
    if (previous) gradient_contribute(gradients, previous, dy);
    for (int i = 1; i < op->outputs; i++)
        of[i] = gradient_if_wanted(gradients, node->in[1 + i]);
    gradient_add_rule(gradients, op, node,
                      OPERANDS(dy, node->in[0], node->in[1], node->in[2], node->in[3], node->in[4],
                               x ? gradient_partial(gradients, x) : NULL),
                      attributes, of);
}

static void differentiate_expert_mlp(struct gradients *gradients, const struct node *node) {
    struct expert_grad_attributes attributes = {.expert = *attributes_of(node)};
    find_wanted(gradients, node, MLP_WEIGHTS, &attributes.dx, attributes.dweight);
    add_rule(gradients, &op_expert_mlp_grad, node, &attributes);
}

/* By inner features: rows are whole, and each part makes a part of the sum that is the result. */
static bool loops_expert_mlp(const struct node *node, int way, struct op_loops *out) {
    op_loops_add(out, 'f', tensor_values(node->in[2])->dims[0])->padded = true;
    op_loops_operands(out, ",,f.,f.,.f");
    out->apart = 1u << 0 | 1u << 5 | 1u << OP_INPUTS_MAX;
    return way == 0;
}

/* The last input is the result of the expert before, whose buffer the first output takes over. */
#define EXPERT_OP(op_name, attributes_type, input_count, output_count, ...)                                            \
    const struct op op_##op_name = {                                                                                   \
        .name = #op_name,                                                                                              \
        .attribute_bytes = sizeof(struct attributes_type),                                                             \
        .inputs = (input_count),                                                                                       \
        .optional = 1,                                                                                                 \
        .outputs = (output_count),                                                                                     \
        .work = OP_WORK_EXPERT,                                                                                        \
        .touched = touched_expert,                                                                                     \
        .example = example_expert,                                                                                     \
        .in_place_input = (input_count),                                                                               \
        __VA_ARGS__,                                                                                                   \
    };
EXPERT_OP(expert_mlp, expert_attributes, 6, 1, .infer = infer_expert_mlp, .flops = expert_flops, .cost_key = key_expert,
          .differentiate = differentiate_expert_mlp, .loops = loops_expert_mlp, .saved_inputs = 0x1f)
EXPERT_OP(expert_mlp_grad, expert_grad_attributes, 7, 4, .infer = infer_expert_grad, .flops = expert_grad_flops,
          .cost_key = key_expert_grad, .updates = 1u << 1 | 1u << 2 | 1u << 3)

struct tensor *ops_expert_mlp(struct graph *graph, const char *name, struct tensor *rows, struct routing routing,
                              const struct expert_weights *weights, struct tensor *previous,
                              struct expert_attributes attributes) {
    return ops_apply(graph, &op_expert_mlp, name,
                     OPERANDS(rows, routing.ranges, weights->gate, weights->up, weights->down, previous), &attributes);
}

/* One expert as gpt-oss has it (arXiv 2508.10925): gate and up, interleaved, are one GEMM with a bias, the gate is
 * clamped, and so is up, to which 1 is added. */

static enum status infer_expert_glu(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    TRY(check_activation(node, 0));
    out[0] = node->in[0]->shape;
    TRY(check_glu(node, 1, &out[0]));
    TRY(check_shape(node, 5, vector_of(out[0].dtype, shape_columns(&out[0]))));
    return check_shape(node, 6, out[0]);
}

static void differentiate_expert_glu(struct gradients *gradients, const struct node *node) {
    struct expert_glu_grad_attributes attributes = {.glu = *NODE_ATTRIBUTES(node, expert_glu_attributes)};
    find_wanted(gradients, node, GLU_WEIGHTS, &attributes.dx, attributes.dweight);
    add_rule(gradients, &op_expert_glu_grad, node, &attributes);
}

/* By pairs of inner features, as an expert of three weights. The gradient of down's bias is that of
 * whole rows, which all parts have alike. */
static bool loops_expert_glu(const struct node *node, int way, struct op_loops *out) {
    bool kn = NODE_ATTRIBUTES(node, expert_glu_attributes)->weights_are_kn;
    op_loops_add(out, 'f', expert_width(node));
    op_loops_operands(out, kn ? ",,.f,f.,f" : ",,f.,.f,f");
    out->apart = 1u << 0 | 1u << 5 | 1u << 6 | 1u << OP_INPUTS_MAX;
    return way == 0;
}

static void take_part_expert_glu(void *attributes, char letter, const struct index_part *part) {
    struct expert_glu_attributes *own = attributes;
    own->down_bias_elsewhere |= letter == 'f' && part->position > 0;
}

EXPERT_OP(expert_glu, expert_glu_attributes, 7, 1, .infer = infer_expert_glu, .flops = expert_flops,
          .cost_key = key_glu, .differentiate = differentiate_expert_glu, .loops = loops_expert_glu,
          .take_part = take_part_expert_glu, .saved_inputs = 0x1f)
EXPERT_OP(expert_glu_grad, expert_glu_grad_attributes, 7, 5, .infer = infer_expert_grad, .flops = expert_grad_flops,
          .cost_key = key_expert_grad, .updates = 1u << 1 | 1u << 2 | 1u << 3 | 1u << 4)

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
    return ops_apply(graph, &op_expert_glu, name,
                     OPERANDS(rows, routing.ranges, weights->gate_up, weights->down, weights->gate_up_bias,
                              weights->down_bias, previous),
                     &attributes);
}
