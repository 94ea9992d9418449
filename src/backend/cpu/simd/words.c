/* Packing for GEMMs of words: a and b by lines or by steps, in words of 32 bits. A word is a step of k in fp32, a
 * pair of steps in bf16. Nothing is computed: bits are moved. */
#include "backend/cpu/simd/simd.h"

/* Words are where pairs of bf16 numbers are: at any even address. */
INLINE vf words_load(const char *from) {
    vf words;
    memcpy(&words, from, sizeof words);
    return words;
}

/* Words [word, word + LANES) of a line, whose steps lie together; zeros after the last step. */
INLINE vf words_along(const struct word_source *source, bool bf16, int64_t line, int64_t word) {
    int64_t step = bf16 ? 2 * word : word, bytes = bf16 ? 2 : 4, left = (source->steps - step) * bytes;
    const char *from = (const char *)source->data + (line * source->line_stride + step) * bytes;
    if (left >= (int64_t)sizeof(vf)) return words_load(from);
    float part[LANES] = {0};
    if (left > 0) memcpy(part, from, (size_t)left);
    return vf_load(part);
}

/* LANES bf16 elements, `left` of them valid, in the low halves of words. */
INLINE vu halves(const uint16_t *from, int64_t left) {
    if (left >= LANES) return vu_widen((vh)(*(const vh_unaligned *)from));
    return vu_widen(part_load_bf16(from, left));
}

/* Word `word` of the adjacent lines [line, line + LANES), `left` of which are valid; zeros after the last step and
 * line. */
INLINE vf words_across(const struct word_source *source, bool bf16, int64_t line, int64_t left, int64_t word) {
    int64_t step = bf16 ? 2 * word : word;
    if (step >= source->steps) return (vf){0};
    if (!bf16) return load(source->data, step * source->step_stride + line, left, false);
    const uint16_t *first = (const uint16_t *)source->data + step * source->step_stride + line;
    if (step + 1 >= source->steps) return (vf)halves(first, left);
    return (vf)(halves(first, left) | halves(first + source->step_stride, left) << 16);
}

enum { LINE_BYTES = 64, WORDS_AHEAD = 8 };

/* Transposes squares of words, [line][word] to [word][line], and prefetches the source of the next squares. */
INLINE void square_along(const struct word_source *source, bool bf16, int64_t line, int64_t word, int64_t ahead,
                         vf square[LANES]) {
    const char *next = (const char *)source->data + (line + ahead) * source->line_stride * (bf16 ? 2 : 4) + word * 4;
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++)
        square[i] = line + i < source->lines ? words_along(source, bf16, line + i, word) : (vf){0};
    for (int i = 0; i < LANES; i++)
        __builtin_prefetch(next + i * source->line_stride * (bf16 ? 2 : 4), 0, 2);
}

INLINE void square_across(const struct word_source *source, bool bf16, int64_t line, int64_t word, vf square[LANES]) {
    int64_t left = source->lines - line, end = (word + LANES) * (bf16 ? 2 : 1), bytes = bf16 ? 2 : 4;
    if (left >= LANES && end <= source->steps) {
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++)
            square[i] = words_across(source, bf16, line, LANES, word + i);
    } else {
        for (int i = 0; i < LANES; i++)
            square[i] = words_across(source, bf16, line, left, word + i);
    }
    if (line * bytes % LINE_BYTES) return;
    const char *next = (const char *)source->data + (end * source->step_stride + line) * bytes;
    for (int64_t step = 0; step < LANES * 4 / bytes; step++)
        __builtin_prefetch(next + step * source->step_stride * bytes, 0, 2);
}

/* Pairs of two rows' neighbours, of 2 LANES columns. */
INLINE void pair_rows(const uint16_t *first, const uint16_t *second, float *to) {
#if SIMD_LANES == 16
    typedef uint16_t row_unaligned __attribute__((vector_size(64), aligned(2), may_alias));
    typedef uint16_t row __attribute__((vector_size(64)));
    row a = (row)(*(const row_unaligned *)first), b = (row)(*(const row_unaligned *)second);
    vf_store(to, (vf)__builtin_shufflevector(a, b, 0, 32, 1, 33, 2, 34, 3, 35, 4, 36, 5, 37, 6, 38, 7, 39, 8, 40, 9, 41,
                                             10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47));
    vf_store(to + LANES,
             (vf)__builtin_shufflevector(a, b, 16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55, 24, 56,
                                         25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63));
#else
    for (int i = 0; i < 2 * LANES; i += LANES)
        vf_store(to + i, (vf)(halves(first + i, LANES) | halves(second + i, LANES) << 16));
#endif
}

