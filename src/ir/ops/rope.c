/* Rotary positions (Su et al., arXiv 2104.09864): the table of angles, and the rotation by it. */
#include "ir/ops/check.h"

#include <math.h>

static enum status infer_rope_table(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    const struct shape *positions = &node->in[0]->shape;
    int64_t head_dim = NODE_ATTRIBUTES(node, rope_table_attributes)->head_dim;
    if (positions->dtype != DTYPE_I32 || positions->rank != 2)
        return status_set(STATUS_BAD_INPUT, "positions must be int32 [S, T]");
    if (head_dim < 2 || head_dim % 2 != 0)
        return status_set(STATUS_BAD_INPUT, "rotary embedding needs an even head size, not %lld", (long long)head_dim);
    out[0] = shape_make(DTYPE_F32, 3, positions->dims[0], positions->dims[1], head_dim);
    return STATUS_OK;
}

static void key_rope_table(const struct node *node, struct op_key *key) {
    op_key_add(key, " scaling=%d", (int)NODE_ATTRIBUTES(node, rope_table_attributes)->scaling);
}

static bool loops_rope_table(const struct node *node, int way, struct op_loops *out) {
    loops_add_tokens(out, node->in[0]);
    op_loops_operands(out, "st->st.");
    return way == 0;
}

const struct op op_rope_table = {
    .name = "rope_table",
    .attribute_bytes = sizeof(struct rope_table_attributes),
    .inputs = 1,
    .outputs = 1,
    .infer = infer_rope_table,
    .cost_key = key_rope_table,
    .loops = loops_rope_table,
};

static enum status infer_rope(const struct node *node, struct shape out[OP_OUTPUTS_MAX]) {
    TRY(check_activation(node, 0));
    const struct rope_attributes *attributes = NODE_ATTRIBUTES(node, rope_attributes);
    const struct shape *x = &node->in[0]->shape;
    if (shape_columns(x) != attributes->heads * attributes->head_dim)
        return status_set(STATUS_BAD_INPUT, "%lld features are not %lld heads of %lld", (long long)shape_columns(x),
                          (long long)attributes->heads, (long long)attributes->head_dim);
    int64_t rotated = shape_columns(&node->in[1]->shape);
    if (rotated > attributes->head_dim || rotated % 2 != 0)
        return status_set(STATUS_BAD_INPUT, "a table of %lld columns is not for heads of %lld", (long long)rotated,
                          (long long)attributes->head_dim);
    out[0] = *x;
    return check_shape(node, 1, with_columns(as_accumulator(*x), rotated));
}

/* A rotation's gradient is the rotation back (its matrix is orthogonal), by the same multiple. */
static void differentiate_rope(struct gradients *gradients, const struct node *node) {
    struct rope_attributes back = *NODE_ATTRIBUTES(node, rope_attributes);
    back.sign = -back.sign;
    gradient_add_rule(gradients, &op_rope, node, OPERANDS(gradient_of(gradients, node->out[0]), node->in[1]), &back,
                      OPERANDS(node->in[0]));
}

static void key_rope(const struct node *node, struct op_key *key) {
    const struct rope_attributes *attributes = NODE_ATTRIBUTES(node, rope_attributes);
    int64_t rotated = shape_columns(&node->in[1]->shape);
    op_key_add(key, " heads=%" PRId64 "x%" PRId64, attributes->heads, attributes->head_dim);
    if (rotated < attributes->head_dim) op_key_add(key, " rotated=%" PRId64, rotated);
}

static bool loops_rope(const struct node *node, int way, struct op_loops *out) {
    loops_add_tokens(out, node->in[0]);
    op_loops_add(out, 'h', NODE_ATTRIBUTES(node, rope_attributes)->heads);
    op_loops_operands(out, "sth,st.->sth");
    return way == 0;
}

static void take_part_rope(void *attributes, char letter, const struct index_part *part) {
    if (letter == 'h') ((struct rope_attributes *)attributes)->heads /= part->parts;
}

