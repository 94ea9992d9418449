#include "backend/cpu/matmul/parts.h"

#include "backend/cpu/kernel.h"

/* A chunk's packed b takes some 5 MiB in fp32, which the last-level cache holds. For tiles, which need it faster, it
 * takes 1.6 MiB, which the second-level cache holds. If b has more steps than a chunk, sums wait for the next chunk,
 * and a chunk has few rows. A task's panels of a (block rows by step) stay in the second cache while it goes through
 * those of b; the thread that reads them packs them. A panel of b fills half of the first cache, or as much of the
 * second as STEP_MAX takes (panel_elements). Tiles read a faster than the second cache delivers it, so both panels of a
 * are in the first. */
enum { CHUNK_ROWS = 1024, CHUNK_DEPTH = 1024, STEP_MAX = 256, PANEL_ELEMENTS = 6144 };
enum { BLOCK_ROWS = 128, TILES_BLOCK_ROWS = 64, BLOCK_ROWS_MIN = 64, BLOCK_PANELS_MIN = 4, TASKS_PER_THREAD = 3 };
enum { PACK_PANELS = 4, PANEL_MAX = 64 }; /* of b at a time; columns of a panel */
/* Few rows: b's source for the next chunk is read from memory while this chunk is computed. For tiles, whose chunk
 * fills the second cache, half of that cache is for it. */
enum { FEW_ROWS = 512 };
/* For tiles: a gradient that is added to over few steps waits for memory, which is fast in long pieces of a few
 * rows. */
enum { FEW_STEPS = 512 };

bool packed_matmul_has_tiles(const struct matmul_spec *spec) {
    return spec->dtype == DTYPE_BF16 && cpu_has_bf16_tiles();
}

/* For b in fp32. Processors with AVX-512's bf16 dot products and without tiles (Zen 4) do one 512-bit multiply-add a
 * cycle, and the second cache delivers b in time. So fewer and longer panels are faster. */
static int64_t panel_elements(void) {
    bool in_second = cpu_has_bf16_dots() && !cpu_has_bf16_tiles();
    return in_second ? STEP_MAX * cpu_simd()->gemm_columns : PANEL_ELEMENTS;
}

static struct packed_kernel kernel_of(const struct matmul_spec *spec) {
    if (packed_matmul_has_tiles(spec))
        return (struct packed_kernel){.rows = 32,
                                      .columns = 32,
                                      .word_steps = 2,
                                      .words_multiple = 16,
                                      .step = STEP_MAX,
                                      .block_rows = TILES_BLOCK_ROWS,
                                      .chunk_words = 400 << 10};
    return (struct packed_kernel){.rows = cpu_simd()->gemm_rows,
                                  .columns = cpu_simd()->gemm_columns,
                                  .word_steps = 1,
                                  .words_multiple = 1,
                                  .step = smaller(panel_elements() / cpu_simd()->gemm_columns, STEP_MAX),
                                  .block_rows = BLOCK_ROWS,
                                  .chunk_words = 1200 << 10};
}

static int64_t chunk_tasks(const struct packed_matmul *matmul) {
    return divided_up(matmul->rows, matmul->block_rows) * divided_up(matmul->columns, matmul->block_columns);
}

/* Smaller blocks until there are tasks for all threads. With many rows, b should be read less often; with many columns,
 * a should be packed less often. */
static void choose_blocks(struct packed_matmul *matmul) {
    const struct packed_kernel *kernel = &matmul->kernel;
    const struct matmul_spec *spec = &matmul->spec;
    bool adds = spec->addend_row > 0 && spec->out_dtype == DTYPE_F32;
    bool few_steps = packed_matmul_has_tiles(spec) && adds && spec->k <= FEW_STEPS;
    matmul->block_rows = equal_part(matmul->rows, few_steps ? kernel->rows : kernel->block_rows, kernel->rows);
    matmul->block_columns = matmul->columns;
    while (chunk_tasks(matmul) < TASKS_PER_THREAD * matmul->threads) {
        if (matmul->block_rows > BLOCK_ROWS_MIN)
            matmul->block_rows = rounded_up(matmul->block_rows / 2, kernel->rows);
        else if (matmul->block_columns > BLOCK_PANELS_MIN * kernel->columns)
            matmul->block_columns = rounded_up(matmul->block_columns / 2, kernel->columns);
        else
            return;
    }
}

