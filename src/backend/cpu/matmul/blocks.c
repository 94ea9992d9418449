#include "backend/cpu/matmul/parts.h"

#include "backend/cpu/kernel.h"
#include "backend/cpu/matmul/onednn.h"

/* A block's sums stay in the first cache. With them oneDNN is as fast as with any larger block, unless there are so few
 * steps that calling it takes as long as the GEMM. */
enum { BLOCK_ROWS = 64, ROWS_MULTIPLE = 16, STEPS_MIN = 512, BLOCK_PANELS_MAX = 8 };
enum { PANEL_COLUMNS = ONEDNN_PANEL_COLUMNS, COLUMNS_MULTIPLE = 16 };
/* In bf16: steps in a word of 32 bits, and in the words that oneDNN takes at a time. */
enum { ELEMENT_BYTES = 2, WORD_STEPS = 2, PANEL_STEPS = ONEDNN_PANEL_WORDS * WORD_STEPS };
/* A chunk's packed operands and sums take at most some 4 MiB each, which the last cache holds. An a that lies by rows
 * is packed when its rows are so long that a chunk of b would have few columns. */
enum { CHUNK_ROWS = 1024, CHUNK_COLUMNS = 1024, CHUNK_DEPTH = 1024, CHUNK_BYTES = 4 << 20, DEPTH_IN_PLACE = 4096 };
/* Minimum blocks of a task, if there are enough rows for all threads. */
enum { TASK_BLOCKS = 4, ROW_BLOCKS_MIN = 4 };
/* A thread's piece when it packs: enough words for a parallel loop, and enough lines or steps to read from few pages of
 * memory. */
enum { PACK_WORDS = 1 << 14, PACK_LINES = 64, PACK_STEPS = 256 };

static bool reads_a(const struct matmul_spec *spec) {
    return spec->a_k == 1 && spec->a_row == spec->k && spec->k <= DEPTH_IN_PLACE;
}

/* With one block of rows, each part of b is read by one task only: oneDNN takes it from where it is. */
static bool reads_b(const struct matmul_spec *spec) {
    return spec->b_format == WEIGHT_PLAIN && reads_a(spec) && spec->m <= BLOCK_ROWS && spec->b_k == 1 &&
           spec->b_column == spec->k;
}

/* The widest panels among those that leave the fewest columns empty. With many columns, few are empty. */
static int64_t panel_columns(int64_t n) {
    if (n >= 4 * PANEL_COLUMNS) return PANEL_COLUMNS;
    int64_t best = PANEL_COLUMNS;
    for (int64_t columns = PANEL_COLUMNS; columns > 0; columns -= COLUMNS_MULTIPLE)
        if (rounded_up(n, columns) < rounded_up(n, best)) best = columns;
    return best;
}

static int64_t block_panels(const struct matmul_spec *spec, int64_t panel) {
    int64_t wanted = smaller(divided_up(STEPS_MIN, spec->k), BLOCK_PANELS_MAX);
    return smaller(wanted, divided_up(spec->n, panel));
}

/* Columns of b whose steps a chunk holds in full. */
static int64_t chunk_columns(const struct blocks_matmul *matmul) {
    int64_t fit = CHUNK_BYTES / (matmul->depth * ELEMENT_BYTES);
    int64_t max = smaller(fit, CHUNK_COLUMNS) / matmul->block_columns * matmul->block_columns;
    return equal_part(matmul->spec.n, max > 0 ? max : matmul->block_columns, matmul->block_columns);
}

static void choose_blocks(const struct matmul_spec *spec, struct blocks_matmul *out) {
    *out = (struct blocks_matmul){
        .spec = *spec,
        .threads = parallel_threads(),
        .pack_a = !reads_a(spec),
        .pack_b = !reads_b(spec),
        .rows = spec->m,
        .depth = spec->k,
        .block_rows = smaller(spec->m, equal_part(spec->m, BLOCK_ROWS, ROWS_MULTIPLE)),
        .panel = reads_b(spec) ? smaller(spec->n, PANEL_COLUMNS) : panel_columns(spec->n),
    };
    out->block_columns = out->panel * block_panels(spec, out->panel);
    if (out->pack_a) {
        out->rows = smaller(spec->m, equal_part(spec->m, CHUNK_ROWS, out->block_rows));
        out->depth = equal_part(spec->k, CHUNK_DEPTH, PANEL_STEPS);
    }
    /* With one block of rows, a part of b is for one task only. */
    out->pack_b_alone = out->pack_b && spec->m <= BLOCK_ROWS;
    bool shared = out->pack_b && !out->pack_b_alone;
    out->columns = shared ? chunk_columns(out) : rounded_up(spec->n, out->block_columns);
}

