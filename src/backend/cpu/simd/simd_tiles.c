/* Products of packed pairs of bf16 by the processor's tiles (AMX): four tiles of sums, 32 rows by 32 columns, stay in
 * their registers for all steps. */
#include "backend/cpu/simd/simd.h"

#if SIMD_LANES == 16

#define TILES __attribute__((target("amx-tile,amx-bf16")))

enum { TILE_ROWS = 16, TILE_WORDS = 16, PANEL = 32, LINE_BYTES = 64 };
enum { PANEL_BYTES = PANEL * (int)sizeof(float) };

/* Eight tiles of 16 rows of 64 bytes (the manual's palette 1). */
struct tile_config {
    uint8_t palette, start, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};
static const struct tile_config config = {
    .palette = 1,
    .row_bytes = {LINE_BYTES, LINE_BYTES, LINE_BYTES, LINE_BYTES, LINE_BYTES, LINE_BYTES, LINE_BYTES, LINE_BYTES},
    .rows = {TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS},
};

/* Rows of c that become whole while the steps pass: asks for some of them each time. */
struct fetched {
    const char *c;
    int64_t row_bytes, rows, bytes, share;
};

static struct fetched fetched_of(const struct gemm_result *result, int64_t row, int64_t column, int64_t turns) {
    int64_t element = result->dtype == DTYPE_BF16 ? 2 : 4;
    int64_t rows = result->rows - row < PANEL ? result->rows - row : PANEL;
    return (struct fetched){
        .c = (const char *)result->c + (row * result->c_row + column) * element,
        .row_bytes = result->c_row * element,
        .rows = rows,
        .bytes = PANEL * element,
        .share = (rows + turns - 1) / turns,
    };
}

INLINE void fetch(struct fetched *from) {
    for (int64_t i = 0; i < from->share && from->rows > 0; i++, from->rows--, from->c += from->row_bytes)
        for (int64_t at = 0; at < from->bytes + LINE_BYTES; at += LINE_BYTES)
            __builtin_prefetch(from->c + at, 1, 2);
}

/* c[32][32] (+)= a b over words of two steps; a [32][words], b [words][32]. */
INLINE TILES void panel_multiply(int64_t words, const float *a, const float *b, float *sums, bool accumulate,
                                 struct fetched *ahead) {
    if (accumulate) {
        _tile_loadd(0, sums, PANEL_BYTES);
        _tile_loadd(1, sums + TILE_WORDS, PANEL_BYTES);
        _tile_loadd(2, sums + TILE_ROWS * PANEL, PANEL_BYTES);
        _tile_loadd(3, sums + TILE_ROWS * PANEL + TILE_WORDS, PANEL_BYTES);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    int64_t a_bytes = words * (int64_t)sizeof(float);
    for (int64_t word = 0; word < words; word += TILE_WORDS) {
        _tile_loadd(4, a + word, a_bytes);
        _tile_loadd(6, b + word * PANEL, PANEL_BYTES);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b + word * PANEL + TILE_WORDS, PANEL_BYTES);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, a + TILE_ROWS * words + word, a_bytes);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
        if (ahead) fetch(ahead);
    }
}

INLINE TILES void panel_store(float *sums) {
    _tile_stored(0, sums, PANEL_BYTES);
    _tile_stored(1, sums + TILE_WORDS, PANEL_BYTES);
    _tile_stored(2, sums + TILE_ROWS * PANEL, PANEL_BYTES);
    _tile_stored(3, sums + TILE_ROWS * PANEL + TILE_WORDS, PANEL_BYTES);
}

static void panel_finish(const struct gemm_result *result, int64_t row, int64_t column, const float *sums) {
    int64_t bytes = result->dtype == DTYPE_BF16 ? 2 : 4, bias_bytes = result->bias_dtype == DTYPE_BF16 ? 2 : 4;
    struct gemm_result part = *result;
    part.rows = result->rows - row < PANEL ? result->rows - row : PANEL;
    part.columns = result->columns - column < PANEL ? result->columns - column : PANEL;
    part.c = (char *)result->c + (row * result->c_row + column) * bytes;
    if (part.bias) part.bias = (const char *)result->bias + column * bias_bytes;
    if (part.addend) part.addend = (const char *)result->addend + (row * result->addend_row + column) * bytes;
    SIMD_NAME(simd_gemm_finish)(&part, sums, PANEL);
}

/* A panel of b stays in the first cache while all rows pass. */
TILES void SIMD_NAME(simd_gemm_pairs)(const struct gemm_block *block) {
    float *sums = block->sums;
    _tile_loadconfig(&config);
    for (int64_t j = 0; j < block->columns; j += PANEL) {
        const float *b = block->b + j / PANEL * block->b_stride, *a = block->a;
        for (int64_t i = 0; i < block->rows; i += PANEL, a += block->a_stride, sums += PANEL * PANEL) {
            if (block->result) {
                float whole[PANEL * PANEL];
                struct fetched ahead = fetched_of(block->result, i, j, block->steps / TILE_WORDS);
                panel_multiply(block->steps, a, b, sums, block->accumulate, &ahead);
                panel_store(whole);
                panel_finish(block->result, i, j, whole);
            } else {
                panel_multiply(block->steps, a, b, sums, block->accumulate, NULL);
                panel_store(sums);
            }
        }
    }
    _tile_release();
}

#else

void SIMD_NAME(simd_gemm_pairs)(const struct gemm_block *block) { (void)block; }

#endif
