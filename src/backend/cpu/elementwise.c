/* Sums and multiples of activations. */
#include "backend/cpu/kernel.h"
#include "base/base.h"
#include "base/half.h"

/* Defines the kernel that makes `row` by one call of a vector kernel; that takes a node's operands so. */
#define SIMD_ROWS_KERNEL(name, ...)                                                                                    \
    static void name##_rows(const struct node *node, const struct kernel_call *call, int64_t begin, int64_t end) {     \
        for (int64_t row = begin; row < end; row++)                                                                    \
            cpu_simd()->__VA_ARGS__;                                                                                   \
    }                                                                                                                  \
    CPU_ROWS_KERNEL(name, name##_rows)
#define IN(input) in_row(node, call, input, row)
#define OUT(output) out_row(node, call, output, row)

SIMD_ROWS_KERNEL(add, add(dtype_of(node), columns_of(node), IN(0), IN(1), OUT(0)))

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

SIMD_ROWS_KERNEL(scale, scale(columns_of(node), dtype_of(node), IN(0),
                              (float)NODE_ATTRIBUTES(node, scale_attributes)->factor, dtype_of(node), OUT(0)))

/* Activation functions, alone and times another operand. */

static enum activation function_of(const struct node *node) {
    return NODE_ATTRIBUTES(node, activation_attributes)->function;
}

SIMD_ROWS_KERNEL(activation, activation(dtype_of(node), function_of(node), columns_of(node), IN(0), OUT(0)))
SIMD_ROWS_KERNEL(activation_grad,
                 activation_grad(dtype_of(node), function_of(node), columns_of(node), IN(0), IN(1), OUT(0)))
SIMD_ROWS_KERNEL(gated_activation, gated(dtype_of(node), function_of(node), columns_of(node), IN(0), IN(1), OUT(0)))
SIMD_ROWS_KERNEL(gated_activation_grad,
                 gated_grad(dtype_of(node), function_of(node), columns_of(node), IN(0), IN(1), IN(2), OUT(0), OUT(1)))
