/* Conversions between fp32 and the 16-bit formats, scalar, round to nearest even (NaN stays NaN). */
#pragma once

#include "base/base.h"

static inline uint32_t float_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float float_from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float bf16_to_float(uint16_t half) { return float_from_bits((uint32_t)half << 16); }

static inline uint16_t bf16_from_float(float value) {
    uint32_t bits = float_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((bits >> 16) | 0x40u);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/* Splits an fp32 number into two halves of 16 bits. The upper half is the number in bf16, rounded to nearest, ties away
 * from zero. The lower half has the number's lower bits: as a signed integer, it is added to the upper half's bits to
 * restore the number. A NaN stays a NaN. */
static inline void float_split(float value, uint16_t *upper, uint16_t *lower) {
    uint32_t bits = float_bits(value), nan = 0u - ((bits & 0x7fffffffu) > 0x7f800000u);
    bits = (bits & ~nan) | ((bits | 0x400000u) & nan & 0xffff0000u);
    *upper = (uint16_t)((bits + 0x8000u) >> 16);
    *lower = (uint16_t)bits;
}

static inline float float_join(uint16_t upper, uint16_t lower) {
    return float_from_bits(((uint32_t)upper << 16) + (uint32_t)(int32_t)(int16_t)lower);
}

/* By masks, not branches, so that loops over it are vectorised. */
static inline float f16_to_float(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16, magnitude = half & 0x7fffu;
    uint32_t subnormal = float_bits((float)(int32_t)magnitude * 0x1p-24f), normal = (magnitude << 13) + (112u << 23);
    uint32_t is_subnormal = 0u - (magnitude < 0x400u), is_special = 0u - (magnitude >= 0x7c00u);
    uint32_t bits = (subnormal & is_subnormal) | (normal & ~is_subnormal) | (0x7f800000u & is_special);
    return float_from_bits(sign | bits);
}
