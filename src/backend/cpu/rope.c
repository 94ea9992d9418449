/* Rotary positions: the table of angles, and the rotation by it. */
#include <math.h>

#include "backend/cpu/kernel.h"

struct rope_table_kernel {
    struct kernel kernel;
    int64_t half;
    float factor;        /* of cosines and sines */
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
    float factor = run->kernel->factor;
    for (int64_t row = begin; row < end; row++) {
        float *table = (float *)run->call->out[0] + row * 2 * half;
        for (int64_t i = 0; i < half; i++) {
            float angle = (float)positions[row] * run->kernel->frequencies[i];
            table[i] = (float)cos((double)angle) * factor;
            table[half + i] = (float)sin((double)angle) * factor;
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
    kernel->factor = (float)rope_attention_factor(attributes);
    rope_inverse_frequencies(attributes, kernel->frequencies);
    *out = &kernel->kernel;
    return STATUS_OK;
}

/* Where only a part of each head is rotated, the rest is copied. */
static void rope_rows(const struct node *node, const struct kernel_call *call, int64_t begin, int64_t end) {
    const struct rope_attributes *attributes = NODE_ATTRIBUTES(node, rope_attributes);
    int64_t bytes = dtype_bytes(dtype_of(node)), rotated = shape_columns(&node->in[1]->shape);
    size_t rest = (size_t)((attributes->head_dim - rotated) * bytes);
    for (int64_t row = begin; row < end; row++) {
        const float *table = in_row(node, call, 1, row);
        const char *x = in_row(node, call, 0, row);
        char *y = out_row(node, call, 0, row);
        for (int64_t head = 0; head < attributes->heads; head++) {
            int64_t at = head * attributes->head_dim * bytes, after = at + rotated * bytes;
            cpu_simd()->rope(dtype_of(node), rotated / 2, (float)attributes->sign, x + at, table, y + at);
            if (rest > 0 && x != y) memcpy(y + after, x + after, rest);
        }
    }
}

CPU_ROWS_KERNEL(rope, rope_rows)
