/* Vectors of floats, for the kernels of this directory: each of its files is compiled once for each instruction set,
 * with CPU_ISA as its name, and sees LANES floats in a `vf`. Written with the vector extensions of gcc and clang; the
 * few operations that these lack are at the top.
 *
 * Operands come in fp32 or bf16 (`bf16` says which): loads widen, stores round to nearest even. Sums over lanes have
 * one fixed order, so a result depends on the instruction set alone. */
#pragma once

#include "backend/cpu/simd/kernels.h"
#include "base/base.h"

#define SIMD_JOIN_(a, b) a##_##b
#define SIMD_JOIN(a, b) SIMD_JOIN_(a, b)
/* The name of this instruction set's variant: SIMD_NAME(add) is add_avx2 and so on. */
#define SIMD_NAME(name) SIMD_JOIN(name, CPU_ISA)

#define SIMD_LANES_avx512 16
#define SIMD_LANES_avx2 8
#define SIMD_LANES_generic 4
#define SIMD_LANES SIMD_JOIN(SIMD_LANES, CPU_ISA)

#if SIMD_LANES > 4
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#else
#include <math.h>
#endif

#define INLINE static inline __attribute__((always_inline, unused))

/* The statement with `name` as a constant that says whether the condition holds: each of both has its own code. */
#define WITH_CONSTANT(name, condition, ...)                                                                            \
    do {                                                                                                               \
        if (condition) {                                                                                               \
            const bool name = true;                                                                                    \
            __VA_ARGS__;                                                                                               \
        } else {                                                                                                       \
            const bool name = false;                                                                                   \
            __VA_ARGS__;                                                                                               \
        }                                                                                                              \
    } while (0)

enum { LANES = SIMD_LANES, WIDE_LANES = LANES / 2 };
typedef float vf __attribute__((vector_size(LANES * 4)));
typedef float vf4 __attribute__((vector_size(16)));
typedef double vd __attribute__((vector_size(WIDE_LANES * 8)));
typedef int32_t vi __attribute__((vector_size(LANES * 4)));
typedef uint32_t vu __attribute__((vector_size(LANES * 4)));
typedef uint16_t vh __attribute__((vector_size(LANES * 2)));
typedef float vf_unaligned __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef uint16_t vh_unaligned __attribute__((vector_size(LANES * 2), aligned(2), may_alias));

/* a * b + c rounded once; the larger and the smaller of two (b when either is NaN); correctly rounded square roots; 16
 * bits to 32, and back where they fit; WIDE_LANES floats as doubles (conversions in the compilers' extensions are cut
 * into halves); all lanes added to four, by halves. */
