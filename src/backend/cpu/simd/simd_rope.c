/* The rotation of a head by a row of the table of angles. */
#include "backend/cpu/simd/simd.h"

/* Both halves are read before either is written, so that y may be x. */
INLINE void rope_row(bool bf16, int64_t half, float sign, const void *x, const float *table, void *y) {
    for (int64_t i = 0; i < half; i += LANES) {
        int64_t left = half - i;
        vf cosine = load(table, i, left, false), sine = load(table, half + i, left, false) * sign;
        vf low = load(x, i, left, bf16), high = load(x, half + i, left, bf16);
        store(y, i, left, bf16, low * cosine - high * sine);
        store(y, half + i, left, bf16, high * cosine + low * sine);
    }
}

void SIMD_NAME(simd_rope)(enum dtype dtype, int64_t half, float sign, const void *x, const float *table, void *y) {
    if (dtype == DTYPE_BF16)
        rope_row(true, half, sign, x, table, y);
    else
        rope_row(false, half, sign, x, table, y);
}