/* A weight that multiplies few rows is read more than it is used. So it becomes a, and its lines of steps are packed as
 * they are. The tiles' results are the same to the bit: their products and sums treat a and b alike. */
static bool is_turned(const struct matmul_spec *spec) {
    return packed_matmul_has_tiles(spec) && spec->b_format == WEIGHT_PLAIN && spec->m <= FEW_ROWS &&
           spec->n >= spec->m && spec->a_k == 1 && spec->b_k == 1;
}

/* With all columns in one chunk, a is packed once, at the price of sums of few rows that wait for more chunks. Steps
 * stay as they are, and so do the sums' bits. */
static void take_all_columns(struct packed_matmul *matmul) {
    const struct packed_kernel *kernel = &matmul->kernel;
    int64_t fit = kernel->chunk_words * kernel->word_steps / rounded_up(matmul->spec.n, kernel->columns);
    int64_t depth = fit / matmul->step * matmul->step;
    if (depth >= 2 * matmul->step && depth < matmul->depth && matmul->depth < matmul->spec.k) matmul->depth = depth;
}

void packed_matmul_init(const struct matmul_spec *given, int threads, struct packed_matmul *out) {
    struct packed_kernel kernel = kernel_of(given);
    bool turned = is_turned(given), few_rows = given->m <= FEW_ROWS && !turned;
    const struct matmul_spec turned_spec = matmul_turned(given), *spec = turned ? &turned_spec : given;
    if (few_rows && packed_matmul_has_tiles(given)) kernel.chunk_words /= 2;
    int64_t fit = kernel.chunk_words * kernel.word_steps / rounded_up(spec->n, kernel.columns);
    int64_t max = turned && fit > CHUNK_DEPTH ? fit : CHUNK_DEPTH;
    int64_t multiple = kernel.word_steps * kernel.words_multiple, depth = equal_part(spec->k, max, 1);
    *out = (struct packed_matmul){
        .spec = *spec, .turned = turned, .few_rows = few_rows, .kernel = kernel, .threads = threads};
    out->step = equal_part(depth, kernel.step, multiple);
    out->depth = rounded_up(depth, out->step);
    if (few_rows) take_all_columns(out);
    out->rows = out->depth < spec->k ? equal_part(spec->m, CHUNK_ROWS, kernel.rows) : spec->m;
    out->columns = equal_part(spec->n, kernel.chunk_words * kernel.word_steps / out->depth, kernel.columns);
    choose_blocks(out);
}

/* The number of words for `steps` steps. */
static int64_t words_of(const struct packed_matmul *matmul, int64_t steps) {
    return rounded_up(divided_up(steps, matmul->kernel.word_steps), matmul->kernel.words_multiple);
}

