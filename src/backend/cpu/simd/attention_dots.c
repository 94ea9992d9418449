/* Attention by pairs of bf16, and its gradient, by dot products of vectors (AVX512_BF16). */
#include "backend/cpu/simd/simd.h"

#if SIMD_LANES == 16

#define UNIT __attribute__((target("avx512bf16")))

enum { PAIRS_TILE = 128, PAIRS_QUERIES = 256 };
/* Sums that stay in registers: as many rows as hide how long an addition takes. */
enum { DOT_ROWS = 8, DOT_VECTORS = 2 };

INLINE void unit_begin(void) {}
INLINE void unit_end(void) {}

/* Of DOT_ROWS rows. */
INLINE UNIT void rows_multiply(int64_t words, const float *a, int64_t a_row, const float *b, int64_t b_row, float *c,
                               int64_t c_row, bool accumulate) {
    __m512 sums[DOT_ROWS][DOT_VECTORS];
#pragma GCC unroll 8
    for (int i = 0; i < DOT_ROWS; i++)
        for (int j = 0; j < DOT_VECTORS; j++)
            sums[i][j] = accumulate ? _mm512_loadu_ps(c + i * c_row + j * LANES) : _mm512_setzero_ps();
#pragma GCC unroll 2
    for (int64_t word = 0; word < words; word++) {
        __m512bh right[DOT_VECTORS];
#pragma GCC unroll 2
        for (int j = 0; j < DOT_VECTORS; j++)
            right[j] = (__m512bh)_mm512_loadu_ps(b + word * b_row + j * LANES);
#pragma GCC unroll 8
        for (int i = 0; i < DOT_ROWS; i++) {
            __m512bh left = (__m512bh)_mm512_set1_ps(a[i * a_row + word]);
#pragma GCC unroll 2
            for (int j = 0; j < DOT_VECTORS; j++)
                sums[i][j] = _mm512_dpbf16_ps(sums[i][j], left, right[j]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < DOT_ROWS; i++)
        for (int j = 0; j < DOT_VECTORS; j++)
            _mm512_storeu_ps(c + i * c_row + j * LANES, sums[i][j]);
}

static UNIT void unit_multiply(int64_t words, const float *a, int64_t a_row, const float *b, int64_t b_row, float *c,
                               int64_t c_row, bool accumulate) {
    for (int64_t row = 0; row < DOT_VECTORS * LANES; row += DOT_ROWS)
        if (accumulate)
            rows_multiply(words, a + row * a_row, a_row, b, b_row, c + row * c_row, c_row, true);
        else
            rows_multiply(words, a + row * a_row, a_row, b, b_row, c + row * c_row, c_row, false);
}

#include "backend/cpu/simd/attention_pairs.h"

const struct attention_kernels SIMD_NAME(simd_attention_dots) = PAIRS_KERNELS;

#endif
