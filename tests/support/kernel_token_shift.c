#include <string.h>

#include "backend/cpu/kernel.h"
#include "support/token_shift.h"

/* The cache's attributes begin with those of the shift. */
static float mix_of(const struct node *node) { return (float)NODE_ATTRIBUTES(node, token_shift_attributes)->mix; }

/* to (fp32 or bf16) = x + mix * neighbour; a neighbour of NULL counts as zeros. */
static void blend(const struct node *node, const void *x, const void *neighbour, void *to) {
    int64_t columns = columns_of(node);
    float sum[columns];
    if (neighbour)
        cpu_simd()->scale(columns, dtype_of(node), neighbour, mix_of(node), DTYPE_F32, sum);
    else
        memset(sum, 0, sizeof sum);
    cpu_simd()->accumulate(dtype_of(node), columns, x, sum);
    cpu_simd()->scale(columns, DTYPE_F32, sum, 1, dtype_of(node), to);
}

static void shift_rows(const struct node *node, const struct kernel_call *call, int64_t begin, int64_t end) {
    int64_t length = node->in[0]->shape.dims[1];
    for (int64_t row = begin; row < end; row++)
        blend(node, in_row(node, call, 0, row), row % length > 0 ? in_row(node, call, 0, row - 1) : NULL,
              out_row(node, call, 0, row));
}

static enum status token_shift_create(const struct node *node, struct kernel **out) {
    return cpu_rows_create(node, shift_rows, out);
}

static void shift_grad_rows(const struct node *node, const struct kernel_call *call, int64_t begin, int64_t end) {
    int64_t length = node->in[0]->shape.dims[1];
    for (int64_t row = begin; row < end; row++)
        blend(node, in_row(node, call, 0, row), (row + 1) % length > 0 ? in_row(node, call, 0, row + 1) : NULL,
              out_row(node, call, 0, row));
}

static enum status token_shift_grad_create(const struct node *node, struct kernel **out) {
    return cpu_rows_create(node, shift_grad_rows, out);
}

static enum status cache_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct node *node = kernel->node;
    const int32_t *rows = call->in[1];
    int64_t tokens = shape_rows(&node->in[0]->shape), positions = node->out[1]->shape.dims[1];
    size_t bytes = (size_t)(columns_of(node) * dtype_bytes(dtype_of(node)));
    for (int64_t i = 0; i < tokens; i++)
        if (rows[i] >= 0) memcpy(out_row(node, call, 1, rows[i]), in_row(node, call, 0, i), bytes);
    for (int64_t i = 0; i < tokens; i++)
        if (rows[i] >= 0)
            blend(node, in_row(node, call, 0, i), rows[i] % positions > 0 ? out_row(node, call, 1, rows[i] - 1) : NULL,
                  out_row(node, call, 0, i));
        else
            memset(out_row(node, call, 0, i), 0, bytes);
    return STATUS_OK;
}

static enum status token_shift_cache_create(const struct node *node, struct kernel **out) {
    return kernel_plain(node, cache_run, 0, out);
}

static kernel_maker *maker(const struct op *op) {
    if (op == &op_token_shift) return token_shift_create;
    if (op == &op_token_shift_grad) return token_shift_grad_create;
    if (op == &op_token_shift_cache) return token_shift_cache_create;
    return backend_cpu.maker(op);
}

struct backend token_shift_backend(void) {
    struct backend backend = backend_cpu;
    backend.maker = maker;
    return backend;
}