/* Packed operands are filled up with zeros to so many steps. */
static int64_t padded(int64_t depth) { return rounded_up(depth, PANEL_STEPS); }

/* Sizes of the last block where it is smaller, else of any. */
static int64_t last_part(int64_t all, int64_t part) { return all % part ? all % part : part; }

/* The columns that oneDNN is given for so many columns of c. */
static int64_t whole_panels(const struct blocks_matmul *matmul, int64_t columns) {
    return matmul->pack_b ? rounded_up(columns, matmul->panel) : columns;
}

static enum status take_block(struct blocks_matmul *matmul, int last_rows, int last_columns, int last_depth) {
    const struct matmul_spec *spec = &matmul->spec;
    int64_t rows = last_part(spec->m, matmul->block_rows);
    int64_t depth = last_depth ? last_part(spec->k, matmul->depth) : matmul->depth;
    int64_t columns = whole_panels(matmul, last_part(spec->n, matmul->block_columns));
    struct onednn_shape shape = {
        .rows = last_rows ? rows : matmul->block_rows,
        .columns = last_columns ? columns : matmul->block_columns,
        .k = matmul->pack_a ? padded(depth) : depth,
        .panel = matmul->pack_b ? matmul->panel : 0,
        .threads = matmul->threads,
    };
    struct onednn_block **block = &matmul->blocks[last_rows][last_columns][last_depth];
    TRY(onednn_block_take(&shape, block));
    int64_t bytes = *block ? onednn_block_scratch_bytes(*block) : 0;
    if (bytes > matmul->scratch_bytes) matmul->scratch_bytes = bytes;
    return STATUS_OK;
}

enum status blocks_matmul_create(const struct matmul_spec *spec, struct blocks_matmul *out, bool *usable) {
    choose_blocks(spec, out);
    *usable = true;
    for (int i = 0; i < 8 && *usable; i++) {
        enum status status = take_block(out, i >> 2, i >> 1 & 1, i & 1);
        *usable = status == STATUS_OK && out->blocks[i >> 2][i >> 1 & 1][i & 1];
        if (*usable) continue;
        blocks_matmul_release(out);
        return status;
    }
    return STATUS_OK;
}

void blocks_matmul_release(struct blocks_matmul *matmul) {
    for (int i = 0; i < 8; i++)
        onednn_block_give(matmul->blocks[i >> 2][i >> 1 & 1][i & 1]);
}

/* Parts of the workspace. The sums of a chunk are kept only where more steps follow. */
static int64_t left_bytes(const struct blocks_matmul *matmul) {
    int64_t bytes = matmul->rows * padded(matmul->depth) * ELEMENT_BYTES;
    return matmul->pack_a ? workspace_align(bytes) : 0;
}
static int64_t panels_bytes(const struct blocks_matmul *matmul, int64_t columns) {
    return workspace_align(columns * padded(matmul->depth) * ELEMENT_BYTES);
}
static int64_t right_bytes(const struct blocks_matmul *matmul) {
    return matmul->pack_b && !matmul->pack_b_alone ? panels_bytes(matmul, matmul->columns) : 0;
}
static int64_t sums_bytes(const struct blocks_matmul *matmul) {
    return matmul->depth < matmul->spec.k ? workspace_align(matmul->rows * matmul->columns * 4) : 0;
}
static int64_t block_bytes(const struct blocks_matmul *matmul) {
    return workspace_align(matmul->block_rows * matmul->block_columns * 4);
}
static int64_t thread_bytes(const struct blocks_matmul *matmul) {
    int64_t panels = matmul->pack_b_alone ? panels_bytes(matmul, matmul->block_columns) : 0;
    return block_bytes(matmul) + panels + workspace_align(matmul->scratch_bytes);
}

int64_t blocks_matmul_workspace_bytes(const struct blocks_matmul *matmul) {
    return left_bytes(matmul) + right_bytes(matmul) + sums_bytes(matmul) + matmul->threads * thread_bytes(matmul);
}

/* Rows [row, row + rows) and columns [column, column + columns) of c, steps [k, k + depth) of the sums. */
struct blocks_chunk {
    const struct blocks_matmul *matmul;
    const struct matmul_operands *operands;
    int64_t row, rows, column, columns, k, depth;
    int64_t task_blocks;
    int seat; /* at oneDNN's blocks */
    char *left, *right, *threads;
    float *sums;
};

static int64_t chunk_words(const struct blocks_chunk *chunk) { return padded(chunk->depth) / WORD_STEPS; }