/* Steps are rows: asks for those of a few words ahead. */
INLINE void word_across(const struct word_source *source, bool bf16, int64_t word, int64_t width, float *to) {
    int64_t stride = source->step_stride, step = bf16 ? 2 * word : word, bytes = bf16 ? 2 : 4, line = 0;
    const char *next = (const char *)source->data + (step + WORDS_AHEAD * 4 / bytes) * stride * bytes;
    for (int64_t at = 0; at < width * bytes; at += LINE_BYTES)
        for (int64_t i = 0; i < 4 / bytes; i++)
            __builtin_prefetch(next + i * stride * bytes + at, 0, 2);
    if (bf16 && step + 1 < source->steps)
        for (; line + 2 * LANES <= width && line + 2 * LANES <= source->lines; line += 2 * LANES) {
            const uint16_t *first = (const uint16_t *)source->data + step * stride + line;
            pair_rows(first, first + stride, to + line);
        }
    for (; line < width; line += LANES) {
        int64_t left = source->lines - line;
        vf_store(to + line, left > 0 ? words_across(source, bf16, line, left, word) : (vf){0});
    }
}

INLINE void pack_steps(const struct word_source *source, bool bf16, int64_t words, int64_t width, float *to) {
    if (source->step_stride != 1) {
        for (int64_t word = 0; word < words; word++)
            word_across(source, bf16, word, width, to + word * width);
        return;
    }
    for (int64_t word = 0; word < words; word += LANES)
        for (int64_t line = 0; line < width; line += LANES) {
            vf square[LANES];
            square_along(source, bf16, line, word, width, square);
            vf_turn(square);
#pragma GCC unroll 16
            for (int i = 0; i < LANES; i++)
                vf_store(to + (word + i) * width + line, square[i]);
        }
}

enum { LINES_AHEAD = 8 };

/* A line whose steps lie together; the same of a few lines ahead is asked for. */
INLINE void line_along(const struct word_source *source, bool bf16, int64_t line, int64_t words, float *to) {
    int64_t bytes = bf16 ? 2 : 4, word = 0, whole = source->steps * bytes / (int64_t)sizeof(vf) * LANES;
    const char *from = (const char *)source->data + line * source->line_stride * bytes;
    const char *next = from + LINES_AHEAD * source->line_stride * bytes;
    for (; word < whole; word += LANES) {
        __builtin_prefetch(next + word * 4, 0, 2);
        vf_store(to + word, words_load(from + word * 4));
    }
    for (; word < words; word += LANES)
        vf_store(to + word, words_along(source, bf16, line, word));
}

INLINE void pack_lines(const struct word_source *source, bool bf16, int64_t words, float *to) {
    if (source->step_stride == 1) {
        for (int64_t line = 0; line < source->lines; line++)
            line_along(source, bf16, line, words, to + line * words);
        return;
    }
    for (int64_t word = 0; word < words; word += LANES)
        for (int64_t line = 0; line < source->lines; line += LANES) {
            vf square[LANES];
            square_across(source, bf16, line, word, square);
            vf_turn(square);
#pragma GCC unroll 16
            for (int i = 0; i < LANES; i++)
                if (line + i < source->lines) vf_store(to + (line + i) * words + word, square[i]);
        }
}

void SIMD_NAME(simd_pack_steps)(const struct word_source *source, int64_t words, int64_t width, float *to) {
    WITH_CONSTANT(bf16, source->dtype == DTYPE_BF16, pack_steps(source, bf16, words, width, to));
}

void SIMD_NAME(simd_pack_lines)(const struct word_source *source, int64_t words, float *to) {
    WITH_CONSTANT(bf16, source->dtype == DTYPE_BF16, pack_lines(source, bf16, words, to));
}

