/* Sizes of the GEMM's tile and panels. */
#ifndef BALLAST_BACKEND_CPU_SIMD_GEMM_TILE_H
#define BALLAST_BACKEND_CPU_SIMD_GEMM_TILE_H

#include "backend/cpu/simd/simd.h"

/* As many accumulators as the registers hold besides a row of b and one element of a. */
#define GEMM_TILE_ROWS_avx512 8
#define GEMM_TILE_ROWS_avx2 4
#define GEMM_TILE_ROWS_generic 8
enum { GEMM_TILE_ROWS = SIMD_JOIN(GEMM_TILE_ROWS, CPU_ISA), GEMM_VECTORS = 3 };
/* Panels are whole vectors wide, so that a and b are packed by the same moves; one of a may hold two tiles. */
enum {
    GEMM_ROWS = (int)GEMM_TILE_ROWS > (int)LANES ? (int)GEMM_TILE_ROWS : (int)LANES,
    GEMM_COLUMNS = GEMM_VECTORS * LANES
};

#endif
