/* The processor's tiles (AMX) for pairs of bf16: their configuration, and the block of 32 by 32 that kernels share. */
#pragma once

#include "backend/cpu/simd/simd.h"

#if SIMD_LANES == 16

/* Attribute of functions that use tiles. A processor with tiles has bf16 vector instructions too. */
#define AMX __attribute__((target("amx-tile,amx-bf16,avx512bf16")))

enum { AMX_ROWS = 16, AMX_WORDS = 16, AMX_BLOCK = 32, AMX_ROW_BYTES = 64 };

/* Eight tiles of 16 rows of 64 bytes (the manual's palette 1). */
struct amx_config {
    uint8_t palette, start, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* Before tiles are used; _tile_release() after. */
INLINE AMX void amx_begin(void) {
    static const struct amx_config config = {
        .palette = 1,
        .row_bytes = {AMX_ROW_BYTES, AMX_ROW_BYTES, AMX_ROW_BYTES, AMX_ROW_BYTES, AMX_ROW_BYTES, AMX_ROW_BYTES,
                      AMX_ROW_BYTES, AMX_ROW_BYTES},
        .rows = {AMX_ROWS, AMX_ROWS, AMX_ROWS, AMX_ROWS, AMX_ROWS, AMX_ROWS, AMX_ROWS, AMX_ROWS},
    };
    _tile_loadconfig(&config);
}

/* The four tiles of a block of c [32][32]. */
INLINE AMX void amx_block_load(const float *c, int64_t c_row) {
    int64_t bytes = c_row * (int64_t)sizeof(float);
    _tile_loadd(0, c, bytes);
    _tile_loadd(1, c + AMX_WORDS, bytes);
    _tile_loadd(2, c + AMX_ROWS * c_row, bytes);
    _tile_loadd(3, c + AMX_ROWS * c_row + AMX_WORDS, bytes);
}

INLINE AMX void amx_block_zero(void) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}

INLINE AMX void amx_block_store(float *c, int64_t c_row) {
    int64_t bytes = c_row * (int64_t)sizeof(float);
    _tile_stored(0, c, bytes);
    _tile_stored(1, c + AMX_WORDS, bytes);
    _tile_stored(2, c + AMX_ROWS * c_row, bytes);
    _tile_stored(3, c + AMX_ROWS * c_row + AMX_WORDS, bytes);
}

/* The block += a b over 16 words of two steps; a [32][16], b [16][32]. */
INLINE AMX void amx_block_add(const float *a, int64_t a_row, const float *b, int64_t b_row) {
    int64_t a_bytes = a_row * (int64_t)sizeof(float), b_bytes = b_row * (int64_t)sizeof(float);
    _tile_loadd(4, a, a_bytes);
    _tile_loadd(6, b, b_bytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + AMX_WORDS, b_bytes);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a + AMX_ROWS * a_row, a_bytes);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
}

#endif