/* GEMMs of words, for matrices with one short side. Tiles have as many rows as there are. They use vectors of columns
 * if b is read by steps, vectors of words if it is read by lines. */

/* A word is a step in fp32, a pair of steps in bf16; b's pairs lie together, or in two of its rows. */
enum word_kind { WORD_STEP, WORD_PAIR, WORD_ROWS };

/* As an instruction, since a function compiled for it could not be inlined into one that is not. */
INLINE vf pair_add(vf a, vf b, vf sum) {
#if SIMD_LANES == 16
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
#else
    (void)a, (void)b;
#endif
    return sum;
}

INLINE vf word_add(enum word_kind kind, vf a, vf b, vf sum) {
    return kind == WORD_STEP ? vf_fma(a, b, sum) : pair_add(a, b, sum);
}

/* A vector of columns of b's word. */
INLINE vf word_columns(enum word_kind kind, const char *word, int64_t row_bytes, int64_t column) {
    if (kind != WORD_ROWS) return vf_load((const float *)(const void *)word + column);
    const vh_unaligned *first = (const void *)(word + column * 2),
                       *second = (const void *)(word + row_bytes + column * 2);
    return (vf)(vu_widen((vh)*first) | vu_widen((vh)*second) << 16);
}

INLINE float *sums_at(const struct word_product *product, int64_t row, int64_t column) {
    return product->c + row * product->c_row + column;
}

INLINE void words_tile(enum word_kind kind, int rows, int vectors, const struct word_product *product, int64_t row,
                       int64_t column) {
    vf sum[GEMM_TILE_ROWS][GEMM_VECTORS];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < vectors; j++)
            sum[i][j] = (vf){0};
    const char *a = (const char *)product->a + row * product->a_row_bytes, *b = product->b;
    int64_t b_word_bytes = kind == WORD_ROWS ? 2 * product->b_row_bytes : product->b_row_bytes;
    for (int64_t p = 0; p < product->words; p++, a += sizeof(float), b += b_word_bytes) {
        vf right[GEMM_VECTORS];
        for (int j = 0; j < vectors; j++)
            right[j] = word_columns(kind, b, product->b_row_bytes, column + j * LANES);
        for (int i = 0; i < rows; i++) {
            float word;
            memcpy(&word, a + i * product->a_row_bytes, sizeof word);
            vf left = vf_set(word);
            for (int j = 0; j < vectors; j++)
                sum[i][j] = word_add(kind, left, right[j], sum[i][j]);
        }
    }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < vectors; j++) {
            float *c = sums_at(product, row + i, column + j * LANES);
            vf_store(c, product->accumulate ? vf_load(c) + sum[i][j] : sum[i][j]);
        }
}

/* Tiles next to each other, of the given rows; few of them are narrower than the registers allow. */
INLINE void words_rows(enum word_kind kind, int rows, const struct word_product *product, int64_t row) {
    int64_t left = (product->columns + LANES - 1) / LANES, column = 0;
    for (; left > GEMM_VECTORS + 1 || left == GEMM_VECTORS; left -= GEMM_VECTORS, column += GEMM_VECTORS * LANES)
        words_tile(kind, rows, GEMM_VECTORS, product, row, column);
    for (; left > 1; left -= 2, column += 2 * LANES)
        words_tile(kind, rows, 2, product, row, column);
    if (left > 0) words_tile(kind, rows, 1, product, row, column);
}

INLINE void words_all(enum word_kind kind, const struct word_product *product) {
    int64_t row = 0;
    for (; product->rows - row >= GEMM_TILE_ROWS; row += GEMM_TILE_ROWS)
        words_rows(kind, GEMM_TILE_ROWS, product, row);
    switch (product->rows - row) {
    case 1: words_rows(kind, 1, product, row); return;
    case 2: words_rows(kind, 2, product, row); return;
    case 3: words_rows(kind, 3, product, row); return;
#if SIMD_JOIN(GEMM_TILE_ROWS, CPU_ISA) > 4
    case 4: words_rows(kind, 4, product, row); return;
    case 5: words_rows(kind, 5, product, row); return;
    case 6: words_rows(kind, 6, product, row); return;
    case 7: words_rows(kind, 7, product, row); return;
#endif
    default: return;
    }
}