const struct op op_rope = {
    .name = "rope",
    .attribute_bytes = sizeof(struct rope_attributes),
    .inputs = 2,
    .outputs = 1,
    .infer = infer_rope,
    .cost_key = key_rope,
    .differentiate = differentiate_rope,
    .loops = loops_rope,
    .take_part = take_part_rope,
    .saved_inputs = 1u << 1,
    .in_place_input = 1 + 0,
};

static const double PI = 3.14159265358979323846;

static double llama3_frequency(const struct rope_table_attributes *at, double frequency) {
    double low_wavelength = at->original_context / at->low_freq_factor;
    double high_wavelength = at->original_context / at->high_freq_factor;
    double wavelength = 2 * PI / frequency;
    double smooth =
        (at->original_context / wavelength - at->low_freq_factor) / (at->high_freq_factor - at->low_freq_factor);
    if (wavelength > low_wavelength) return frequency / at->factor;
    if (wavelength < high_wavelength) return frequency;
    return (1 - smooth) * frequency / at->factor + smooth * frequency;
}

/* The pair of features that turns so many times within the original context (arXiv 2309.00071, section 3.2). */
static double yarn_pair(const struct rope_table_attributes *at, double turns) {
    return (double)at->head_dim * log(at->original_context / (turns * 2 * PI)) / (2 * log(at->theta));
}

static double yarn_frequency(const struct rope_table_attributes *at, int64_t pair, double frequency) {
    double first = yarn_pair(at, at->beta_fast > 0 ? at->beta_fast : 32);
    double last = yarn_pair(at, at->beta_slow > 0 ? at->beta_slow : 1);
    if (!at->untruncated) first = floor(first), last = ceil(last);
    first = fmax(first, 0);
    last = fmin(last, (double)(at->head_dim - 1));
    if (first == last) last += 0.001; /* as transformers has it */
    double ramp = fmin(fmax(((double)pair - first) / (last - first), 0), 1);
    return frequency / at->factor * ramp + frequency * (1 - ramp);
}

void rope_inverse_frequencies(const struct rope_table_attributes *attributes, float *out) {
    for (int64_t i = 0; i < attributes->head_dim / 2; i++) {
        double exponent = (double)(2 * i) / (double)attributes->head_dim;
        double frequency = 1.0 / pow(attributes->theta, exponent);
        switch (attributes->scaling) {
        case ROPE_SCALING_NONE: break;
        case ROPE_SCALING_LINEAR: frequency /= attributes->factor; break;
        case ROPE_SCALING_LLAMA3: frequency = llama3_frequency(attributes, frequency); break;
        case ROPE_SCALING_YARN: frequency = yarn_frequency(attributes, i, frequency); break;
        case ROPE_SCALING_LONGROPE:
            frequency /= (double)(attributes->is_long ? attributes->long_factor : attributes->short_factor)[i];
            break;
        }
        out[i] = (float)frequency;
    }
}

static double yarn_scale(double factor, double mscale) { return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1; }

double rope_attention_factor(const struct rope_table_attributes *at) {
    bool yarn = at->scaling == ROPE_SCALING_YARN;
    if (!yarn && at->scaling != ROPE_SCALING_LONGROPE) return 1;
    if (at->attention_factor > 0) return at->attention_factor;
    if (yarn && at->mscale > 0 && at->mscale_all_dim > 0)
        return yarn_scale(at->factor, at->mscale) / yarn_scale(at->factor, at->mscale_all_dim);
    if (yarn) return yarn_scale(at->factor, 1);
    return at->factor <= 1 ? 1 : sqrt(1 + log(at->factor) / log(at->original_context));
}

struct tensor *ops_rope_table(struct graph *graph, const char *name, struct tensor *positions,
                              struct rope_table_attributes attributes) {
    return ops_apply(graph, &op_rope_table, name, OPERANDS(positions), &attributes);
}

struct tensor *ops_rope(struct graph *graph, const char *name, struct tensor *x, struct tensor *table, int64_t heads,
                        int64_t head_dim) {
    struct rope_attributes attributes = {.heads = heads, .head_dim = head_dim, .sign = 1};
    return ops_apply(graph, &op_rope, name, OPERANDS(x, table), &attributes);
}
