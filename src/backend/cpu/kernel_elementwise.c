/* Sums and multiples of activations. */
#include "backend/cpu/cpu_kernel.h"

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