/* Parts of the workspace. Sums are kept for each task where they wait for the next chunk, else for each thread. */
static int64_t left_bytes(const struct packed_matmul *matmul) {
    return workspace_align(matmul->block_rows * words_of(matmul, matmul->step) * 4);
}
static int64_t right_bytes(const struct packed_matmul *matmul) {
    return workspace_align(matmul->columns * words_of(matmul, matmul->depth) * 4);
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

static int64_t chunk_panels(const struct packed_chunk *chunk) {
    return divided_up(chunk->columns, chunk->matmul->kernel.columns);
}

/* The address of a panel of a chunk's b: [step][panel]. */
static float *right_panel(const struct packed_chunk *chunk, int64_t k, int64_t column) {
    int64_t before = k / chunk->matmul->step * chunk_panels(chunk) * chunk->matmul->kernel.columns + column;
    return chunk->right + before * words_of(chunk->matmul, chunk->matmul->step);
}

/* Rows of a, or columns of b, and steps of them. */
struct packing {
    enum dtype dtype;
    const void *from;
    int64_t lines, steps;
    int64_t line_stride, step_stride;
};

static void pack_floats(const struct packing *packing, int64_t width, int64_t panel_stride, float *to) {
    cpu_simd()->gemm_pack(&(struct gemm_packing){
        .dtype = packing->dtype,
        .width = width,
        .panels = divided_up(packing->lines, width),
        .steps = packing->steps,
        .left = packing->lines,
        .from = packing->from,
        .step_stride = packing->step_stride,
        .stride = packing->line_stride,
        .to = to,
        .panel_stride = panel_stride,
    });
}

static struct word_source words_from(const struct packing *packing) {
    return (struct word_source){packing->dtype, packing->from,        packing->lines,
                                packing->steps, packing->line_stride, packing->step_stride};
}

static void pack_pairs_left(const struct packed_matmul *matmul, const struct packing *packing, float *to) {
    struct word_source source = words_from(packing);
    cpu_simd()->pack_lines(&source, words_of(matmul, packing->steps), to);
}

static void pack_pairs_right(const struct packed_matmul *matmul, const struct packing *packing, float *to) {
    struct word_source source = words_from(packing);
    int64_t width = matmul->kernel.columns;
    for (; source.lines > 0; source.lines -= width) {
        struct word_source panel = source;
        panel.lines = smaller(source.lines, width);
        cpu_simd()->pack_steps(&panel, words_of(matmul, packing->steps), width, to);
        source.data = element_at(source.data, source.dtype, width * source.line_stride);
        to += words_of(matmul, matmul->step) * width;
    }
}

static void pack_b(const struct packed_matmul *matmul, const struct packing *packing, float *to) {
    int64_t width = matmul->kernel.columns;
    if (matmul->kernel.word_steps == 1)
        pack_floats(packing, width, words_of(matmul, matmul->step) * width, to);
    else
        pack_pairs_right(matmul, packing, to);
}

/* Columns of b that are packed at a time. For a quantized b they are as many as possible: a block of 64 numbers across
 * columns has one scale. */
static int64_t pack_width(const struct packed_matmul *matmul) {
    int64_t columns = matmul->kernel.columns;
    return matmul->spec.b_format == WEIGHT_PLAIN ? PACK_PANELS * columns : PANEL_MAX / columns * columns;
}

/* Panels of a quantized b, unpacked to the source that is packed. */
static void pack_quantized(const struct packed_chunk *chunk, int64_t k, int64_t column, struct packing packing) {
    const struct packed_matmul *matmul = chunk->matmul;
    enum dtype dtype = matmul->kernel.word_steps == 1 ? DTYPE_F32 : matmul->spec.dtype;
    _Alignas(64) float buffer[PANEL_MAX * STEP_MAX];
    BUG_IF(packing.lines > PANEL_MAX || packing.steps > STEP_MAX, "panels of %lld columns", (long long)packing.lines);
    const struct matmul_tile tile = {chunk->k + k, packing.steps, chunk->column + column, packing.lines};
    matmul_unpack(&matmul->spec, chunk->operands->b, &tile, dtype, buffer);
    bool along = matmul->spec.b_k == 1; /* steps are neighbours */
    packing.dtype = dtype;
    packing.from = buffer;
    packing.step_stride = along ? 1 : packing.lines;
    packing.line_stride = along ? packing.steps : 1;
    pack_b(matmul, &packing, right_panel(chunk, k, column));
}

/* Packing tasks of a chunk's step. */
static int64_t pack_tasks(const struct packed_chunk *chunk) {
    return divided_up(chunk->columns, pack_width(chunk->matmul));
}

/* Panels next to each other: neighbours in memory are packed one after the other. */
static void pack_right(const void *context, int64_t task, int thread) {
    (void)thread;
    const struct packed_chunk *chunk = context;
    const struct packed_matmul *matmul = chunk->matmul;
    const struct matmul_spec *spec = &matmul->spec;
    bool quantized = spec->b_format != WEIGHT_PLAIN;
    int64_t width = pack_width(matmul), across = pack_tasks(chunk);
    int64_t k = task / across * matmul->step, column = task % across * width;
    struct packing packing = {
        .dtype = spec->dtype,
        .lines = smaller(chunk->columns - column, width),
        .steps = smaller(chunk->depth - k, matmul->step),
        .line_stride = spec->b_column,
        .step_stride = spec->b_k,
    };
    if (quantized) return pack_quantized(chunk, k, column, packing);
    packing.from = element_at(chunk->operands->b, spec->dtype,
                              (chunk->k + k) * spec->b_k + (chunk->column + column) * spec->b_column);
    pack_b(matmul, &packing, right_panel(chunk, k, column));
}

/* A task's block is a part of its chunk. */
static void pack_left(const struct packed_chunk *chunk, const struct matmul_part *block, int64_t k, int64_t steps,
                      float *to) {
    const struct packed_matmul *matmul = chunk->matmul;
    const struct matmul_spec *spec = &matmul->spec;
    const struct packing packing = {
        .dtype = spec->dtype,
        .from = element_at(chunk->operands->a, spec->dtype,
                           (chunk->row + block->row) * spec->a_row + (chunk->k + k) * spec->a_k),
        .lines = block->rows,
        .steps = steps,
        .line_stride = spec->a_row,
        .step_stride = spec->a_k,
    };
    int64_t width = matmul->kernel.rows;
    if (matmul->kernel.word_steps == 1)
        pack_floats(&packing, width, words_of(matmul, steps) * width, to);
    else
        pack_pairs_left(matmul, &packing, to);
}

static struct matmul_part block_of(const struct packed_chunk *chunk, int64_t task) {
    const struct packed_matmul *matmul = chunk->matmul;
    int64_t across = divided_up(chunk->columns, matmul->block_columns);
    struct matmul_part block = {.row = task / across * matmul->block_rows,
                                .column = task % across * matmul->block_columns};
    block.rows = smaller(chunk->rows - block.row, matmul->block_rows);
    block.columns = smaller(chunk->columns - block.column, matmul->block_columns);
    return block;
}

static int64_t block_tasks(const struct packed_chunk *chunk) {
    return divided_up(chunk->rows, chunk->matmul->block_rows) *
           divided_up(chunk->columns, chunk->matmul->block_columns);
}

/* The weight that a turned GEMM packs in its next step: of this task or the next. */
static struct gemm_later later_left(const struct packed_chunk *chunk, int64_t task, int64_t k) {
    const struct packed_matmul *matmul = chunk->matmul;
    const struct matmul_spec *spec = &matmul->spec;
    int64_t next = k + matmul->step;
    if (next >= chunk->depth) next = 0, task--;
    if (task < 0) return (struct gemm_later){.lines = 0};
    struct matmul_part block = block_of(chunk, task);
    return (struct gemm_later){
        .from = element_at(chunk->operands->a, spec->dtype, (chunk->row + block.row) * spec->a_row + chunk->k + next),
        .lines = block.rows,
        .bytes = smaller(chunk->depth - next, matmul->step) * dtype_bytes(spec->dtype),
        .stride = spec->a_row * dtype_bytes(spec->dtype),
    };
}

/* The source of the next chunk's b: the share that one of `products` GEMMs reads ahead. */
static struct gemm_later later_right(const struct packed_chunk *chunk, int64_t product, int64_t products) {
    const struct packed_matmul *matmul = chunk->matmul;
    const struct matmul_spec *spec = &matmul->spec;
    struct packed_chunk next = *chunk;
    next.k += chunk->depth;
    if (next.k >= spec->k) next.k = 0, next.column += chunk->columns;
    if (next.column >= spec->n) return (struct gemm_later){.lines = 0};
    int64_t steps = smaller(spec->k - next.k, matmul->depth), columns = smaller(spec->n - next.column, matmul->columns);
    bool along = spec->b_k == 1; /* lines are columns */
    int64_t lines = along ? columns : steps, first = lines * product / products;
    int64_t line = along ? spec->b_column : spec->b_k, bytes = dtype_bytes(spec->dtype);
    return (struct gemm_later){
        .from = element_at(chunk->operands->b, spec->dtype,
                           next.k * spec->b_k + next.column * spec->b_column + first * line),
        .lines = lines * (product + 1) / products - first,
        .bytes = (along ? steps : columns) * bytes,
        .stride = line * bytes,
    };
}

static struct gemm_later later_of(const struct packed_chunk *chunk, int64_t task, int64_t k) {
    const struct packed_matmul *matmul = chunk->matmul;
    if (matmul->turned) return later_left(chunk, task, k);
    if (!matmul->few_rows || matmul->spec.b_format != WEIGHT_PLAIN) return (struct gemm_later){.lines = 0};
    int64_t steps = divided_up(chunk->depth, matmul->step), tasks = block_tasks(chunk);
    return later_right(chunk, (tasks - 1 - task) * steps + k / matmul->step, tasks * steps);
}

/* c has the sums' rows, or has them as columns. */
static struct gemm_result result_of(const struct packed_chunk *chunk, const struct matmul_part *block) {
    struct matmul_part part = {chunk->row + block->row, block->rows, chunk->column + block->column, block->columns};
    struct matmul_part turned = {part.column, part.columns, part.row, part.rows};
    bool turn = chunk->matmul->turned;
    struct gemm_result result = matmul_result(&chunk->matmul->spec, chunk->operands, turn ? &turned : &part);
    result.turned = turn;
    return result;
}

static void multiply_block(const struct packed_chunk *chunk, int64_t task, float *left, float *sums) {
    const struct packed_matmul *matmul = chunk->matmul;
    const struct packed_kernel *kernel = &matmul->kernel;
    const struct matmul_part own = block_of(chunk, task), *block = &own;
    struct gemm_result result = result_of(chunk, block);
    for (int64_t k = 0; k < chunk->depth; k += matmul->step) {
        int64_t steps = smaller(chunk->depth - k, matmul->step);
        pack_left(chunk, block, k, steps, left);
        const struct gemm_block product = {
            .rows = block->rows,
            .columns = block->columns,
            .steps = words_of(matmul, steps),
            .a = left,
            .b = right_panel(chunk, k, block->column),
            .a_stride = words_of(matmul, steps) * kernel->rows,
            .b_stride = words_of(matmul, matmul->step) * kernel->columns,
            .sums = sums,
            .accumulate = chunk->k + k > 0,
            .result = chunk->k + k + steps == matmul->spec.k ? &result : NULL,
            .later = later_of(chunk, task, k),
        };
        if (kernel->word_steps == 1)
            cpu_simd()->gemm(&product);
        else
            cpu_simd()->gemm_pairs(&product);
    }
}

static void packed_task(const void *context, int64_t task, int thread) {
    const struct packed_chunk *chunk = context;
    const struct packed_matmul *matmul = chunk->matmul;
    void *left = chunk->left + thread * left_bytes(matmul);
    void *sums = chunk->sums + (sums_wait(matmul) ? task : thread) * sums_bytes(matmul);
    multiply_block(chunk, task, left, sums);
}

static void run_chunk(const struct packed_chunk *chunk) {
    const struct packed_matmul *matmul = chunk->matmul;
    parallel_tasks(divided_up(chunk->depth, matmul->step) * pack_tasks(chunk), matmul->threads, pack_right, chunk);
    parallel_tasks(block_tasks(chunk), matmul->threads, packed_task, chunk);
}

void packed_matmul_run(const struct packed_matmul *matmul, const struct matmul_operands *operands, void *workspace) {
    const struct matmul_spec *spec = &matmul->spec;
    struct matmul_operands own = *operands;
    if (matmul->turned) own.a = operands->b, own.b = operands->a;
    struct packed_chunk chunk = {.matmul = matmul, .operands = &own, .right = workspace};
    chunk.left = (char *)workspace + right_bytes(matmul);
    chunk.sums = chunk.left + matmul->threads * left_bytes(matmul);
    for (chunk.row = 0; chunk.row < spec->m; chunk.row += matmul->rows) {
        chunk.rows = smaller(spec->m - chunk.row, matmul->rows);
        for (chunk.column = 0; chunk.column < spec->n; chunk.column += matmul->columns) {
            chunk.columns = smaller(spec->n - chunk.column, matmul->columns);
            for (chunk.k = 0; chunk.k < spec->k; chunk.k += matmul->depth) {
                chunk.depth = smaller(spec->k - chunk.k, matmul->depth);
                run_chunk(&chunk);
            }
        }
    }
}
