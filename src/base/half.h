/* Conversions between fp32 and the 16-bit formats, scalar, round to nearest even (NaN stays NaN). */
#ifndef BALLAST_BASE_HALF_H
#define BALLAST_BASE_HALF_H

#include <stdint.h>
#include <string.h>

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

static inline float f16_to_float(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16, exponent = (half >> 10) & 31u, mantissa = half & 0x3ffu;
    if (exponent == 31) return float_from_bits(sign | 0x7f800000u | mantissa << 13);
    if (exponent == 0) {
        float value = (float)mantissa * 0x1p-24f;
        return sign ? -value : value;
    }
    return float_from_bits(sign | (exponent + 112u) << 23 | mantissa << 13);
}

#endif
