#include "backend/cpu/matmul/parts.h"

#include "backend/cpu/kernel.h"

/* Rows of the short side, fewer where b is read by columns, and words of it. */
enum { SHORT_MAX = 64, SHORT_MAX_BESIDE_TILES = 32, SHORT_LINES_MAX = 8, SHORT_WORDS_MAX = 1 << 20 };
/* Rows for which b is read by rows where it is: pairs of bf16 are put together for each eight of them. */
enum { ROWS_IN_PLACE = 64, PAIR_ROWS_IN_PLACE = 8 };
enum { WIDTH = 16 }; /* whole vectors of any instruction set: columns and words are filled up to it */
/* Columns of a task, and words of a chunk by the way b is read. Rows lie far apart, so their chunks are short. */
enum { TASK_COLUMNS = 128, PACKED_WORDS = 128, ROW_WORDS = 64, COLUMN_WORDS = 1024 };
/* Minimum words of a task that packs the short operand. */
enum { PACK_WORDS = 1 << 14 };

static int64_t word_steps(enum dtype dtype) { return dtype == DTYPE_BF16 ? 2 : 1; }

static bool whole_words(const struct matmul_spec *spec) { return spec->k % word_steps(spec->dtype) == 0; }

static bool has_few_rows(const struct matmul_spec *spec) {
    if (spec->m * spec->k > SHORT_WORDS_MAX) return false;
    bool tiles = spec->dtype == DTYPE_BF16 && cpu_has_bf16_tiles();
    if (spec->b_column == 1) return spec->m <= (tiles ? SHORT_MAX_BESIDE_TILES : SHORT_MAX);
    return spec->m <= SHORT_LINES_MAX && whole_words(spec);
}

static bool has_few_columns(const struct matmul_spec *spec) {
    struct matmul_spec other = matmul_turned(spec);
    return has_few_rows(&other);
}

bool thin_matmul_fits(const struct matmul_spec *spec) {
    if (spec->b_format != WEIGHT_PLAIN) return false;
    if (spec->dtype == DTYPE_BF16 && !cpu_has_bf16_dots()) return false;
    return has_few_rows(spec) || has_few_columns(spec);
}

static enum thin_b b_of_few_rows(const struct matmul_spec *spec) {
    if (spec->b_column != 1) return THIN_B_COLUMNS;
    int64_t max = spec->dtype == DTYPE_BF16 ? PAIR_ROWS_IN_PLACE : ROWS_IN_PLACE;
    return spec->m <= max && spec->n % WIDTH == 0 && whole_words(spec) ? THIN_B_ROWS : THIN_B_PACKED;
}

/* An odd number of vectors, so that rows below each other do not share a set of the first cache. */
static int64_t pitch_of(int64_t columns) { return (divided_up(columns, WIDTH) | 1) * WIDTH; }

void thin_matmul_init(const struct matmul_spec *spec, int threads, struct thin_matmul *out) {
    static const int64_t chunk_words[] = {PACKED_WORDS, ROW_WORDS, COLUMN_WORDS};
    bool turn = !has_few_rows(spec);
    *out = (struct thin_matmul){
        .spec = turn ? matmul_turned(spec) : *spec,
        .transposed = turn,
        .threads = threads,
        .words = rounded_up(divided_up(spec->k, word_steps(spec->dtype)), WIDTH),
    };
    out->b = b_of_few_rows(&out->spec);
    out->chunk_words = chunk_words[out->b];
    out->columns = equal_part(out->spec.n, TASK_COLUMNS, WIDTH);
    out->pitch = pitch_of(out->columns);
}

/* Parts of the workspace. */
static int64_t short_bytes(const struct thin_matmul *matmul) {
    return workspace_align(matmul->words * 4 * matmul->spec.m);
}
static int64_t sums_bytes(const struct thin_matmul *matmul) {
    return workspace_align(matmul->spec.m * matmul->pitch * 4);
}
static int64_t chunk_bytes(const struct thin_matmul *matmul) {
    return matmul->b == THIN_B_PACKED ? workspace_align(PACKED_WORDS * matmul->pitch * 4) : 0;
}
static int64_t turned_row(const struct thin_matmul *matmul) { return rounded_up(matmul->spec.m, WIDTH); }
static int64_t turned_bytes(const struct thin_matmul *matmul) {
    return matmul->transposed ? workspace_align(matmul->columns * turned_row(matmul) * 4) : 0;
}
static int64_t thread_bytes(const struct thin_matmul *matmul) {
    return sums_bytes(matmul) + chunk_bytes(matmul) + turned_bytes(matmul);
}

int64_t thin_matmul_workspace_bytes(const struct thin_matmul *matmul) {
    return short_bytes(matmul) + matmul->threads * thread_bytes(matmul);
}

struct thin_run {
    const struct thin_matmul *matmul;
    struct matmul_operands operands; /* a and b of matmul->spec */
    float *packed;
    char *threads;
};

