/* Moments in 8 bits (backend/moment_map.h): a block's numbers from its codes, and the codes of the nearest numbers. */
#ifndef BALLAST_BACKEND_CPU_SIMD_MOMENT_CODES_H
#define BALLAST_BACKEND_CPU_SIMD_MOMENT_CODES_H

#include "backend/cpu/simd/simd.h"
#include "backend/moment_map.h"

/* Four vectors are packed together. */
enum { MOMENT_BLOCK = UPDATE_SCALE_BLOCK, MOMENT_GROUP = 4 * LANES };
_Static_assert(MOMENT_BLOCK % MOMENT_GROUP == 0, "a block is packed by groups");

/* A map's levels but for 0's, each number of theirs in a table of its own. */
enum { LEVEL_ENTRIES = MOMENT_LEVELS - 1 };
struct level_tables {
    const struct moment_map *map;
    float above[LEVEL_ENTRIES]; /* -inf: of the first, below which all are 0 */
    float slope[LEVEL_ENTRIES], offset[LEVEL_ENTRIES];
    float reach[LEVEL_ENTRIES]; /* the last code less the first */
    float code[LEVEL_ENTRIES];  /* bits: the first */
};

INLINE void fill_tables(const struct moment_map *map, struct level_tables *out) {
    out->map = map;
    for (int i = 0; i < LEVEL_ENTRIES; i++) {
        const struct moment_level *level = &map->levels[i + 1];
        out->above[i] = i == 0 ? -__builtin_inff() : level->above;
        out->slope[i] = level->slope;
        out->offset[i] = level->offset;
        out->reach[i] = (float)(level->last - level->code);
        memcpy(&out->code[i], &level->code, sizeof level->code);
    }
}

/* table[index] of numbers by code; codes as integers; table[level] of the lower 3 bits; the smaller; level less 1
 * where a <= b; `code` where a > b, 0 elsewhere; -code where x is negative; four vectors as bytes, 0 where they are
 * negative. */
#if SIMD_LANES == 16
INLINE vf vf_gather(const float *table, vi index) { return (vf)_mm512_i32gather_ps((__m512i)index, table, 4); }
INLINE vi vi_of_bytes(const uint8_t *from) { return (vi)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)from)); }
INLINE vf vf_by_level(const float table[LEVEL_ENTRIES], vi level) {
    return (vf)_mm512_permutexvar_ps((__m512i)level, _mm512_broadcast_f32x8(_mm256_loadu_ps(table)));
}
INLINE vi vi_lower(vi level, vf a, vf b) {
    __mmask16 lower = _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_LE_OQ);
    return (vi)_mm512_mask_sub_epi32((__m512i)level, lower, (__m512i)level, _mm512_set1_epi32(1));
}
INLINE vi vi_above(vi code, vf a, vf b) {
    return (vi)_mm512_maskz_mov_epi32(_mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_GT_OQ), (__m512i)code);
}
INLINE vi vi_signed(vi code, vf x) {
    return (vi)_mm512_mask_sub_epi32((__m512i)code, _mm512_movepi32_mask((__m512i)x), _mm512_setzero_si512(),
                                     (__m512i)code);
}
INLINE void store_codes(uint8_t to[MOMENT_GROUP], const vi codes[4]) {
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512i low = _mm512_packs_epi32((__m512i)codes[0], (__m512i)codes[1]);
    __m512i high = _mm512_packs_epi32((__m512i)codes[2], (__m512i)codes[3]);
    _mm512_storeu_si512(to, _mm512_permutexvar_epi32(order, _mm512_packus_epi16(low, high)));
}
#elif SIMD_LANES == 8
INLINE vf vf_gather(const float *table, vi index) { return (vf)_mm256_i32gather_ps(table, (__m256i)index, 4); }
INLINE vi vi_of_bytes(const uint8_t *from) { return (vi)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)from)); }
INLINE vf vf_by_level(const float table[LEVEL_ENTRIES], vi level) {
    return (vf)_mm256_permutevar8x32_ps(_mm256_loadu_ps(table), (__m256i)level);
}
INLINE vi vi_lower(vi level, vf a, vf b) { return level + (a <= b); }
INLINE vi vi_above(vi code, vf a, vf b) { return code & (a > b); }
INLINE vi vi_signed(vi code, vf x) { return (vi)_mm256_sign_epi32((__m256i)code, (__m256i)((vi)x | 1)); }
INLINE void store_codes(uint8_t to[MOMENT_GROUP], const vi codes[4]) {
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i low = _mm256_packs_epi32((__m256i)codes[0], (__m256i)codes[1]);
    __m256i high = _mm256_packs_epi32((__m256i)codes[2], (__m256i)codes[3]);
    _mm256_storeu_si256((__m256i *)to, _mm256_permutevar8x32_epi32(_mm256_packus_epi16(low, high), order));
}
#else
INLINE vf vf_gather(const float *table, vi index) {
    vf found;
    for (int i = 0; i < LANES; i++)
        found[i] = table[index[i]];
    return found;
}
INLINE vi vi_of_bytes(const uint8_t *from) {
    vi codes;
    for (int i = 0; i < LANES; i++)
        codes[i] = from[i];
    return codes;
}
INLINE vf vf_by_level(const float table[LEVEL_ENTRIES], vi level) {
    return vf_gather(table, level & (LEVEL_ENTRIES - 1));
}
INLINE vi vi_lower(vi level, vf a, vf b) { return level + (a <= b); }
INLINE vi vi_above(vi code, vf a, vf b) { return code & (a > b); }
INLINE vi vi_signed(vi code, vf x) {
    vi sign = (vi)x >> 31;
    return (code ^ sign) - sign;
}
INLINE void store_codes(uint8_t to[MOMENT_GROUP], const vi codes[4]) {
    for (int i = 0; i < MOMENT_GROUP; i++) {
        int32_t code = codes[i / LANES][i % LANES];
        to[i] = (uint8_t)(code < 0 ? 0 : code);
    }
}
#endif

