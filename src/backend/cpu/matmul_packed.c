#include "backend/cpu/matmul_packed.h"

#include "backend/cpu/cpu_kernel.h"
#include "backend/cpu/matmul_parts.h"
#include "backend/cpu/matmul_unpack.h"

/* A chunk's packed b takes some 5 MiB, which the last cache holds. Where b has more steps than a chunk, sums wait for
 * the next one, and a chunk has few rows. A task's panels of a (block rows by step) stay in the second cache while it
 * goes through those of b, and are packed by the thread that reads them. */
enum { CHUNK_ROWS = 1024, CHUNK_DEPTH = 1024, CHUNK_ELEMENTS = 1200 << 10, STEP = 256 };
enum { BLOCK_ROWS = 128, BLOCK_ROWS_LEAST = 64, BLOCK_PANELS_LEAST = 4, TASKS_PER_THREAD = 3 };
enum { PACK_PANELS = 4 }; /* of b at a time */

static int64_t panel_rows(void) { return cpu_simd()->gemm_rows; }
static int64_t panel_columns(void) { return cpu_simd()->gemm_columns; }

static int64_t chunk_tasks(const struct packed_matmul *matmul) {
    return divided_up(matmul->rows, matmul->block_rows) * divided_up(matmul->columns, matmul->block_columns);
}

/* Smaller blocks until there are tasks for all threads: less often is b read for many rows, then a packed for many
 * columns. */
static void choose_blocks(struct packed_matmul *matmul) {
    matmul->block_rows = equal_part(matmul->rows, BLOCK_ROWS, panel_rows());
    matmul->block_columns = matmul->columns;
    while (chunk_tasks(matmul) < TASKS_PER_THREAD * matmul->threads) {
        if (matmul->block_rows > BLOCK_ROWS_LEAST)
            matmul->block_rows = rounded_up(matmul->block_rows / 2, panel_rows());
        else if (matmul->block_columns > BLOCK_PANELS_LEAST * panel_columns())
            matmul->block_columns = rounded_up(matmul->block_columns / 2, panel_columns());
        else
            return;
    }
}

void packed_matmul_init(const struct matmul_spec *spec, struct packed_matmul *out) {
    *out = (struct packed_matmul){.spec = *spec, .threads = parallel_threads()};
    int64_t depth = equal_part(spec->k, CHUNK_DEPTH, 1);
    out->step = equal_part(depth, STEP, 1);
    out->depth = rounded_up(depth, out->step);
    out->rows = out->depth < spec->k ? equal_part(spec->m, CHUNK_ROWS, panel_rows()) : spec->m;
    out->columns = equal_part(spec->n, CHUNK_ELEMENTS / out->depth, panel_columns());
    choose_blocks(out);
}

/* Parts of the workspace. Sums are kept for each task where they wait for the next chunk, else for each thread. */
static int64_t left_bytes(const struct packed_matmul *matmul) {
    return workspace_align(matmul->block_rows * matmul->step * 4);
}
static int64_t right_bytes(const struct packed_matmul *matmul) {
    return workspace_align(matmul->columns * matmul->depth * 4);
}
static int64_t sums_bytes(const struct packed_matmul *matmul) {
    return workspace_align(matmul->block_rows * matmul->block_columns * 4);
}
static bool sums_wait(const struct packed_matmul *matmul) { return matmul->depth < matmul->spec.k; }

int64_t packed_matmul_workspace_bytes(const struct packed_matmul *matmul) {
    int64_t sums = sums_wait(matmul) ? chunk_tasks(matmul) : matmul->threads;
    return right_bytes(matmul) + matmul->threads * left_bytes(matmul) + sums * sums_bytes(matmul);
}

/* Rows [row, row + rows) and columns [column, column + columns) of c, steps [k, k + depth) of the sums. */
struct packed_chunk {
    const struct packed_matmul *matmul;
    const struct matmul_operands *operands;
    int64_t row, rows, column, columns, k, depth;
    float *right;
    char *left, *sums;
};

static int64_t chunk_panels(const struct packed_chunk *chunk) { return divided_up(chunk->columns, panel_columns()); }

/* Numbers of b in fewer bits, unpacked as fp32 to where they are packed from. */
enum { PANEL_MOST = 64 };

static void pack_coded(const struct packed_chunk *chunk, int64_t k, int64_t column, struct gemm_packing packing) {
    const struct matmul_spec *spec = &chunk->matmul->spec;
    _Alignas(64) float room[PANEL_MOST * STEP];
    int64_t columns = at_most(packing.left, packing.width);
    BUG_IF(columns > PANEL_MOST || packing.steps > STEP, "a panel of %lld columns", (long long)columns);
    const struct matmul_tile tile = {chunk->k + k, packing.steps, chunk->column + column, columns};
    matmul_unpack(spec, chunk->operands->b, &tile, DTYPE_F32, room);
    bool along = spec->b_k == 1; /* steps are neighbours */
    packing.dtype = DTYPE_F32;
    packing.panels = 1;
    packing.left = columns;
    packing.from = room;
    packing.step_stride = along ? 1 : columns;
    packing.stride = along ? packing.steps : 1;
    cpu_simd()->gemm_pack(&packing);
}

