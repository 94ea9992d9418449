/* Stochastic rounding (backend/kernel_parts.h) on the device. */
#pragma once

#include "backend/cuda/kernels/device.cuh"

extern "C" {
#include "base/random.h"
}

/* Key of an update: the recipe's seed, the parameter's number, the step's number. */
struct rounding_key {
    uint64_t seed;
    uint32_t number, count;
};

/* random_block (base/random.h) for elements 4 * block to 4 * block + 3 (backend/kernel_parts.h). */
__device__ inline void draw_block(const struct rounding_key &key, uint32_t stream, uint32_t block, uint32_t words[4]) {
    uint32_t c0 = block, c1 = key.number, c2 = key.count, c3 = stream;
    uint32_t k0 = (uint32_t)key.seed, k1 = (uint32_t)(key.seed >> 32);
#pragma unroll
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    words[0] = c0;
    words[1] = c1;
    words[2] = c2;
    words[3] = c3;
}

/* `bits`: 16 random ones. */
template <typename T> __device__ inline T narrow_stochastic(float value, uint32_t bits);
template <> __device__ inline float narrow_stochastic<float>(float value, uint32_t) { return value; }
template <> __device__ inline __nv_bfloat16 narrow_stochastic<__nv_bfloat16>(float value, uint32_t bits) {
    uint32_t raw = __float_as_uint(value);
    raw = value != value ? raw | 0x400000u : raw + bits;
    return narrow<__nv_bfloat16>(__uint_as_float(raw & 0xffff0000u));
}

/* As float_split and float_join of base/half.h. */
struct halves {
    uint16_t upper, lower;
};
__device__ inline struct halves halves_split(float value) {
    uint32_t bits = __float_as_uint(value);
    if (value != value) bits = (bits | 0x400000u) & 0xffff0000u;
    return {(uint16_t)((bits + 0x8000u) >> 16), (uint16_t)bits};
}
__device__ inline float halves_join(struct halves halves) {
    return __uint_as_float(((uint32_t)halves.upper << 16) + (uint32_t)(int32_t)(int16_t)halves.lower);
}