/* The level of a magnitude up to 1, from 0 on, as the tables have it. An exponent and the mantissa after it, as one
 * number, are less than log2 by 0 to 0.0861; so the sum is less than log10 + 7.1 by 0 to 0.026, which gives the level
 * or, just below where it begins, the next. (Level k begins at 10^(k - 7 + t), -0.002 < t < 0.45.) */
INLINE vi level_of(const struct level_tables *tables, vf magnitude) {
    const float power = 0x1.344136p-2f /* log10(2) */, bias = 127 * power - 7.1f;
    vf guess = vf_fma(__builtin_convertvector((vi)magnitude, vf), vf_set(power * 0x1p-23f), vf_set(-bias));
    vi level = __builtin_convertvector(vf_max(guess, vf_set(0)), vi);
    return vi_lower(level, magnitude, vf_by_level(tables->above, level));
}

/* The codes of the nearest numbers; 0's of NaN. `both`: the map has numbers of both signs, of which the negative ones
 * are one fewer: -1 has the code -1, which store_codes makes 0. Of the other map no x is negative. */
INLINE vi codes_of(const struct level_tables *tables, bool both, vf x) {
    vf magnitude = vf_max(both ? (vf)((vi)x & 0x7fffffff) : x, vf_set(0));
    vi level = level_of(tables, magnitude);
    vf place = vf_fma(magnitude, vf_by_level(tables->slope, level), vf_by_level(tables->offset, level));
    place = vf_min(place, vf_by_level(tables->reach, level));
    vi code = (vi)vf_by_level(tables->code, level) + __builtin_convertvector(place, vi);
    code = vi_above(code, magnitude, vf_set(tables->map->levels[1].above));
    return both ? vi_signed(code, x) + tables->map->zero : code;
}

/* x / y where y is a normal number and 1 / y is `inverse`, rounded once: a quotient that is wrong by 2 in its last
 * place is corrected by what it leaves of x, twice (Markstein, IBM J. Res. Dev. 34, 1990). Quotients below 2^-40, which
 * have the code of 0, may be less exact. */
INLINE vf quotient_of(vf x, vf y, vf inverse) {
    vf quotient = x * inverse;
    quotient = vf_fma(vf_fma(-quotient, y, x), inverse, quotient);
    return vf_fma(vf_fma(-quotient, y, x), inverse, quotient);
}

/* `numbers` gets zeros from n to the block's end. */
INLINE void unpack_block(const struct moment_map *map, int64_t n, const uint8_t *codes, float scale, float *numbers) {
    const float *of_code = map->numbers;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        vf_store(numbers + i, vf_gather(of_code, vi_of_bytes(codes + i)) * scale);
    for (; i < MOMENT_BLOCK; i++)
        numbers[i] = i < n ? of_code[codes[i]] * scale : 0;
}

/* `plain`: the scale is far from the least and the largest numbers. */
INLINE void pack_codes(const struct level_tables *tables, bool both, bool plain, const float numbers[MOMENT_BLOCK],
                       float scale, uint8_t codes[MOMENT_BLOCK]) {
    vf divisor = vf_set(scale), inverse = 1.0f / divisor;
    for (int64_t i = 0; i < MOMENT_BLOCK; i += MOMENT_GROUP) {
        vi found[4];
        for (int v = 0; v < 4; v++) {
            vf x = vf_load(numbers + i + v * LANES);
            found[v] = codes_of(tables, both, plain ? quotient_of(x, divisor, inverse) : x / divisor);
        }
        store_codes(codes + i, found);
    }
}

INLINE float largest_magnitude(const float numbers[MOMENT_BLOCK]) {
    vf largest[4] = {{0}};
    for (int64_t i = 0; i < MOMENT_BLOCK; i += MOMENT_GROUP)
        for (int v = 0; v < 4; v++)
            largest[v] = vf_max(largest[v], (vf)((vi)vf_load(numbers + i + v * LANES) & 0x7fffffff));
    return vf_largest(vf_max(vf_max(largest[0], largest[1]), vf_max(largest[2], largest[3])));
}

/* `numbers` has zeros from n on. */
INLINE void pack_block(const struct level_tables *tables, int64_t n, const float *numbers, uint8_t *codes,
                       float *scale) {
    uint8_t part[MOMENT_BLOCK], *all = n == MOMENT_BLOCK ? codes : part;
    float largest = *scale = largest_magnitude(numbers);
    bool plain = largest >= 0x1p-60f && largest <= 0x1p60f, both = tables->map->zero > 0;
    if (plain && both)
        pack_codes(tables, true, true, numbers, largest, all);
    else if (plain)
        pack_codes(tables, false, true, numbers, largest, all);
    else
        pack_codes(tables, both, false, numbers, largest, all);
    if (n < MOMENT_BLOCK) memcpy(codes, part, (size_t)n);
}

#endif
