#include "backend/cpu/matmul_packed.h"

#include "backend/cpu/cpu_kernel.h"
#include "backend/cpu/matmul_parts.h"
#include "backend/cpu/matmul_unpack.h"

/* A chunk's packed operands and sums take some 4 MiB each, which the last cache holds; packing then costs 5 to 12
 * percent of the chunk's product. A task's panels of a (block rows by step) stay in the second cache while it goes
 * through those of b. */
enum { CHUNK_ROWS = 1024, CHUNK_COLUMNS = 1152, CHUNK_DEPTH = 1024, STEP = 256 };
enum { BLOCK_ROWS = 256, BLOCK_PANELS = 4, TASKS_PER_THREAD = 4 };

static int64_t chunk_tasks(const struct packed_matmul *matmul) {
    int64_t block_columns = BLOCK_PANELS * cpu_simd()->gemm_columns;
    return divided_up(matmul->rows, matmul->block_rows) * divided_up(matmul->columns, block_columns);
}

void packed_matmul_init(const struct matmul_spec *spec, struct packed_matmul *out) {
    *out = (struct packed_matmul){
        .spec = *spec,
        .rows = equal_part(spec->m, CHUNK_ROWS, cpu_simd()->gemm_rows),
        .columns = equal_part(spec->n, CHUNK_COLUMNS, cpu_simd()->gemm_columns),
        .block_rows = BLOCK_ROWS,
        .threads = parallel_threads(),
    };
    int64_t depth = equal_part(spec->k, CHUNK_DEPTH, 1);
    out->step = equal_part(depth, STEP, 1);
    out->depth = rounded_up(depth, out->step);
    while (chunk_tasks(out) < TASKS_PER_THREAD * out->threads && out->block_rows > 2 * cpu_simd()->gemm_rows)
        out->block_rows /= 2;
}

/* Parts of the workspace. */
static int64_t left_bytes(const struct packed_matmul *matmul) {
    return workspace_align(matmul->rows * matmul->depth * 4);
}
static int64_t right_bytes(const struct packed_matmul *matmul) {
    return workspace_align(matmul->columns * matmul->depth * 4);
}

int64_t packed_matmul_workspace_bytes(const struct packed_matmul *matmul) {
    return left_bytes(matmul) + right_bytes(matmul) + workspace_align(matmul->rows * matmul->columns * 4);
}

/* Rows [row, row + rows) and columns [column, column + columns) of c, steps [k, k + depth) of the sums. */
struct packed_chunk {
    const struct packed_matmul *matmul;
    const struct matmul_operands *operands;
    int64_t row, rows, column, columns, k, depth;
    float *left, *right, *sums;
};

/* An operand of a chunk that is packed into panels: its element at the chunk's corner, and how many rows or columns. */
struct packing {
    const struct packed_chunk *chunk;
    const void *from; /* NULL: b in its format, to be unpacked */
    int64_t count, panel, k_stride, stride;
    float *to;
};

static int64_t packing_panels(const struct packing *packing) { return divided_up(packing->count, packing->panel); }

enum { PANEL_MOST = 64 };

/* Numbers of b, unpacked as fp32 to where they are packed from. */
static void pack_coded(const struct packing *packing, int64_t k, int64_t steps, int64_t first, float *to) {
    const struct packed_chunk *chunk = packing->chunk;
    const struct matmul_spec *spec = &chunk->matmul->spec;
    _Alignas(64) float room[PANEL_MOST * STEP];
    int64_t left = packing->count - first, columns = at_most(left, packing->panel);
    BUG_IF(columns > PANEL_MOST || steps > STEP, "a panel of %lld columns", (long long)columns);
    const struct matmul_tile tile = {chunk->k + k, steps, chunk->column + first, columns};
    matmul_unpack(spec, chunk->operands->b, &tile, DTYPE_F32, room);
    bool along = spec->b_k == 1; /* steps are neighbours */
    cpu_simd()->gemm_pack(DTYPE_F32, packing->panel, steps, columns, room, along ? 1 : columns, along ? steps : 1, to);
}

/* Panels lie [step][panel], so that neighbours in memory are packed one after the other. */
static void pack_panels(const void *context, int64_t begin, int64_t end) {
    const struct packing *packing = context;
    const struct packed_matmul *matmul = packing->chunk->matmul;
    enum dtype dtype = matmul->spec.dtype;
    int64_t panels = packing_panels(packing);
    for (int64_t i = begin; i < end; i++) {
        int64_t k = i / panels * matmul->step, first = i % panels * packing->panel;
        int64_t steps = at_most(packing->chunk->depth - k, matmul->step);
        float *to = packing->to + i * matmul->step * packing->panel;
        if (packing->from)
            cpu_simd()->gemm_pack(dtype, packing->panel, steps, packing->count - first,
                                  element_at(packing->from, dtype, k * packing->k_stride + first * packing->stride),
                                  packing->k_stride, packing->stride, to);
        else
            pack_coded(packing, k, steps, first, to);
    }
}