/* Rows [begin, end) of the short operand, all words. */
static void pack_short(const void *context, int64_t begin, int64_t end) {
    const struct thin_run *run = context;
    const struct matmul_spec *spec = &run->matmul->spec;
    cpu_simd()->pack_lines(
        &(struct word_source){
            .dtype = spec->dtype,
            .data = element_at(run->operands.a, spec->dtype, begin * spec->a_row),
            .lines = end - begin,
            .steps = spec->k,
            .line_stride = spec->a_row,
            .step_stride = spec->a_k,
        },
        run->matmul->words, run->packed + begin * run->matmul->words);
}

/* Columns of b from `column` on, words [word, word + words). */
static void pack_chunk(const struct thin_run *run, int64_t column, int64_t word, int64_t words, float *to) {
    const struct matmul_spec *spec = &run->matmul->spec;
    int64_t k = word * word_steps(spec->dtype);
    cpu_simd()->pack_steps(
        &(struct word_source){
            .dtype = spec->dtype,
            .data = element_at(run->operands.b, spec->dtype, k * spec->b_k + column * spec->b_column),
            .lines = smaller(spec->n - column, run->matmul->columns),
            .steps = spec->k - k,
            .line_stride = spec->b_column,
            .step_stride = spec->b_k,
        },
        words, run->matmul->pitch, to);
}

/* A thread's own data. */
struct own {
    float *sums, *chunk, *turned;
};

static struct own own_of(const struct thin_run *run, int thread) {
    char *sums = run->threads + thread * thread_bytes(run->matmul), *chunk = sums + sums_bytes(run->matmul);
    return (struct own){(void *)sums, (void *)chunk, (void *)(chunk + chunk_bytes(run->matmul))};
}

/* The GEMM of a part without its a, b and words, which are of a chunk. */
static struct word_product product_of(const struct thin_matmul *matmul, const struct matmul_part *part,
                                      const struct own *own) {
    const struct matmul_spec *spec = &matmul->spec;
    int64_t stride = matmul->b == THIN_B_COLUMNS ? spec->b_column : spec->b_k;
    bool packed = matmul->b == THIN_B_PACKED;
    return (struct word_product){
        .dtype = spec->dtype,
        .b_packed = packed,
        .rows = part->rows,
        .columns = part->columns,
        .a_row_bytes = matmul->words * 4,
        .b_row_bytes = packed ? matmul->pitch * 4 : stride * dtype_bytes(spec->dtype),
        .c = own->sums,
        .c_row = matmul->pitch,
    };
}

static void multiply(const struct thin_run *run, const struct matmul_part *part, const struct own *own) {
    const struct thin_matmul *matmul = run->matmul;
    const struct matmul_spec *spec = &matmul->spec;
    struct word_product product = product_of(matmul, part, own);
    int64_t all = divided_up(spec->k, word_steps(spec->dtype));
    for (int64_t word = 0; word < all; word += matmul->chunk_words) {
        int64_t k = word * word_steps(spec->dtype);
        product.words = smaller(all - word, matmul->chunk_words);
        product.a = run->packed + word;
        product.b = element_at(run->operands.b, spec->dtype, k * spec->b_k + part->column * spec->b_column);
        product.accumulate = word > 0;
        if (matmul->b == THIN_B_PACKED) {
            pack_chunk(run, part->column, word, rounded_up(product.words, WIDTH), own->chunk);
            product.b = own->chunk;
        }
        if (matmul->b == THIN_B_COLUMNS)
            cpu_simd()->multiply_lines(&product);
        else
            cpu_simd()->multiply_words(&product);
    }
}

/* Sums whose rows are c's columns. */
static void finish_turned(const struct thin_run *run, const struct matmul_part *part, const struct own *own) {
    const struct thin_matmul *matmul = run->matmul;
    cpu_simd()->pack_lines(
        &(struct word_source){
            .dtype = DTYPE_F32,
            .data = own->sums,
            .lines = part->columns,
            .steps = matmul->spec.m,
            .line_stride = 1,
            .step_stride = matmul->pitch,
        },
        turned_row(matmul), own->turned);
    struct matmul_part turned = {part->column, part->columns, 0, matmul->spec.m};
    matmul_finish(&matmul->spec, &run->operands, &turned, own->turned, turned_row(matmul));
}

static void thin_task(const void *context, int64_t task, int thread) {
    const struct thin_run *run = context;
    const struct thin_matmul *matmul = run->matmul;
    struct own own = own_of(run, thread);
    struct matmul_part part = {.rows = matmul->spec.m, .column = task * matmul->columns};
    part.columns = smaller(matmul->spec.n - part.column, matmul->columns);
    multiply(run, &part, &own);
    if (matmul->transposed)
        finish_turned(run, &part, &own);
    else
        matmul_finish(&matmul->spec, &run->operands, &part, own.sums, matmul->pitch);
}

void thin_matmul_run(const struct thin_matmul *matmul, const struct matmul_operands *operands, void *workspace) {
    struct thin_run run = {.matmul = matmul, .operands = *operands, .packed = workspace};
    run.threads = (char *)workspace + short_bytes(matmul);
    if (matmul->transposed) run.operands.a = operands->b, run.operands.b = operands->a;
    parallel_for(matmul->spec.m, divided_up(PACK_WORDS, matmul->words), pack_short, &run);
    parallel_tasks(divided_up(matmul->spec.n, matmul->columns), matmul->threads, thin_task, &run);
}
