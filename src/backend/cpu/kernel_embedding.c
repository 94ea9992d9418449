/* The embedding's gradient, and the table of rotary angles. */
#include <math.h>

#include "backend/cpu/cpu_kernel.h"

struct embedding_run {
    const struct node *node;
    const struct kernel_call *call;
};

/* A table's column range goes through all tokens in order: no two threads meet, and the order of a sum is fixed. */
static void embedding_grad_columns(const void *context, int64_t begin, int64_t end) {
    const struct embedding_run *run = context;
    const struct tensor *dy = run->node->in[1], *table = run->node->out[0];
    const int32_t *tokens = run->call->in[0];
    int64_t rows = shape_rows(&dy->shape), offset = begin * dtype_bytes(dy->shape.dtype);
    int64_t first_row = NODE_ATTRIBUTES(run->node, embedding_grad_attributes)->first_row;
    for (int64_t row = 0; row < rows; row++) {
        const char *from = operand_row(dy, run->call->in[1], row);
        float *to = operand_row(table, run->call->out[0], first_row + tokens[row]);
        cpu_simd()->accumulate(dy->shape.dtype, end - begin, from + offset, to + begin);
    }
}

static enum status embedding_grad_run(const struct kernel *kernel, const struct kernel_call *call) {
    struct embedding_run run = {kernel->node, call};
    int64_t columns = shape_columns(&kernel->node->out[0]->shape);
    parallel_for(columns, parallel_columns(columns), embedding_grad_columns, &run);
    return STATUS_OK;
}

enum status cpu_embedding_grad_create(const struct node *node, struct kernel **out) {
    return kernel_plain(node, embedding_grad_run, 0, out);
}

struct rope_table_kernel {
    struct kernel kernel;
    int64_t half;
    float frequencies[]; /* half */
};

struct rope_table_run {
    const struct rope_table_kernel *kernel;
    const struct kernel_call *call;
};

/* Angles are products in fp32, as transformers computes them; their cosines and sines are rounded from double. */
static void rope_table_rows(const void *context, int64_t begin, int64_t end) {
    const struct rope_table_run *run = context;
    const int32_t *positions = run->call->in[0];
    int64_t half = run->kernel->half;
    for (int64_t row = begin; row < end; row++) {
        float *table = (float *)run->call->out[0] + row * 2 * half;
        for (int64_t i = 0; i < half; i++) {
            float angle = (float)positions[row] * run->kernel->frequencies[i];
            table[i] = (float)cos((double)angle);
            table[half + i] = (float)sin((double)angle);
        }
    }
}

static enum status rope_table_run(const struct kernel *kernel, const struct kernel_call *call) {
    struct rope_table_run run = {(const struct rope_table_kernel *)kernel, call};
    int64_t rows = shape_rows(&kernel->node->out[0]->shape);
    parallel_for(rows, parallel_rows(64 * run.kernel->half), rope_table_rows, &run);
    return STATUS_OK;
}

enum status cpu_rope_table_create(const struct node *node, struct kernel **out) {
    const struct rope_table_attributes *attributes = NODE_ATTRIBUTES(node, rope_table_attributes);
    int64_t half = attributes->head_dim / 2;
    size_t bytes;
    if (!mem_multiply((size_t)half, sizeof(float), &bytes) || !mem_add(bytes, sizeof(struct rope_table_kernel), &bytes))
        return status_no_memory((unsigned long long)half, "a table of rotary angles");
    struct rope_table_kernel *kernel = kernel_new(node, bytes, rope_table_run);
    if (!kernel) return STATUS_FAILED;
    kernel->half = half;
    rope_inverse_frequencies(attributes, kernel->frequencies);
    *out = &kernel->kernel;
    return STATUS_OK;
}
