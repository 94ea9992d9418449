/* Sums and multiples of activations. */
#include "backend/cpu/kernel.h"
#include "base/base.h"
#include "base/half.h"

static void add_rows(const struct node *node, const struct kernel_call *call, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row++)
        cpu_simd()->add(dtype_of(node), columns_of(node), in_row(node, call, 0, row), in_row(node, call, 1, row),
                        out_row(node, call, 0, row));
}

CPU_ROWS_KERNEL(add, add_rows)

/* Operands that are left out are NULL. */
WIDE_VECTORS static void add_bias_fp32(int64_t columns, const float *x, const float *bias, const float *residual,
                                       float *y) {
    for (int64_t c = 0; c < columns; c++)
        y[c] = x[c] + (bias ? bias[c] : 0);
    for (int64_t c = 0; c < columns && residual; c++)
        y[c] += residual[c];
}

WIDE_VECTORS static void add_bias_bf16(int64_t columns, const uint16_t *x, const uint16_t *bias,
                                       const uint16_t *residual, uint16_t *y) {
    for (int64_t c = 0; c < columns; c++) {
        float sum = bf16_to_float(x[c]) + (bias ? bf16_to_float(bias[c]) : 0);
        y[c] = bf16_from_float(residual ? sum + bf16_to_float(residual[c]) : sum);
    }
}

static void add_bias_rows(const struct node *node, const struct kernel_call *call, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row++) {
        const void *x = in_row(node, call, 0, row), *bias = call->in[1];
        const void *residual = node->in[2] ? in_row(node, call, 2, row) : NULL;
        if (dtype_of(node) == DTYPE_BF16)
            add_bias_bf16(columns_of(node), x, bias, residual, out_row(node, call, 0, row));
        else
            add_bias_fp32(columns_of(node), x, bias, residual, out_row(node, call, 0, row));
    }
}

CPU_ROWS_KERNEL(add_bias, add_bias_rows)

static void scale_rows(const struct node *node, const struct kernel_call *call, int64_t begin, int64_t end) {
    float factor = (float)NODE_ATTRIBUTES(node, scale_attributes)->factor;
    for (int64_t row = begin; row < end; row++)
        cpu_simd()->scale(columns_of(node), dtype_of(node), in_row(node, call, 0, row), factor, dtype_of(node),
                          out_row(node, call, 0, row));
}

CPU_ROWS_KERNEL(scale, scale_rows)

/* Activation functions, alone and times another operand. */

static enum activation function_of(const struct node *node) {
    return NODE_ATTRIBUTES(node, activation_attributes)->function;
}

static void activation_rows(const struct node *node, const struct kernel_call *call, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row++)
        cpu_simd()->activation(dtype_of(node), function_of(node), columns_of(node), in_row(node, call, 0, row),
                               out_row(node, call, 0, row));
}

CPU_ROWS_KERNEL(activation, activation_rows)

static void activation_grad_rows(const struct node *node, const struct kernel_call *call, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row++)
        cpu_simd()->activation_grad(dtype_of(node), function_of(node), columns_of(node), in_row(node, call, 0, row),
                                    in_row(node, call, 1, row), out_row(node, call, 0, row));
}

CPU_ROWS_KERNEL(activation_grad, activation_grad_rows)

static void gated_rows(const struct node *node, const struct kernel_call *call, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row++)
        cpu_simd()->gated(dtype_of(node), function_of(node), columns_of(node), in_row(node, call, 0, row),
                          in_row(node, call, 1, row), out_row(node, call, 0, row));
}

CPU_ROWS_KERNEL(gated_activation, gated_rows)

static void gated_grad_rows(const struct node *node, const struct kernel_call *call, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row++)
        cpu_simd()->gated_grad(dtype_of(node), function_of(node), columns_of(node), in_row(node, call, 0, row),
                               in_row(node, call, 1, row), in_row(node, call, 2, row), out_row(node, call, 0, row),
                               out_row(node, call, 1, row));
}

CPU_ROWS_KERNEL(gated_activation_grad, gated_grad_rows)
