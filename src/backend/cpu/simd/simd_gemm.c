#include "backend/cpu/simd/table.h"
#include "backend/cpu/simd/tile.h"

/* Columns of one panel against all rows; a_row or a_k is 1. */
INLINE void panel_multiply(int64_t m, int64_t k, const float *a, int64_t a_row, int64_t a_k, const float *panel,
                           float *c, int64_t c_row, bool accumulate) {
    for (int64_t i = 0; i < m; i += TILE_ROWS)
        tile_multiply(k, a + i * a_row, a_row, a_k, panel, TILE_COLUMNS, c + i * c_row, c_row, accumulate);
}

void SIMD_NAME(simd_gemm)(int64_t m, int64_t n, int64_t k, const float *a, int64_t a_row, int64_t a_k, const float *b,
                          float *c, int64_t c_row, bool accumulate) {
    for (int64_t j = 0; j < n; j += TILE_COLUMNS, b += k * TILE_COLUMNS) {
        if (a_k == 1)
            panel_multiply(m, k, a, a_row, 1, b, c + j, c_row, accumulate);
        else
            panel_multiply(m, k, a, 1, a_k, b, c + j, c_row, accumulate);
    }
}

/* Rows of the panel lie together in b. */
INLINE void pack_rows(bool bf16, int64_t k, int64_t width, const void *b, int64_t offset, int64_t b_k, float *panel) {
    for (int64_t p = 0; p < k; p++)
        for (int j = 0; j < TILE_COLUMNS; j += LANES) {
            vf piece = j < width ? load(b, offset + p * b_k + j, width - j, bf16) : (vf){0};
            vf_store(panel + p * TILE_COLUMNS + j, piece);
        }
}

/* Columns lie together: turned in pieces of LANES, which stay in the first cache. */
INLINE void pack_columns(bool bf16, int64_t k, int64_t width, const void *b, int64_t offset, int64_t b_column,
                         float *panel) {
    for (int64_t p = 0; p < k; p += LANES)
        for (int64_t j = 0; j < TILE_COLUMNS; j++) {
            vf piece = j < width ? load(b, offset + j * b_column + p, k - p, bf16) : (vf){0};
            for (int i = 0; i < LANES && p + i < k; i++)
                panel[(p + i) * TILE_COLUMNS + j] = piece[i];
        }
}

INLINE void pack(bool bf16, int64_t k, int64_t n, const void *b, int64_t b_k, int64_t b_column, float *packed) {
    for (int64_t j = 0; j < n; j += TILE_COLUMNS, packed += k * TILE_COLUMNS) {
        int64_t width = n - j < TILE_COLUMNS ? n - j : TILE_COLUMNS;
        if (b_column == 1)
            pack_rows(bf16, k, width, b, j, b_k, packed);
        else
            pack_columns(bf16, k, width, b, j * b_column, b_column, packed);
    }
}

void SIMD_NAME(simd_gemm_pack)(enum dtype dtype, int64_t k, int64_t n, const void *b, int64_t b_k, int64_t b_column,
                               float *packed) {
    if (dtype == DTYPE_BF16)
        pack(true, k, n, b, b_k, b_column, packed);
    else
        pack(false, k, n, b, b_k, b_column, packed);
}