/* Lines [line, line + count) of a chunk's a. */
static void pack_left(const void *context, int64_t begin, int64_t end) {
    const struct blocks_chunk *chunk = context;
    const struct matmul_spec *spec = &chunk->matmul->spec;
    int64_t words = chunk_words(chunk), first = (chunk->row + begin) * spec->a_row + chunk->k * spec->a_k;
    struct word_source source = {
        .dtype = spec->dtype,
        .data = element_at(chunk->operands->a, spec->dtype, first),
        .lines = end - begin,
        .steps = chunk->depth,
        .line_stride = spec->a_row,
        .step_stride = spec->a_k,
    };
    cpu_simd()->pack_lines(&source, words, (float *)chunk->left + begin * words);
}

static int64_t chunk_panels(const struct blocks_chunk *chunk) {
    return divided_up(chunk->columns, chunk->matmul->panel);
}

/* PACK_STEPS steps from k on of the panel that begins with a column of the chunk. */
static struct word_source piece_of(const struct blocks_chunk *chunk, int64_t column, int64_t k) {
    const struct matmul_spec *spec = &chunk->matmul->spec;
    struct word_source source = {
        .dtype = spec->dtype,
        .lines = smaller(chunk->columns - column, chunk->matmul->panel),
        .steps = smaller(chunk->depth - k, PACK_STEPS),
        .line_stride = spec->b_column,
        .step_stride = spec->b_k,
    };
    return source;
}

static void pack_words(const struct blocks_chunk *chunk, const struct word_source *source, int64_t k, float *panel) {
    int64_t width = chunk->matmul->panel, word = k / WORD_STEPS;
    cpu_simd()->pack_steps(source, smaller(chunk_words(chunk) - word, PACK_STEPS / WORD_STEPS), width,
                           panel + word * width);
}

static void pack_quantized(const struct blocks_chunk *chunk, int64_t column, int64_t k, float *panel) {
    const struct matmul_spec *spec = &chunk->matmul->spec;
    _Alignas(64) char buffer[PANEL_COLUMNS * PACK_STEPS * ELEMENT_BYTES];
    struct word_source source = piece_of(chunk, column, k);
    const struct matmul_tile tile = {chunk->k + k, source.steps, chunk->column + column, source.lines};
    matmul_unpack(spec, chunk->operands->b, &tile, spec->dtype, buffer);
    source.data = buffer;
    source.line_stride = spec->b_k == 1 ? source.steps : 1;
    source.step_stride = spec->b_k == 1 ? 1 : source.lines;
    pack_words(chunk, &source, k, panel);
}

static void pack_piece(const struct blocks_chunk *chunk, int64_t column, int64_t k, float *panel) {
    const struct matmul_spec *spec = &chunk->matmul->spec;
    if (spec->b_format != WEIGHT_PLAIN) return pack_quantized(chunk, column, k, panel);
    struct word_source source = piece_of(chunk, column, k);
    int64_t first = (chunk->k + k) * spec->b_k + (chunk->column + column) * spec->b_column;
    source.data = element_at(chunk->operands->b, spec->dtype, first);
    pack_words(chunk, &source, k, panel);
}

/* Pieces of panels, numbered along the rows of b, so that a thread reads rows in long pieces. */
static void pack_right(const void *context, int64_t begin, int64_t end) {
    const struct blocks_chunk *chunk = context;
    int64_t panels = chunk_panels(chunk);
    for (int64_t i = begin; i < end; i++) {
        int64_t column = i % panels * chunk->matmul->panel;
        pack_piece(chunk, column, i / panels * PACK_STEPS, (float *)chunk->right + column * chunk_words(chunk));
    }
}

static void pack_own(const struct blocks_chunk *chunk, const struct matmul_part *block, float *to) {
    for (int64_t column = 0; column < block->columns; column += chunk->matmul->panel)
        for (int64_t k = 0; k < chunk->depth; k += PACK_STEPS)
            pack_piece(chunk, block->column + column, k, to + column * chunk_words(chunk));
}

/* The rows of a stay packed for all chunks of columns where a chunk has all steps. */
static void pack(const struct blocks_chunk *chunk) {
    const struct blocks_matmul *matmul = chunk->matmul;
    if (matmul->pack_a && (chunk->column == 0 || matmul->depth < matmul->spec.k))
        parallel_for(chunk->rows, rounded_up(divided_up(PACK_WORDS, chunk_words(chunk)), PACK_LINES), pack_left, chunk);
    if (matmul->pack_b && !matmul->pack_b_alone)
        parallel_for(divided_up(padded(chunk->depth), PACK_STEPS) * chunk_panels(chunk),
                     divided_up(PACK_WORDS, PACK_STEPS * matmul->panel), pack_right, chunk);
}

