/* Activation functions, alone and times another operand. */
#include "backend/cpu/cpu_kernel.h"

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
