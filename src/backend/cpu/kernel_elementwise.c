/* Rows that need nothing but themselves: sums, activations, norms, rotations, embeddings. */
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu_kernel.h"

static int64_t columns_of(const struct node *node) { return shape_columns(&node->out[0]->shape); }
static enum dtype dtype_of(const struct node *node) { return node->out[0]->shape.dtype; }
static void *in_row(const struct node *node, const struct kernel_call *call, int input, int64_t row) {
    return operand_row(node->in[input], call->in[input], row);
}
static void *out_row(const struct node *node, const struct kernel_call *call, int output, int64_t row) {
    return operand_row(node->out[output], call->out[output], row);
}

static void add_rows(const struct node *node, const struct kernel_call *call, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row++)
        cpu_simd()->add(dtype_of(node), columns_of(node), in_row(node, call, 0, row), in_row(node, call, 1, row),
                        out_row(node, call, 0, row));
}

enum status cpu_add_create(const struct node *node, struct kernel **out) {
    return cpu_rows_create(node, add_rows, out);
}

static void scale_rows(const struct node *node, const struct kernel_call *call, int64_t begin, int64_t end) {
    float factor = (float)NODE_ATTRIBUTES(node, scale_attributes)->factor;
    for (int64_t row = begin; row < end; row++)
        cpu_simd()->scale(columns_of(node), dtype_of(node), in_row(node, call, 0, row), factor, dtype_of(node),
                          out_row(node, call, 0, row));
}

enum status cpu_scale_create(const struct node *node, struct kernel **out) {
    return cpu_rows_create(node, scale_rows, out);
}

static enum activation function_of(const struct node *node) {
    return NODE_ATTRIBUTES(node, activation_attributes)->function;
}

static void activation_rows(const struct node *node, const struct kernel_call *call, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row++)
        cpu_simd()->activation(dtype_of(node), function_of(node), columns_of(node), in_row(node, call, 0, row),
                               out_row(node, call, 0, row));
}

enum status cpu_activation_create(const struct node *node, struct kernel **out) {
    return cpu_rows_create(node, activation_rows, out);
}

static void activation_grad_rows(const struct node *node, const struct kernel_call *call, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row++)
        cpu_simd()->activation_grad(dtype_of(node), function_of(node), columns_of(node), in_row(node, call, 0, row),
                                    in_row(node, call, 1, row), out_row(node, call, 0, row));
}

enum status cpu_activation_grad_create(const struct node *node, struct kernel **out) {
    return cpu_rows_create(node, activation_grad_rows, out);
}

static void gated_rows(const struct node *node, const struct kernel_call *call, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row++)
        cpu_simd()->gated(dtype_of(node), function_of(node), columns_of(node), in_row(node, call, 0, row),
                          in_row(node, call, 1, row), out_row(node, call, 0, row));
}

enum status cpu_gated_activation_create(const struct node *node, struct kernel **out) {
    return cpu_rows_create(node, gated_rows, out);
}

static void gated_grad_rows(const struct node *node, const struct kernel_call *call, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row++)
        cpu_simd()->gated_grad(dtype_of(node), function_of(node), columns_of(node), in_row(node, call, 0, row),
                               in_row(node, call, 1, row), in_row(node, call, 2, row), out_row(node, call, 0, row),
                               out_row(node, call, 1, row));
}

enum status cpu_gated_activation_grad_create(const struct node *node, struct kernel **out) {
    return cpu_rows_create(node, gated_grad_rows, out);
}

/* Features that are normalised together. */
static int64_t group_of(const struct node *node) { return shape_columns(&node->in[1]->shape); }

static void rms_norm_rows(const struct node *node, const struct kernel_call *call, int64_t begin, int64_t end) {
    double epsilon = NODE_ATTRIBUTES(node, norm_attributes)->epsilon;
    int64_t group = group_of(node), groups = columns_of(node) / group, bytes = group * dtype_bytes(dtype_of(node));
    for (int64_t row = begin; row < end; row++) {
        const char *x = in_row(node, call, 0, row);
        char *y = out_row(node, call, 0, row);
        float *rstd = (float *)call->out[1] + row * groups;
        for (int64_t i = 0; i < groups; i++)
            cpu_simd()->rms_norm(dtype_of(node), group, epsilon, x + i * bytes, call->in[1], y + i * bytes, rstd + i);
    }
}

enum status cpu_rms_norm_create(const struct node *node, struct kernel **out) {
    return cpu_rows_create(node, rms_norm_rows, out);
}

static void layer_norm_rows(const struct node *node, const struct kernel_call *call, int64_t begin, int64_t end) {
    double epsilon = NODE_ATTRIBUTES(node, norm_attributes)->epsilon;
    int64_t group = group_of(node), groups = columns_of(node) / group, bytes = group * dtype_bytes(dtype_of(node));
    for (int64_t row = begin; row < end; row++) {
        const char *x = in_row(node, call, 0, row);
        char *y = out_row(node, call, 0, row);
        float *mean = (float *)call->out[1] + row * groups, *rstd = (float *)call->out[2] + row * groups;
        for (int64_t i = 0; i < groups; i++)
            cpu_simd()->layer_norm(dtype_of(node), group, epsilon, x + i * bytes, call->in[1], call->in[2],
                                   y + i * bytes, mean + i, rstd + i);
    }
}

enum status cpu_layer_norm_create(const struct node *node, struct kernel **out) {
    return cpu_rows_create(node, layer_norm_rows, out);
}

static void rope_rows(const struct node *node, const struct kernel_call *call, int64_t begin, int64_t end) {
    const struct rope_attributes *attributes = NODE_ATTRIBUTES(node, rope_attributes);
    int64_t head_bytes = attributes->head_dim * dtype_bytes(dtype_of(node));
    for (int64_t row = begin; row < end; row++) {
        const float *table = in_row(node, call, 1, row);
        const char *x = in_row(node, call, 0, row);
        char *y = out_row(node, call, 0, row);
        for (int64_t head = 0; head < attributes->heads; head++)
            cpu_simd()->rope(dtype_of(node), attributes->head_dim / 2, (float)attributes->sign, x + head * head_bytes,
                             table, y + head * head_bytes);
    }
}

enum status cpu_rope_create(const struct node *node, struct kernel **out) {
    return cpu_rows_create(node, rope_rows, out);
}

static void embedding_rows(const struct node *node, const struct kernel_call *call, int64_t begin, int64_t end) {
    const int32_t *tokens = call->in[0];
    int64_t first_row = NODE_ATTRIBUTES(node, embedding_attributes)->first_row;
    int64_t bytes = columns_of(node) * dtype_bytes(dtype_of(node)), vocab = node->in[1]->shape.dims[0] - first_row;
    for (int64_t row = begin; row < end; row++) {
        BUG_IF(tokens[row] < 0 || tokens[row] >= vocab, "token %d of a vocabulary of %lld", tokens[row],
               (long long)vocab);
        memcpy(out_row(node, call, 0, row), in_row(node, call, 1, first_row + tokens[row]), (size_t)bytes);
    }
}

enum status cpu_embedding_create(const struct node *node, struct kernel **out) {
    return cpu_rows_create(node, embedding_rows, out);
}