static void pack(const struct packing *packing) {
    parallel_for(divided_up(packing->chunk->depth, packing->chunk->matmul->step) * packing_panels(packing), 1,
                 pack_panels, packing);
}

static void pack_left(const struct packed_chunk *chunk) {
    const struct matmul_spec *spec = &chunk->matmul->spec;
    pack(&(struct packing){
        .chunk = chunk,
        .from = element_at(chunk->operands->a, spec->dtype, chunk->row * spec->a_row + chunk->k * spec->a_k),
        .count = chunk->rows,
        .panel = cpu_simd()->gemm_rows,
        .k_stride = spec->a_k,
        .stride = spec->a_row,
        .to = chunk->left,
    });
}

static void pack_right(const struct packed_chunk *chunk) {
    const struct matmul_spec *spec = &chunk->matmul->spec;
    bool coded = spec->b_format != WEIGHT_PLAIN;
    pack(&(struct packing){
        .chunk = chunk,
        .from =
            coded ? NULL
                  : element_at(chunk->operands->b, spec->dtype, chunk->k * spec->b_k + chunk->column * spec->b_column),
        .count = chunk->columns,
        .panel = cpu_simd()->gemm_columns,
        .k_stride = spec->b_k,
        .stride = spec->b_column,
        .to = chunk->right,
    });
}

/* A task's block is a part of its chunk. */
static void multiply_block(const struct packed_chunk *chunk, const struct matmul_part *block) {
    int64_t step = chunk->matmul->step, width = chunk->matmul->columns;
    int64_t all_rows = rounded_up(chunk->rows, cpu_simd()->gemm_rows);
    int64_t all_columns = rounded_up(chunk->columns, cpu_simd()->gemm_columns);
    for (int64_t k = 0; k < chunk->depth; k += step)
        cpu_simd()->gemm(block->rows, block->columns, at_most(chunk->depth - k, step), step,
                         chunk->left + k * all_rows + block->row * step,
                         chunk->right + k * all_columns + block->column * step,
                         chunk->sums + block->row * width + block->column, width, chunk->k + k > 0);
}

static void finish_block(const struct packed_chunk *chunk, const struct matmul_part *block) {
    struct matmul_part part = *block;
    part.row += chunk->row;
    part.column += chunk->column;
    matmul_finish(&chunk->matmul->spec, chunk->operands, &part,
                  chunk->sums + block->row * chunk->matmul->columns + block->column, chunk->matmul->columns);
}

static void packed_task(const void *context, int64_t task, int thread) {
    (void)thread;
    const struct packed_chunk *chunk = context;
    int64_t block_columns = BLOCK_PANELS * cpu_simd()->gemm_columns;
    int64_t across = divided_up(chunk->columns, block_columns);
    struct matmul_part block = {.row = task / across * chunk->matmul->block_rows,
                                .column = task % across * block_columns};
    block.rows = at_most(chunk->rows - block.row, chunk->matmul->block_rows);
    block.columns = at_most(chunk->columns - block.column, block_columns);
    multiply_block(chunk, &block);
    if (chunk->k + chunk->depth == chunk->matmul->spec.k) finish_block(chunk, &block);
}

static void run_chunk(const struct packed_chunk *chunk) {
    int64_t block_columns = BLOCK_PANELS * cpu_simd()->gemm_columns;
    pack_left(chunk);
    pack_right(chunk);
    parallel_tasks(divided_up(chunk->rows, chunk->matmul->block_rows) * divided_up(chunk->columns, block_columns),
                   chunk->matmul->threads, packed_task, chunk);
}

void packed_matmul_run(const struct packed_matmul *matmul, const struct matmul_operands *operands, void *workspace) {
    const struct matmul_spec *spec = &matmul->spec;
    struct packed_chunk chunk = {.matmul = matmul, .operands = operands, .left = workspace};
    chunk.right = (float *)((char *)workspace + left_bytes(matmul));
    chunk.sums = (float *)((char *)chunk.right + right_bytes(matmul));
    for (chunk.row = 0; chunk.row < spec->m; chunk.row += matmul->rows) {
        chunk.rows = at_most(spec->m - chunk.row, matmul->rows);
        for (chunk.column = 0; chunk.column < spec->n; chunk.column += matmul->columns) {
            chunk.columns = at_most(spec->n - chunk.column, matmul->columns);
            for (chunk.k = 0; chunk.k < spec->k; chunk.k += matmul->depth) {
                chunk.depth = at_most(spec->k - chunk.k, matmul->depth);
                run_chunk(&chunk);
            }
        }
    }
}

const char *packed_matmul_implementation(void) { return "packed"; }