static void pack_coded_panels(const struct packed_chunk *chunk, int64_t k, int64_t column,
                              struct gemm_packing packing) {
    for (int64_t i = 0; i < packing.panels; i++) {
        pack_coded(chunk, k, column, packing);
        column += packing.width;
        packing.left -= packing.width;
        packing.to += packing.panel_stride;
    }
}

/* A chunk's b lies [step][panel]; neighbours in memory are packed one after the other. */
static void pack_right(const void *context, int64_t task, int thread) {
    (void)thread;
    const struct packed_chunk *chunk = context;
    const struct packed_matmul *matmul = chunk->matmul;
    const struct matmul_spec *spec = &matmul->spec;
    int64_t across = divided_up(chunk_panels(chunk), PACK_PANELS), panel = task % across * PACK_PANELS;
    int64_t k = task / across * matmul->step, column = panel * panel_columns();
    struct gemm_packing packing = {
        .dtype = spec->dtype,
        .width = panel_columns(),
        .panels = at_most(chunk_panels(chunk) - panel, PACK_PANELS),
        .steps = at_most(chunk->depth - k, matmul->step),
        .left = chunk->columns - column,
        .step_stride = spec->b_k,
        .stride = spec->b_column,
        .to = chunk->right + k * chunk_panels(chunk) * panel_columns() + column * matmul->step,
        .panel_stride = matmul->step * panel_columns(),
    };
    if (spec->b_format != WEIGHT_PLAIN) return pack_coded_panels(chunk, k, column, packing);
    packing.from = element_at(chunk->operands->b, spec->dtype,
                              (chunk->k + k) * spec->b_k + (chunk->column + column) * spec->b_column);
    cpu_simd()->gemm_pack(&packing);
}

/* A task's block is a part of its chunk. */
static void pack_left(const struct packed_chunk *chunk, const struct matmul_part *block, int64_t k, int64_t steps,
                      float *to) {
    const struct matmul_spec *spec = &chunk->matmul->spec;
    const struct gemm_packing packing = {
        .dtype = spec->dtype,
        .width = panel_rows(),
        .panels = divided_up(block->rows, panel_rows()),
        .steps = steps,
        .left = block->rows,
        .from = element_at(chunk->operands->a, spec->dtype,
                           (chunk->row + block->row) * spec->a_row + (chunk->k + k) * spec->a_k),
        .step_stride = spec->a_k,
        .stride = spec->a_row,
        .to = to,
        .panel_stride = steps * panel_rows(),
    };
    cpu_simd()->gemm_pack(&packing);
}

static void multiply_block(const struct packed_chunk *chunk, const struct matmul_part *block, float *left,
                           float *sums) {
    const struct packed_matmul *matmul = chunk->matmul;
    struct matmul_part part = *block;
    part.row += chunk->row;
    part.column += chunk->column;
    struct gemm_result result = matmul_result(&matmul->spec, chunk->operands, &part);
    for (int64_t k = 0; k < chunk->depth; k += matmul->step) {
        int64_t steps = at_most(chunk->depth - k, matmul->step);
        pack_left(chunk, block, k, steps, left);
        const struct gemm_block product = {
            .rows = block->rows,
            .columns = block->columns,
            .steps = steps,
            .a = left,
            .b = chunk->right + k * chunk_panels(chunk) * panel_columns() + block->column * matmul->step,
            .a_stride = steps * panel_rows(),
            .b_stride = matmul->step * panel_columns(),
            .sums = sums,
            .accumulate = chunk->k + k > 0,
            .result = chunk->k + k + steps == matmul->spec.k ? &result : NULL,
        };
        cpu_simd()->gemm(&product);
    }
}

static void packed_task(const void *context, int64_t task, int thread) {
    const struct packed_chunk *chunk = context;
    const struct packed_matmul *matmul = chunk->matmul;
    int64_t across = divided_up(chunk->columns, matmul->block_columns);
    struct matmul_part block = {.row = task / across * matmul->block_rows,
                                .column = task % across * matmul->block_columns};
    block.rows = at_most(chunk->rows - block.row, matmul->block_rows);
    block.columns = at_most(chunk->columns - block.column, matmul->block_columns);
    void *left = chunk->left + thread * left_bytes(matmul);
    void *sums = chunk->sums + (sums_wait(matmul) ? task : thread) * sums_bytes(matmul);
    multiply_block(chunk, &block, left, sums);
}

static void run_chunk(const struct packed_chunk *chunk) {
    const struct packed_matmul *matmul = chunk->matmul;
    parallel_tasks(divided_up(chunk->depth, matmul->step) * divided_up(chunk_panels(chunk), PACK_PANELS),
                   matmul->threads, pack_right, chunk);
    parallel_tasks(divided_up(chunk->rows, matmul->block_rows) * divided_up(chunk->columns, matmul->block_columns),
                   matmul->threads, packed_task, chunk);
}

void packed_matmul_run(const struct packed_matmul *matmul, const struct matmul_operands *operands, void *workspace) {
    const struct matmul_spec *spec = &matmul->spec;
    struct packed_chunk chunk = {.matmul = matmul, .operands = operands, .right = workspace};
    chunk.left = (char *)workspace + right_bytes(matmul);
    chunk.sums = chunk.left + matmul->threads * left_bytes(matmul);
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
