#include "backend/muon_parts.h"

#include "backend/kernel_parts.h"
#include "ir/ops/ops.h"

static bool is_tall(const struct muon_sizes *sizes) { return sizes->rows > sizes->columns; }

static int64_t take(int64_t bytes, int64_t *end) {
    int64_t at = *end;
    *end += workspace_align(bytes);
    return at;
}

struct muon_sizes muon_sizes_of(const struct node *node) {
    const int64_t *dims = node->in[0]->shape.dims;
    struct muon_sizes sizes = {
        .rows = dims[0], .columns = dims[1], .dtype = NODE_ATTRIBUTES(node, update_attributes)->parameter};
    int64_t count = dims[0] * dims[1], f32 = (int64_t)sizeof(float), each = dtype_bytes(sizes.dtype);
    sizes.side = is_tall(&sizes) ? sizes.columns : sizes.rows;
    sizes.x = take(count * each, &sizes.end);
    sizes.sums = take(count * f32, &sizes.end);
    sizes.square = take(sizes.side * sizes.side * each, &sizes.end);
    sizes.square_sums = take(sizes.side * sizes.side * f32, &sizes.end);
    sizes.norms = take((1 + gradient_norm_blocks(count)) * (int64_t)sizeof(double), &sizes.end);
    return sizes;
}

struct matmul_spec muon_square_spec(const struct muon_sizes *sizes) {
    bool tall = is_tall(sizes);
    int64_t columns = sizes->columns;
    return (struct matmul_spec){.m = sizes->side,
                                .n = sizes->side,
                                .k = tall ? sizes->rows : columns,
                                .a_row = tall ? 1 : columns,
                                .a_k = tall ? columns : 1,
                                .b_k = tall ? columns : 1,
                                .b_column = tall ? 1 : columns,
                                .c_row = sizes->side,
                                .dtype = sizes->dtype,
                                .out_dtype = DTYPE_F32};
}

static struct matmul_spec plain_spec(enum dtype dtype, int64_t m, int64_t n, int64_t k) {
    return (struct matmul_spec){.m = m,
                                .n = n,
                                .k = k,
                                .a_row = k,
                                .a_k = 1,
                                .b_k = n,
                                .b_column = 1,
                                .c_row = n,
                                .dtype = dtype,
                                .out_dtype = DTYPE_F32};
}

struct matmul_spec muon_squared_spec(const struct muon_sizes *sizes) {
    return plain_spec(sizes->dtype, sizes->side, sizes->side, sizes->side);
}

struct matmul_spec muon_product_spec(const struct muon_sizes *sizes) {
    return plain_spec(sizes->dtype, sizes->rows, sizes->columns, sizes->side);
}