#if SIMD_LANES == 16
INLINE vf vf_fma(vf a, vf b, vf c) { return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
INLINE vf vf_max(vf a, vf b) { return (vf)_mm512_max_ps((__m512)a, (__m512)b); }
INLINE vf vf_min(vf a, vf b) { return (vf)_mm512_min_ps((__m512)a, (__m512)b); }
INLINE vf vf_sqrt(vf a) { return (vf)_mm512_sqrt_ps((__m512)a); }
INLINE vu vu_widen(vh a) { return (vu)_mm512_cvtepu16_epi32((__m256i)a); }
INLINE vh vu_narrow(vu a) { return (vh)_mm512_cvtepi32_epi16((__m512i)a); }
INLINE vd vd_load(const float *from) { return (vd)_mm512_cvtps_pd(_mm256_loadu_ps(from)); }
INLINE vf4 vf_fold(vf a) {
    __m256 half = _mm256_add_ps(_mm512_castps512_ps256((__m512)a), _mm512_extractf32x8_ps((__m512)a, 1));
    return (vf4)_mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}
#elif SIMD_LANES == 8
INLINE vf vf_fma(vf a, vf b, vf c) { return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
INLINE vf vf_max(vf a, vf b) { return (vf)_mm256_max_ps((__m256)a, (__m256)b); }
INLINE vf vf_min(vf a, vf b) { return (vf)_mm256_min_ps((__m256)a, (__m256)b); }
INLINE vf vf_sqrt(vf a) { return (vf)_mm256_sqrt_ps((__m256)a); }
INLINE vu vu_widen(vh a) { return (vu)_mm256_cvtepu16_epi32((__m128i)a); }
INLINE vh vu_narrow(vu a) {
    return (vh)_mm_packus_epi32(_mm256_castsi256_si128((__m256i)a), _mm256_extracti128_si256((__m256i)a, 1));
}
INLINE vd vd_load(const float *from) { return (vd)_mm256_cvtps_pd(_mm_loadu_ps(from)); }
INLINE vf4 vf_fold(vf a) {
    return (vf4)_mm_add_ps(_mm256_castps256_ps128((__m256)a), _mm256_extractf128_ps((__m256)a, 1));
}
#elif defined(__aarch64__)
INLINE vf vf_fma(vf a, vf b, vf c) { return (vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b); }
INLINE vf vf_max(vf a, vf b) {
    return (vf)vbslq_f32(vcgtq_f32((float32x4_t)a, (float32x4_t)b), (float32x4_t)a, (float32x4_t)b);
}
INLINE vf vf_min(vf a, vf b) {
    return (vf)vbslq_f32(vcltq_f32((float32x4_t)a, (float32x4_t)b), (float32x4_t)a, (float32x4_t)b);
}
INLINE vf vf_sqrt(vf a) { return (vf)vsqrtq_f32((float32x4_t)a); }
INLINE vu vu_widen(vh a) { return (vu)vmovl_u16((uint16x4_t)a); }
INLINE vh vu_narrow(vu a) { return (vh)vmovn_u32((uint32x4_t)a); }
INLINE vd vd_load(const float *from) { return (vd)vcvt_f64_f32(vld1_f32(from)); }
INLINE vf4 vf_fold(vf a) { return a; }
#else
INLINE vf vf_fma(vf a, vf b, vf c) {
    for (int i = 0; i < LANES; i++)
        c[i] = fmaf(a[i], b[i], c[i]);
    return c;
}
INLINE vf vf_max(vf a, vf b) {
    for (int i = 0; i < LANES; i++)
        b[i] = a[i] > b[i] ? a[i] : b[i];
    return b;
}
INLINE vf vf_min(vf a, vf b) {
    for (int i = 0; i < LANES; i++)
        b[i] = a[i] < b[i] ? a[i] : b[i];
    return b;
}
INLINE vf vf_sqrt(vf a) {
    for (int i = 0; i < LANES; i++)
        a[i] = sqrtf(a[i]);
    return a;
}
INLINE vu vu_widen(vh a) { return __builtin_convertvector(a, vu); }
INLINE vh vu_narrow(vu a) { return __builtin_convertvector(a, vh); }
INLINE vd vd_load(const float *from) { return (vd){(double)from[0], (double)from[1]}; }
INLINE vf4 vf_fold(vf a) { return a; }
#endif

INLINE vf vf_set(float value) { return value - (vf){0}; }
INLINE vi vi_set(int32_t value) { return value - (vi){0}; }
/* Lane by lane a where the mask's bits are all set, b where none is. */
INLINE vf vf_select(vi mask, vf a, vf b) { return (vf)(((vi)a & mask) | ((vi)b & ~mask)); }

/* 0, 1, 2, … */
INLINE vi vi_iota(void) {
    vi result = {0};
    for (int i = 0; i < LANES; i++)
        result[i] = i;
    return result;
}

INLINE vf vf_load(const float *from) { return (vf)(*(const vf_unaligned *)from); }
INLINE void vf_store(float *to, vf value) { *(vf_unaligned *)to = (vf_unaligned)value; }

INLINE vf bf16_widen(vh bits) { return (vf)(vu_widen(bits) << 16); }
/* To the nearest, ties to even; a NaN stays one. */
#if SIMD_LANES == 16
INLINE vh bf16_round(vf value) {
    __m512i bits = (__m512i)value, rounded = (__m512i)((vu)value + 0x7fffu + ((vu)value >> 16 & 1u));
    __mmask16 nan = _mm512_cmp_ps_mask((__m512)value, (__m512)value, _CMP_UNORD_Q);
    rounded = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
    return vu_narrow((vu)rounded >> 16);
}
#else
INLINE vh bf16_round(vf value) {
    vf quiet = (vf)((vu)value | 0x400000u);
    vf rounded = (vf)((vu)value + 0x7fffu + ((vu)value >> 16 & 1u));
    return vu_narrow((vu)vf_select(value != value, quiet, rounded) >> 16);
}
#endif

/* The first `left` elements of a vector, fewer than LANES, followed by zeros. */
#if SIMD_LANES == 16
INLINE __mmask16 first_lanes(int64_t left) { return (__mmask16)((1u << left) - 1); }
INLINE vf part_load(const float *from, int64_t left) { return (vf)_mm512_maskz_loadu_ps(first_lanes(left), from); }
INLINE vh part_load_bf16(const uint16_t *from, int64_t left) {
    return (vh)_mm256_maskz_loadu_epi16(first_lanes(left), from);
}
INLINE void part_store(float *to, int64_t left, vf value) {
    _mm512_mask_storeu_ps(to, first_lanes(left), (__m512)value);
}
INLINE void part_store_bf16(uint16_t *to, int64_t left, vh value) {
    _mm256_mask_storeu_epi16(to, first_lanes(left), (__m256i)value);
}
#else
INLINE vf part_load(const float *from, int64_t left) {
    float part[LANES] = {0};
    memcpy(part, from, (size_t)left * sizeof *from);
    return vf_load(part);
}
INLINE vh part_load_bf16(const uint16_t *from, int64_t left) {
    uint16_t part[LANES] = {0};
    memcpy(part, from, (size_t)left * sizeof *from);
    return (vh)(*(const vh_unaligned *)part);
}
INLINE void part_store(float *to, int64_t left, vf value) { memcpy(to, &value, (size_t)left * sizeof *to); }
INLINE void part_store_bf16(uint16_t *to, int64_t left, vh value) { memcpy(to, &value, (size_t)left * sizeof *to); }
#endif

/* Elements index, index + 1, … of `from`; of the last `left` elements when that is fewer than LANES, zeros after. */
INLINE vf load(const void *from, int64_t index, int64_t left, bool bf16) {
    if (bf16) {
        const uint16_t *at = (const uint16_t *)from + index;
        return bf16_widen(left >= LANES ? (vh)(*(const vh_unaligned *)at) : part_load_bf16(at, left));
    }
    const float *at = (const float *)from + index;
    return left >= LANES ? vf_load(at) : part_load(at, left);
}

INLINE void store(void *to, int64_t index, int64_t left, bool bf16, vf value) {
    if (bf16) {
        uint16_t *at = (uint16_t *)to + index;
        vh rounded = bf16_round(value);
        if (left >= LANES)
            *(vh_unaligned *)at = (vh_unaligned)rounded;
        else
            part_store_bf16(at, left, rounded);
        return;
    }
    float *at = (float *)to + index;
    if (left >= LANES)
        vf_store(at, value);
    else
        part_store(at, left, value);
}

/* Prefetches data that a loop over adjacent rows soon reads or overwrites. With arithmetic between the loads, the
 * processor's own prefetcher keeps too few lines in flight. A line that another core has read must be taken from it, as
 * when a GEMM's packed operand lay where a result is written now. A prefetch for reading fetches it, but the store
 * waits again. */
enum { AHEAD_BYTES = 4096 };
INLINE const char *prefetch_line(const void *row, int64_t index, bool bf16) {
    return (const char *)row + index * (bf16 ? 2 : 4) + AHEAD_BYTES;
}
INLINE void prefetch_read(const void *row, int64_t index, bool bf16) {
    __builtin_prefetch(prefetch_line(row, index, bf16));
}
INLINE void prefetch_write(const void *row, int64_t index, bool bf16) {
    const char *line = prefetch_line(row, index, bf16);
#if defined(__x86_64__) /* compilers leave it to an option that the whole file would need */
    __asm__ volatile("prefetchw %0" : : "m"(*line));
#else
    __builtin_prefetch(line, 1);
#endif
}

/* Zeros in the lanes from `left` on. */
INLINE vf keep(vf value, int64_t left) {
    if (left >= LANES) return value;
    return vf_select(vi_iota() < (int32_t)left, value, (vf){0});
}

/* The sum of the lanes, by halves. */
INLINE float vf_sum(vf value) {
    vf4 quarter = vf_fold(value);
    return (quarter[0] + quarter[2]) + (quarter[1] + quarter[3]);
}

INLINE float vf_largest(vf value) {
    float largest = value[0];
    for (int i = 1; i < LANES; i++)
        largest = value[i] > largest ? value[i] : largest;
    return largest;
}

/* e^x within 1.5 ulp; 0 below the smallest normal number. The argument is reduced to r in ±ln(2)/2 around a multiple of
 * ln 2 (in two parts, after Cody and Waite) and e^r = 1 + r + r^2 q(r), q of least error by Chebyshev expansion. */
INLINE vf vf_exp(vf x) {
    const vf magic = vf_set(0x1.8p23f); /* adding it rounds to an integer, which stands in the low bits */
    vf shifted = vf_fma(x, vf_set(1.44269504089f), magic);
    vf multiple = shifted - magic;
    vf r = vf_fma(multiple, vf_set(-0.693359375f), x);
    r = vf_fma(multiple, vf_set(2.12194440e-4f), r);
    vf q = vf_set(0.001392625083f);
    q = vf_fma(q, r, vf_set(0.008363232884f));
    q = vf_fma(q, r, vf_set(0.04166655421f));
    q = vf_fma(q, r, vf_set(0.1666657667f));
    q = vf_fma(q, r, vf_set(0.5f));
    vf power = vf_fma(r * r, q, r) + 1.0f;
    power = (vf)((vu)power + ((vu)shifted << 23));
    power = (vf)((vi)power & ~(x < -87.33654f));
    return vf_select(x > 88.72283f, vf_set(__builtin_inff()), power);
}

/* 2^x within 2 ulp for x from -126 to 127: 2^r = 1 + r q(r) for r in ±1/2, q of least error by Remez' exchange. */
INLINE vf vf_power2(vf x) {
    const vf magic = vf_set(0x1.8p23f); /* as above */
    vf shifted = x + magic;
    vf r = x - (shifted - magic);
    vf q = vf_set(0.001326472731f);
    q = vf_fma(q, r, vf_set(0.009671512991f));
    q = vf_fma(q, r, vf_set(0.05550733581f));
    q = vf_fma(q, r, vf_set(0.2402224243f));
    q = vf_fma(q, r, vf_set(0.6931470037f));
    vf power = vf_fma(q, r, vf_set(1.0f));
    return (vf)((vu)power + ((vu)shifted << 23));
}

/* And 0 below the smallest normal number. */
INLINE vf vf_exp2(vf x) { return (vf)((vi)vf_power2(x) & ~(x < -126.0f)); }

/* 1 / (1 + 2^x), from 1 down to the smallest normal number. */
INLINE vf vf_falling2(vf x) {
    x = vf_max(vf_set(-126.0f), vf_min(vf_set(126.0f), x)); /* this order keeps NaN */
    return 1.0f / (1.0f + vf_power2(x));
}

/* 1 / (1 + e^-x) */
INLINE vf vf_sigmoid(vf x) { return 1.0f / (1.0f + vf_exp(-x)); }

/* tanh within 2 ulp: x + x^3 q(x^2) below 0.625, q of least error by Chebyshev expansion, else 1 - 2 / (e^2|x| + 1). */
INLINE vf vf_tanh(vf x) {
    vf size = (vf)((vi)x & 0x7fffffff), square = x * x;
    vf q = vf_set(-0.006104947999f);
    q = vf_fma(q, square, vf_set(0.02100364119f));
    q = vf_fma(q, square, vf_set(-0.05385249853f));
    q = vf_fma(q, square, vf_set(0.1333278269f));
    q = vf_fma(q, square, vf_set(-0.3333332837f));
    vf large = 1.0f - 2.0f / (vf_exp(size + size) + 1.0f);
    large = (vf)((vi)large | ((vi)x ^ (vi)size));
    return vf_select(size < 0.625f, vf_fma(x * square, q, x), large);
}

/* The standard normal distribution function, and e^(-x^2/2) for its density. erfc(z) e^(z^2) is t Q(t) with t = 1 / (1
 * + 0.4 z) for z >= 0; Q minimizes the error by Chebyshev expansion over z up to 10. */
INLINE vf vf_normal(vf x, vf *bell) {
    static const float coefficients[] = {-0.03350112687f, 0.2187853561f, -0.5465026178f, 0.6093421803f, -0.3343118762f,
                                         0.2979731946f,   0.1210599825f, 0.216689386f,   0.2247486653f, 0.2257168574f};
    vf z = (vf)((vi)x & 0x7fffffff) * 0.70710678f;
    vf t = 1.0f / vf_fma(z, vf_set(0.4f), vf_set(1.0f));
    vf q = vf_set(coefficients[0]);
    for (unsigned i = 1; i < sizeof coefficients / sizeof *coefficients; i++)
        q = vf_fma(q, t, vf_set(coefficients[i]));
    *bell = vf_exp(x * x * -0.5f);
    vf tail = 0.5f * t * q * *bell;
    return vf_select(x > 0.0f, 1.0f - tail, tail);
}

/* Declares every function of SIMD_LIST and ATTENTION_LIST for the instruction set that is being compiled; table.c
 * makes the table. */
#define SIMD_DECLARE(result, name, arguments) result SIMD_NAME(simd_##name) arguments;
SIMD_LIST(SIMD_DECLARE)
#undef SIMD_DECLARE
#define SIMD_DECLARE(result, name, arguments) result SIMD_NAME(simd_attention_##name) arguments;
ATTENTION_LIST(SIMD_DECLARE)
#undef SIMD_DECLARE
#if SIMD_LANES == 16
extern const struct attention_kernels SIMD_NAME(simd_attention_dots), SIMD_NAME(simd_attention_amx);
#endif

/* Rows become columns: square blocks of LANES vectors, turned in registers. */

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

/* Sizes of the GEMM's tile and panels. */

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
