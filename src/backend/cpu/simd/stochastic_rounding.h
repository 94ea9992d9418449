/* Stochastic rounding (backend/update_step.h): Philox's blocks for LANES times four elements at a time. */
#ifndef BALLAST_BACKEND_CPU_SIMD_STOCHASTIC_ROUNDING_H
#define BALLAST_BACKEND_CPU_SIMD_STOCHASTIC_ROUNDING_H

#include "backend/cpu/simd/turn.h"
#include "base/philox.h"
#include "base/random.h"

typedef uint64_t vl __attribute__((vector_size(LANES * 4)));

/* Products of the even lanes, 64 bits each. */
#if SIMD_LANES == 16
INLINE vl vu_multiply_even(vu a, vu b) { return (vl)_mm512_mul_epu32((__m512i)a, (__m512i)b); }
#elif SIMD_LANES == 8
INLINE vl vu_multiply_even(vu a, vu b) { return (vl)_mm256_mul_epu32((__m256i)a, (__m256i)b); }
#else
INLINE vl vu_multiply_even(vu a, vu b) { return (vl){(uint64_t)a[0] * b[0], (uint64_t)a[2] * b[2]}; }
#endif

/* Lower and upper halves of a lane's product with a constant. */
INLINE void vu_multiply(vu a, uint32_t by, vu *low, vu *high) {
    vu factor = (vu){0} + by;
    vl even = vu_multiply_even(a, factor), odd = vu_multiply_even((vu)((vl)a >> 32), factor);
    *low = (vu)((even & 0xffffffffu) | odd << 32);
    *high = (vu)(even >> 32 | (odd & ~UINT64_C(0xffffffff)));
}

/* As philox_round, a block in each lane. */
INLINE void random_round(struct philox_key key, vu c[4]) {
    vu low0, high0, low2, high2;
    vu_multiply(c[0], 0xD2511F53u, &low0, &high0);
    vu_multiply(c[2], 0xCD9E8D57u, &low2, &high2);
    vu next0 = high2 ^ c[1] ^ key.k0, next2 = high0 ^ c[3] ^ key.k1;
    c[0] = next0;
    c[1] = low2;
    c[2] = next2;
    c[3] = low0;
}

/* The words of elements first to first + 4 * LANES - 1, in their order; `first` is a multiple of 4. */
INLINE void random_draw(uint64_t seed, uint32_t stream, uint32_t step, uint32_t number, int64_t first, vu words[4]) {
    struct philox_key key = philox_key_of(seed);
    vu zero = {0};
    vu c[4] = {(vu)vi_iota() + (uint32_t)(first / 4), zero + number, zero + step, zero + stream};
    for (int round = 0; round < PHILOX_ROUNDS; round++, key = philox_next_key(key))
        random_round(key, c);
    /* Four words of each block become neighbours. */
    vf even_low = vf_weave_low((vf)c[0], (vf)c[2]), odd_low = vf_weave_low((vf)c[1], (vf)c[3]);
    vf even_high = vf_weave_high((vf)c[0], (vf)c[2]), odd_high = vf_weave_high((vf)c[1], (vf)c[3]);
    words[0] = (vu)vf_weave_low(even_low, odd_low);
    words[1] = (vu)vf_weave_high(even_low, odd_low);
    words[2] = (vu)vf_weave_low(even_high, odd_high);
    words[3] = (vu)vf_weave_high(even_high, odd_high);
}

/* `bits`: 16 random ones a lane. */
INLINE vh bf16_round_stochastic(vf value, vu bits) {
    vf quiet = (vf)((vu)value | 0x400000u);
    return vu_narrow((vu)vf_select(value != value, quiet, (vf)((vu)value + bits)) >> 16);
}

INLINE void store_half(void *to, int64_t index, int64_t left, vh value) {
    uint16_t *at = (uint16_t *)to + index;
    if (left >= LANES)
        *(vh_unaligned *)at = (vh_unaligned)value;
    else
        memcpy(at, &value, (size_t)left * sizeof *at);
}

/* As `store`, but in bf16 with stochastic rounding. */
INLINE void store_stochastic(void *to, int64_t index, int64_t left, bool bf16, vf value, vu bits) {
    if (bf16)
        store_half(to, index, left, bf16_round_stochastic(value, bits));
    else
        store(to, index, left, false, value);
}

#endif
