/* Attention by pairs of bf16, and its gradient, by the processor's tiles (AMX). */
#include "backend/cpu/simd/amx.h"

#if SIMD_LANES == 16

#define UNIT AMX

enum { PAIRS_TILE = 128, PAIRS_QUERIES = 256 };

INLINE AMX void unit_begin(void) { amx_begin(); }
INLINE AMX void unit_end(void) { _tile_release(); }

INLINE AMX void unit_multiply(int64_t words, const float *a, int64_t a_row, const float *b, int64_t b_row, float *c,
                              int64_t c_row, bool accumulate) {
    __asm__ volatile("" ::: "memory"); /* gcc's loads of tiles do not tell that they read memory */
    if (accumulate)
        amx_block_load(c, c_row);
    else
        amx_block_zero();
    for (int64_t word = 0; word < words; word += AMX_WORDS)
        amx_block_add(a + word, a_row, b + word * b_row, b_row);
    amx_block_store(c, c_row);
}

#include "backend/cpu/simd/attention_pairs.h"

const struct attention_kernels SIMD_NAME(simd_attention_amx) = PAIRS_KERNELS;

#endif