static const void *left_of(const struct blocks_chunk *chunk, int64_t row) {
    const struct matmul_spec *spec = &chunk->matmul->spec;
    if (chunk->matmul->pack_a) return chunk->left + row * chunk_words(chunk) * 4;
    return element_at(chunk->operands->a, spec->dtype, (chunk->row + row) * spec->k);
}

static const void *right_of(const struct blocks_chunk *chunk, int64_t column) {
    const struct matmul_spec *spec = &chunk->matmul->spec;
    if (chunk->matmul->pack_b) return chunk->right + column * chunk_words(chunk) * 4;
    return element_at(chunk->operands->b, spec->dtype, (chunk->column + column) * spec->k);
}

/* Adds the sums of the steps before, and keeps the result for those after. Blocks of sums lie one after the other. */
static void add_kept(const struct blocks_chunk *chunk, const struct matmul_part *block, bool last, float *sums) {
    int64_t count = block->rows * whole_panels(chunk->matmul, block->columns);
    float *kept = chunk->sums + block->row * chunk->matmul->columns + block->column * block->rows;
    if (chunk->k > 0) cpu_simd()->accumulate(DTYPE_F32, count, kept, sums);
    if (!last) memcpy(kept, sums, (size_t)count * sizeof *kept);
}

static const struct onednn_block *product_of(const struct blocks_chunk *chunk, const struct matmul_part *block) {
    const struct blocks_matmul *matmul = chunk->matmul;
    bool fewer_rows = block->rows < matmul->block_rows, fewer_columns = block->columns < matmul->block_columns;
    return matmul->blocks[fewer_rows][fewer_columns][chunk->depth < matmul->depth];
}

static void compute_block(const struct blocks_chunk *chunk, const struct matmul_part *block, int thread) {
    const struct blocks_matmul *matmul = chunk->matmul;
    struct matmul_part part = {chunk->row + block->row, block->rows, chunk->column + block->column, block->columns};
    char *own = chunk->threads + thread * thread_bytes(matmul), *panels = own + block_bytes(matmul);
    char *scratch = own + thread_bytes(matmul) - workspace_align(matmul->scratch_bytes);
    bool last = chunk->k + chunk->depth == matmul->spec.k;
    if (last) matmul_fetch(&matmul->spec, chunk->operands, &part);
    if (matmul->pack_b_alone) pack_own(chunk, block, (float *)(void *)panels);
    const void *right = matmul->pack_b_alone ? panels : right_of(chunk, block->column);
    float *sums = (float *)(void *)own;
    onednn_block_run(product_of(chunk, block), chunk->seat, thread, left_of(chunk, block->row), right, sums, scratch);
    add_kept(chunk, block, last, sums);
    if (last) matmul_finish(&matmul->spec, chunk->operands, &part, sums, whole_panels(matmul, block->columns));
}

/* Some blocks next to each other, of the same rows. */
static void blocks_task(const void *context, int64_t task, int thread) {
    const struct blocks_chunk *chunk = context;
    const struct blocks_matmul *matmul = chunk->matmul;
    int64_t across = divided_up(chunk->columns, chunk->task_blocks * matmul->block_columns);
    struct matmul_part block = {.row = task / across * matmul->block_rows};
    block.rows = smaller(chunk->rows - block.row, matmul->block_rows);
    block.column = task % across * chunk->task_blocks * matmul->block_columns;
    for (int64_t i = 0; i < chunk->task_blocks && block.column < chunk->columns; i++) {
        block.columns = smaller(chunk->columns - block.column, matmul->block_columns);
        compute_block(chunk, &block, thread);
        block.column += matmul->block_columns;
    }
}

static void run_chunk(struct blocks_chunk *chunk) {
    int64_t down = divided_up(chunk->rows, chunk->matmul->block_rows);
    chunk->task_blocks = down < ROW_BLOCKS_MIN ? 1 : TASK_BLOCKS;
    int64_t across = divided_up(chunk->columns, chunk->task_blocks * chunk->matmul->block_columns);
    pack(chunk);
    parallel_tasks(down * across, chunk->matmul->threads, blocks_task, chunk);
}

void blocks_matmul_run(const struct blocks_matmul *matmul, const struct matmul_operands *operands, void *workspace) {
    const struct matmul_spec *spec = &matmul->spec;
    struct blocks_chunk chunk = {.matmul = matmul, .operands = operands, .left = workspace};
    chunk.right = chunk.left + left_bytes(matmul);
    chunk.sums = (float *)(void *)(chunk.right + right_bytes(matmul));
    chunk.threads = (char *)chunk.sums + sums_bytes(matmul);
    chunk.seat = onednn_begin(matmul->threads);
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
    onednn_end(chunk.seat);
}
