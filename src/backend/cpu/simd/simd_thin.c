/* GEMMs of words (simd_words.c), for matrices of which one side is short: tiles of as many rows as there are, by
 * vectors of columns where b is read by steps, by vectors of words where it is read by lines. */
#include "backend/cpu/simd/gemm_tile.h"
#include "backend/cpu/simd/simd.h"
#include "backend/cpu/simd/turn.h"

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

/* LANES words, of which `left` are there, of each line. */
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
