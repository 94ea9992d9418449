/* Rows become columns: square blocks of LANES vectors, turned in registers. */
#ifndef BALLAST_BACKEND_CPU_SIMD_TURN_H
#define BALLAST_BACKEND_CPU_SIMD_TURN_H

#include "backend/cpu/simd/simd.h"

/* Elements of a and b by turns: of their lower halves, of their upper halves. */
#if SIMD_LANES == 16
INLINE vf vf_weave_low(vf a, vf b) {
    return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
INLINE vf vf_weave_high(vf a, vf b) {
    return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
#elif SIMD_LANES == 8
INLINE vf vf_weave_low(vf a, vf b) { return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11); }
INLINE vf vf_weave_high(vf a, vf b) { return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15); }
#else
INLINE vf vf_weave_low(vf a, vf b) { return __builtin_shufflevector(a, b, 0, 4, 1, 5); }
INLINE vf vf_weave_high(vf a, vf b) { return __builtin_shufflevector(a, b, 2, 6, 3, 7); }
#endif

/* One weave of all rows rotates the bits of an element's (row, lane) by one place; after log2(LANES) weaves row and
 * lane have changed places. */
INLINE void vf_turn(vf block[LANES]) {
    for (int width = 1; width < LANES; width *= 2) {
        vf woven[LANES];
        for (int i = 0; i < LANES / 2; i++) {
            woven[2 * i] = vf_weave_low(block[i], block[i + LANES / 2]);
            woven[2 * i + 1] = vf_weave_high(block[i], block[i + LANES / 2]);
        }
        for (int i = 0; i < LANES; i++)
            block[i] = woven[i];
    }
}

#endif
