/* The inner product of all tiles: a tile of c stays in registers for all of k. */
#ifndef BALLAST_BACKEND_CPU_SIMD_TILE_H
#define BALLAST_BACKEND_CPU_SIMD_TILE_H

#include "backend/cpu/simd/simd.h"

/* As many accumulators as the registers hold besides two vectors of b and one element of a. */
#define TILE_ROWS_avx512 8
#define TILE_ROWS_avx2 6
#define TILE_ROWS_generic 8
enum { TILE_ROWS = SIMD_JOIN(TILE_ROWS, CPU_ISA), TILE_VECTORS = 2, TILE_COLUMNS = TILE_VECTORS * LANES };

INLINE int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

/* c[rows][TILE_COLUMNS] (+)= a[rows][k] b[k][TILE_COLUMNS], c_row elements between rows of c, b_k between those of b,
 * (a_row, a_k) between elements of a. `rows` is a constant up to TILE_ROWS. */
INLINE void tile_multiply_rows(int rows, int64_t k, const float *a, int64_t a_row, int64_t a_k, const float *b,
                               int64_t b_k, float *c, int64_t c_row, bool accumulate) {
    vf sum[TILE_ROWS][TILE_VECTORS];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < TILE_VECTORS; j++)
            sum[i][j] = accumulate ? vf_load(c + i * c_row + j * LANES) : (vf){0};
#pragma GCC unroll 4
    for (int64_t p = 0; p < k; p++) {
        vf right[TILE_VECTORS];
        for (int j = 0; j < TILE_VECTORS; j++)
            right[j] = vf_load(b + j * LANES);
        for (int i = 0; i < rows; i++) {
            vf left = vf_set(a[i * a_row]);
            for (int j = 0; j < TILE_VECTORS; j++)
                sum[i][j] = vf_fma(left, right[j], sum[i][j]);
        }
        a += a_k;
        b += b_k;
    }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < TILE_VECTORS; j++)
            vf_store(c + i * c_row + j * LANES, sum[i][j]);
}

INLINE void tile_multiply(int64_t k, const float *a, int64_t a_row, int64_t a_k, const float *b, int64_t b_k, float *c,
                          int64_t c_row, bool accumulate) {
    tile_multiply_rows(TILE_ROWS, k, a, a_row, a_k, b, b_k, c, c_row, accumulate);
}

#endif
