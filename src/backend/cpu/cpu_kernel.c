#include "backend/cpu/cpu_kernel.h"

struct rows_kernel {
    struct kernel kernel;
    kernel_rows *rows;
};

struct rows_run {
    const struct rows_kernel *kernel;
    const struct kernel_call *call;
};

static void rows_body(const void *context, int64_t begin, int64_t end) {
    const struct rows_run *run = context;
    run->kernel->rows(run->kernel->kernel.node, run->call, begin, end);
}

static enum status rows_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct shape *shape = &kernel->node->out[0]->shape;
    struct rows_run run = {(const struct rows_kernel *)kernel, call};
    parallel_for(shape_rows(shape), parallel_rows(shape_columns(shape)), rows_body, &run);
    return STATUS_OK;
}

enum status cpu_rows_create(const struct node *node, kernel_rows *rows, struct kernel **out) {
    struct rows_kernel *kernel = kernel_new(node, sizeof *kernel, rows_run);
    if (!kernel) return STATUS_FAILED;
    kernel->rows = rows;
    *out = &kernel->kernel;
    return STATUS_OK;
}

enum { DOT_LANES = 16, DOT_COLUMNS = 512 };

float dot_rows(enum dtype dtype, int64_t columns, const void *a, const void *b) {
    float sums[DOT_LANES] = {0}, result = 0;
    for (int64_t first = 0; first < columns; first += DOT_COLUMNS) {
        float left[DOT_COLUMNS], right[DOT_COLUMNS];
        int64_t width = columns - first < DOT_COLUMNS ? columns - first : DOT_COLUMNS;
        int64_t offset = first * dtype_bytes(dtype);
        cpu_simd()->scale(width, dtype, (const char *)a + offset, 1, DTYPE_F32, left);
        cpu_simd()->scale(width, dtype, (const char *)b + offset, 1, DTYPE_F32, right);
        for (int64_t i = 0; i < width; i++)
            sums[i % DOT_LANES] += left[i] * right[i];
    }
    for (int lane = 0; lane < DOT_LANES; lane++)
        result += sums[lane];
    return result;
}

int64_t sum_blocks(int64_t rows) { return (rows + SUM_ROWS - 1) / SUM_ROWS; }

struct sum_run {
    enum dtype dtype;
    int64_t rows, row_stride;
    const char *data;
    float *out;
};

/* Each range of columns goes through all rows in order, which fixes the order of every sum. */
static void sum_body(const void *context, int64_t begin, int64_t end) {
    const struct sum_run *run = context;
    int64_t bytes = dtype_bytes(run->dtype);
    for (int64_t row = 0; row < run->rows; row++)
        cpu_simd()->accumulate(run->dtype, end - begin, run->data + (row * run->row_stride + begin) * bytes,
                               run->out + begin);
}

void sum_columns(enum dtype dtype, int64_t rows, int64_t columns, const void *data, int64_t row_stride, float *out) {
    struct sum_run run = {dtype, rows, row_stride, data, out};
    parallel_for(columns, parallel_columns(columns), sum_body, &run);
}

void sum_combine(int64_t blocks, int64_t columns, const float *partials, float *out) {
    sum_columns(DTYPE_F32, blocks, columns, partials, columns, out);
}
