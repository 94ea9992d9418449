/* Products of packed panels, and packing a and b into panels. */
#include "backend/cpu/simd/gemm_tile.h"
#include "backend/cpu/simd/simd.h"

/* Keeps a tile of c in registers for all of k. */
INLINE void tile_multiply(int64_t k, const float *a, const float *b, float *c, int64_t c_row, bool accumulate) {
    vf sum[GEMM_TILE_ROWS][GEMM_VECTORS];
    for (int i = 0; i < GEMM_TILE_ROWS; i++)
        for (int j = 0; j < GEMM_VECTORS; j++)
            sum[i][j] = accumulate ? vf_load(c + i * c_row + j * LANES) : (vf){0};
    for (int64_t p = 0; p < k; p++, a += GEMM_ROWS, b += GEMM_COLUMNS) {
        vf right[GEMM_VECTORS];
        for (int j = 0; j < GEMM_VECTORS; j++)
            right[j] = vf_load(b + j * LANES);
        for (int i = 0; i < GEMM_TILE_ROWS; i++) {
            vf left = vf_set(a[i]);
            for (int j = 0; j < GEMM_VECTORS; j++)
                sum[i][j] = vf_fma(left, right[j], sum[i][j]);
        }
    }
    for (int i = 0; i < GEMM_TILE_ROWS; i++)
        for (int j = 0; j < GEMM_VECTORS; j++)
            vf_store(c + i * c_row + j * LANES, sum[i][j]);
}

/* A panel of b stays in or near the first cache while all rows of a pass. */
void SIMD_NAME(simd_gemm)(int64_t m, int64_t n, int64_t k, int64_t depth, const float *a, const float *b, float *c,
                          int64_t c_row, bool accumulate) {
    for (int64_t j = 0; j < n; j += GEMM_COLUMNS)
        for (int64_t i = 0; i < m; i += GEMM_ROWS)
            for (int64_t row = 0; row < GEMM_ROWS; row += GEMM_TILE_ROWS)
                tile_multiply(k, a + i * depth + row, b + j * depth, c + (i + row) * c_row + j, c_row, accumulate);
}

/* Steps of a panel lie together in the matrix. */
INLINE void pack_along(bool bf16, int64_t panel, int64_t k, int64_t left, const void *from, int64_t step, float *to) {
    for (int64_t p = 0; p < k; p++)
        for (int64_t j = 0; j < panel; j += LANES)
            vf_store(to + p * panel + j, j < left ? load(from, p * step + j, left - j, bf16) : (vf){0});
}

#if SIMD_LANES == 16
#define FIRST_HALVES 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define LAST_HALVES 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#elif SIMD_LANES == 8
#define FIRST_HALVES 0, 8, 1, 9, 2, 10, 3, 11
#define LAST_HALVES 4, 12, 5, 13, 6, 14, 7, 15
#else
#define FIRST_HALVES 0, 4, 1, 5
#define LAST_HALVES 2, 6, 3, 7
#endif

/* One round of a transposition: row i is dealt with row i + LANES / 2. After log2(LANES) rounds rows are columns. */
INLINE void deal(const vf from[LANES], vf to[LANES]) {
#pragma GCC unroll 16
    for (int i = 0; i < LANES / 2; i++) {
        to[2 * i] = __builtin_shufflevector(from[i], from[i + LANES / 2], FIRST_HALVES);
        to[2 * i + 1] = __builtin_shufflevector(from[i], from[i + LANES / 2], LAST_HALVES);
    }
}

INLINE void transpose(vf rows[LANES]) {
    vf other[LANES];
    deal(rows, other);
    deal(other, rows);
    if (LANES == 4) return;
    deal(rows, other);
    if (LANES == 16)
        deal(other, rows);
    else
        memcpy(rows, other, sizeof other);
}

/* The rows or columns of a step lie apart in the matrix, and neighbours are steps: transposes squares of LANES. */
INLINE void pack_across(bool bf16, int64_t panel, int64_t k, int64_t left, const void *from, int64_t stride,
                        float *to) {
    for (int64_t p = 0; p < k; p += LANES)
        for (int64_t j = 0; j < panel; j += LANES) {
            vf square[LANES];
#pragma GCC unroll 16
            for (int i = 0; i < LANES; i++)
                square[i] = j + i < left ? load(from, (j + i) * stride + p, k - p, bf16) : (vf){0};
            transpose(square);
            if (k - p >= LANES) {
#pragma GCC unroll 16
                for (int i = 0; i < LANES; i++)
                    vf_store(to + (p + i) * panel + j, square[i]);
            } else {
                for (int i = 0; i < k - p; i++)
                    vf_store(to + (p + i) * panel + j, square[i]);
            }
        }
}

void SIMD_NAME(simd_gemm_pack)(enum dtype dtype, int64_t panel, int64_t k, int64_t left, const void *from,
                               int64_t k_stride, int64_t stride, float *to) {
    bool bf16 = dtype == DTYPE_BF16;
    if (stride == 1 && bf16)
        pack_along(true, panel, k, left, from, k_stride, to);
    else if (stride == 1)
        pack_along(false, panel, k, left, from, k_stride, to);
    else if (bf16)
        pack_across(true, panel, k, left, from, stride, to);
    else
        pack_across(false, panel, k, left, from, stride, to);
}

/* A vector of sums of which `left` columns are there. */
INLINE void finish_vector(vf value, int64_t index, int64_t left, bool bias_bf16, const void *bias, bool bf16,
                          const void *addend, void *c) {
    if (bias) value += load(bias, index, left, bias_bf16);
    if (addend) value += load(addend, index, left, bf16);
    store(c, index, left, bf16, value);
}

INLINE void finish_row(int64_t n, const float *sums, bool bias_bf16, const void *bias, bool bf16, const void *addend,
                       void *c) {
    int64_t i = 0;
    for (; n - i >= LANES; i += LANES)
        finish_vector(vf_load(sums + i), i, LANES, bias_bf16, bias, bf16, addend, c);
    if (i < n) finish_vector(load(sums, i, n - i, false), i, n - i, bias_bf16, bias, bf16, addend, c);
}

INLINE void finish(const struct gemm_result *result, const float *sums, int64_t sums_row, bool bf16) {
    int64_t n = result->columns, bytes = bf16 ? 2 : 4;
    bool bias_bf16 = result->bias_dtype == DTYPE_BF16;
    for (int64_t row = 0; row < result->rows; row++, sums += sums_row) {
        const char *addend = result->addend ? (const char *)result->addend + row * result->addend_row * bytes : NULL;
        char *c = (char *)result->c + row * result->c_row * bytes;
        if (result->bias)
            finish_row(n, sums, bias_bf16, result->bias, bf16, addend, c);
        else if (addend)
            finish_row(n, sums, false, NULL, bf16, addend, c);
        else
            finish_row(n, sums, false, NULL, bf16, NULL, c);
    }
}

void SIMD_NAME(simd_gemm_finish)(const struct gemm_result *result, const float *sums, int64_t sums_row) {
    if (result->dtype == DTYPE_BF16)
        finish(result, sums, sums_row, true);
    else
        finish(result, sums, sums_row, false);
}