static __attribute__((noinline)) void steps_all(const struct word_product *product) { words_all(WORD_STEP, product); }
static __attribute__((noinline)) void pairs_all(const struct word_product *product) { words_all(WORD_PAIR, product); }
static __attribute__((noinline)) void rows_all(const struct word_product *product) { words_all(WORD_ROWS, product); }

void SIMD_NAME(simd_multiply_words)(const struct word_product *product) {
    if (product->dtype == DTYPE_F32)
        steps_all(product);
    else if (product->b_packed)
        pairs_all(product);
    else
        rows_all(product);
}

/* Tiles of lines: as many sums as the registers hold besides a vector of each row. */
enum { LINE_ROWS = LANES == 16 ? 3 : 1, LINE_COLUMNS = (int)LANES < 8 ? (int)LANES : 8 };

/* The sums of the lanes of LINE_COLUMNS vectors, in their order: halves of vectors are added by pairs. */
INLINE void line_sums(vf sum[LINE_COLUMNS], bool accumulate, float *c) {
    for (int half = LINE_COLUMNS / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            sum[i] = vf_weave_low(sum[i], sum[i + half]) + vf_weave_high(sum[i], sum[i + half]);
    float lanes[LANES];
    vf_store(lanes, sum[0]);
    for (int i = 0; i < LINE_COLUMNS; i++) {
        float all = (int)LANES > (int)LINE_COLUMNS ? lanes[i] + lanes[i + (int)LANES - (int)LINE_COLUMNS] : lanes[i];
        c[i] = accumulate ? c[i] + all : all;
    }
}

/* LANES words of each line, `left` of them valid. */
INLINE void add_words(enum word_kind kind, int rows, const char *a, int64_t a_row, const char *const b[LINE_COLUMNS],
                      int64_t word, int64_t left, vf sum[LINE_ROWS][LINE_COLUMNS]) {
    vf line[LINE_ROWS];
    for (int i = 0; i < rows; i++)
        line[i] = load(a + i * a_row, word, left, false);
    for (int j = 0; j < LINE_COLUMNS; j++) {
        vf right = load(b[j], word, left, false);
        for (int i = 0; i < rows; i++)
            sum[i][j] = word_add(kind, line[i], right, sum[i][j]);
    }
}

/* Columns beyond the last are the last once more: c has space for them. */
INLINE void lines_tile(enum word_kind kind, int rows, const struct word_product *product, int64_t row, int64_t column) {
    const char *a = (const char *)product->a + row * product->a_row_bytes, *b[LINE_COLUMNS];
    for (int j = 0; j < LINE_COLUMNS; j++) {
        int64_t at = column + j < product->columns ? column + j : product->columns - 1;
        b[j] = (const char *)product->b + at * product->b_row_bytes;
    }
    vf sum[LINE_ROWS][LINE_COLUMNS];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < LINE_COLUMNS; j++)
            sum[i][j] = (vf){0};
    int64_t word = 0;
    for (; product->words - word >= LANES; word += LANES)
        add_words(kind, rows, a, product->a_row_bytes, b, word, LANES, sum);
    if (word < product->words) add_words(kind, rows, a, product->a_row_bytes, b, word, product->words - word, sum);
    for (int i = 0; i < rows; i++)
        line_sums(sum[i], product->accumulate, sums_at(product, row + i, column));
}

INLINE void lines_all(enum word_kind kind, const struct word_product *product) {
    for (int64_t column = 0; column < product->columns; column += LINE_COLUMNS) {
        int64_t row = 0;
        for (; product->rows - row >= LINE_ROWS; row += LINE_ROWS)
            lines_tile(kind, LINE_ROWS, product, row, column);
        if (LINE_ROWS > 1 && product->rows - row == 2) lines_tile(kind, 2 < LINE_ROWS ? 2 : 1, product, row, column);
        if (LINE_ROWS > 1 && product->rows - row == 1) lines_tile(kind, 1, product, row, column);
    }
}

void SIMD_NAME(simd_multiply_lines)(const struct word_product *product) {
    if (product->dtype == DTYPE_F32)
        lines_all(WORD_STEP, product);
    else
        lines_all(WORD_PAIR, product);
}
