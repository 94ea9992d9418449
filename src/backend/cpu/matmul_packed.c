#include "backend/cpu/matmul_packed.h"

#include <string.h>

#include "backend/cpu/cpu_kernel.h"

/* A block of c with its parts of a and b fits the second cache; rows and columns are multiples of every instruction
 * set's register tile. */
enum { BLOCK_ROWS = 192, BLOCK_COLUMNS = 192, BLOCK_DEPTH = 256 };

static int64_t at_most(int64_t value, int64_t most) { return value < most ? value : most; }
static int64_t rounded_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

/* Parts of a thread's workspace. */
static int64_t sums_bytes(const struct packed_matmul *matmul) {
    return workspace_align(matmul->rows * matmul->columns * 4);
}
static int64_t left_bytes(const struct packed_matmul *matmul) {
    return workspace_align(matmul->rows * matmul->depth * 4);
}
static int64_t right_bytes(const struct packed_matmul *matmul) {
    return workspace_align(matmul->columns * matmul->depth * 4);
}

void packed_matmul_init(const struct matmul_spec *spec, struct packed_matmul *out) {
    *out = (struct packed_matmul){
        .spec = *spec,
        .rows = at_most(rounded_up(spec->m, cpu_simd()->gemm_rows), BLOCK_ROWS),
        .columns = at_most(rounded_up(spec->n, cpu_simd()->gemm_columns), BLOCK_COLUMNS),
        .depth = at_most(spec->k, BLOCK_DEPTH),
        .threads = parallel_threads(),
    };
    out->thread_bytes = sums_bytes(out) + left_bytes(out) + right_bytes(out);
}

int64_t packed_matmul_workspace_bytes(const struct packed_matmul *matmul) {
    return matmul->threads * matmul->thread_bytes;
}

struct packed_run {
    const struct packed_matmul *matmul;
    const void *a, *b, *bias;
    char *c, *workspace;
};

/* One block of c: rows [row, row + rows), columns [column, column + columns). */
struct packed_block {
    int64_t row, rows, column, columns;
    float *sums, *left, *right;
};

static const void *element(const void *data, enum dtype dtype, int64_t index) {
    return (const char *)data + index * dtype_bytes(dtype);
}

/* Rows [row, …) of a along k, in fp32, as they lie: by rows with stride `depth`, or by k with stride `rows`. */
static void convert_left(const struct packed_run *run, const struct packed_block *block, int64_t k0, int64_t depth) {
    const struct packed_matmul *matmul = run->matmul;
    const struct matmul_spec *spec = &matmul->spec;
    memset(block->left, 0, (size_t)left_bytes(matmul));
    int64_t first = block->row * spec->a_row + k0 * spec->a_k;
    if (spec->a_k == 1) {
        for (int64_t i = 0; i < block->rows; i++)
            cpu_simd()->scale(depth, spec->dtype, element(run->a, spec->dtype, first + i * spec->a_row), 1, DTYPE_F32,
                              block->left + i * matmul->depth);
        return;
    }
    for (int64_t p = 0; p < depth; p++)
        cpu_simd()->scale(block->rows, spec->dtype, element(run->a, spec->dtype, first + p * spec->a_k), 1, DTYPE_F32,
                          block->left + p * matmul->rows);
}

static void multiply_block(const struct packed_run *run, const struct packed_block *block) {
    const struct packed_matmul *matmul = run->matmul;
    const struct matmul_spec *spec = &matmul->spec;
    bool by_rows = spec->a_k == 1;
    for (int64_t k0 = 0; k0 < spec->k; k0 += matmul->depth) {
        int64_t depth = at_most(spec->k - k0, matmul->depth);
        int64_t first = k0 * spec->b_k + block->column * spec->b_column;
        convert_left(run, block, k0, depth);
        cpu_simd()->gemm_pack(spec->dtype, depth, block->columns, element(run->b, spec->dtype, first), spec->b_k,
                              spec->b_column, block->right);
        cpu_simd()->gemm(block->rows, block->columns, depth, block->left, by_rows ? matmul->depth : 1,
                         by_rows ? 1 : matmul->rows, block->right, block->sums, matmul->columns, k0 > 0);
    }
}

static void finish_block(const struct packed_run *run, const struct packed_block *block) {
    const struct matmul_spec *spec = &run->matmul->spec;
    for (int64_t i = 0; i < block->rows; i++) {
        float *sums = block->sums + i * run->matmul->columns;
        int64_t at = (block->row + i) * spec->c_row + block->column;
        void *c = run->c + at * dtype_bytes(spec->out_dtype);
        if (spec->bias)
            cpu_simd()->accumulate(spec->dtype, block->columns, element(run->bias, spec->dtype, block->column), sums);
        if (spec->accumulate) cpu_simd()->accumulate(spec->out_dtype, block->columns, c, sums);
        cpu_simd()->scale(block->columns, DTYPE_F32, sums, 1, spec->out_dtype, c);
    }
}

static void packed_task(const void *context, int64_t task, int thread) {
    const struct packed_run *run = context;
    const struct packed_matmul *matmul = run->matmul;
    const struct matmul_spec *spec = &matmul->spec;
    int64_t across = (spec->n + matmul->columns - 1) / matmul->columns;
    char *workspace = run->workspace + thread * matmul->thread_bytes;
    struct packed_block block = {.row = task / across * matmul->rows, .column = task % across * matmul->columns};
    block.rows = at_most(spec->m - block.row, matmul->rows);
    block.columns = at_most(spec->n - block.column, matmul->columns);
    block.sums = (float *)workspace;
    block.left = (float *)(workspace + sums_bytes(matmul));
    block.right = (float *)(workspace + sums_bytes(matmul) + left_bytes(matmul));
    multiply_block(run, &block);
    finish_block(run, &block);
}

void packed_matmul_run(const struct packed_matmul *matmul, const void *a, const void *b, const void *bias, void *c,
                       void *workspace) {
    const struct matmul_spec *spec = &matmul->spec;
    struct packed_run run = {matmul, a, b, bias, c, workspace};
    int64_t down = (spec->m + matmul->rows - 1) / matmul->rows;
    int64_t across = (spec->n + matmul->columns - 1) / matmul->columns;
    parallel_tasks(down * across, matmul->threads, packed_task, &run);
}

const char *packed_matmul_implementation(void) { return "packed"; }
