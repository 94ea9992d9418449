/* Unpacks quantized weights. A block's scale makes a table of its codes' values, in which codes are looked up. */
#include "backend/cpu/simd/simd.h"

enum { CODES = WEIGHT_CODES };

/* Values of a block's codes. */
struct table {
    float numbers[CODES];
    uint16_t rounded[CODES]; /* the same, in bf16 */
};

/* Codes of two a byte: whether the first one is in the high bits. */
INLINE bool high_first(const struct quantized_weight *weight) {
    return weight->format == WEIGHT_NF4 || weight->format == WEIGHT_NF4_WIDE;
}
INLINE bool has_pairs(const struct quantized_weight *weight) {
    return weight->format != WEIGHT_INT8 && weight->format != WEIGHT_W8A16 && weight->format != WEIGHT_W8A16_ASYM;
}
/* The zero point that is subtracted from integer codes. */
INLINE float zero_of(const struct quantized_weight *weight, int64_t block) {
    return weight->zeros ? (float)weight->zeros[block] : 0;
}

INLINE float scale_of(const struct quantized_weight *weight, int64_t block) {
    const uint8_t *bytes = weight->scales;
    if (weight->format == WEIGHT_MXFP4) {
        /* 2^-127, which byte 0 stands for, is below the smallest normal number. */
        uint32_t bits = bytes[block] > 0 ? (uint32_t)bytes[block] << 23 : 1u << 22;
        float scale;
        memcpy(&scale, &bits, sizeof scale);
        return scale;
    }
    if (weight->format != WEIGHT_NF4) return ((const float *)weight->scales)[block];
    float scale = weight_scale_map[bytes[block]] * weight->groups[block / WEIGHT_GROUP_BLOCKS];
    return scale + *weight->offset;
}

/* mxfp4 in bf16, where no number of the block is subnormal or infinite: the scale is added to the exponents of all but
 * the zeros. False elsewhere. */
INLINE bool shift_table(const struct quantized_weight *weight, int64_t block, struct table *table) {
    enum { MIN = 3, MAX = 250, BIAS = 127, EXPONENT = 7 };
    static const uint16_t values[CODES] = {0x0000, 0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4040, 0x4080, 0x40c0,
                                           0x8000, 0xbf00, 0xbf80, 0xbfc0, 0xc000, 0xc040, 0xc080, 0xc0c0};
    static const uint16_t moved[CODES] = {0, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff,
                                          0, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff};
    int exponent = ((const uint8_t *)weight->scales)[block];
    if (exponent < MIN || exponent > MAX) return false;
    uint16_t shift = (uint16_t)((exponent - BIAS) * (1 << EXPONENT));
    for (int i = 0; i < CODES; i += LANES) {
        vh numbers = (vh)(*(const vh_unaligned *)(values + i) + (*(const vh_unaligned *)(moved + i) & shift));
        *(vh_unaligned *)(table->rounded + i) = (vh_unaligned)numbers;
        vf_store(table->numbers + i, bf16_widen(numbers));
    }
    return true;
}

INLINE void fill_table(const struct quantized_weight *weight, int64_t block, bool bf16, struct table *table) {
    if (bf16 && weight->format == WEIGHT_MXFP4 && shift_table(weight, block, table)) return;
    static const float integers[CODES] = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
    const float *values = weight->format == WEIGHT_MXFP4 ? weight_mxfp4_values
                          : high_first(weight)           ? weight_nf4_values
                                                         : integers;
    float scale = scale_of(weight, block), zero = zero_of(weight, block);
    for (int i = 0; i < CODES; i += LANES) {
        vf number = (vf_load(values + i) - zero) * scale;
        if (bf16) {
            vh rounded = bf16_round(number);
            *(vh_unaligned *)(table->rounded + i) = (vh_unaligned)rounded;
            number = bf16_widen(rounded);
        }
        vf_store(table->numbers + i, number);
    }
}

INLINE int code_at(const struct quantized_weight *weight, int64_t index) {
    uint8_t pair = weight->codes[index / 2];
    bool high = (index % 2 == 0) == high_first(weight);
    return high ? pair >> 4 : pair & 15;
}

INLINE void look_up_one(const struct quantized_weight *weight, const struct table *table, int64_t index, bool bf16,
                        void *out, int64_t at) {
    int code = code_at(weight, index);
    if (bf16)
        ((uint16_t *)out)[at] = table->rounded[code];
    else
        ((float *)out)[at] = table->numbers[code];
}

/* Sixteen codes at a time; how many of the `count` were written. */
#if SIMD_LANES > 4
INLINE __m128i sixteen_codes(const uint8_t *pairs, bool first_is_high) {
    __m128i bytes = _mm_loadl_epi64((const void *)pairs), low_bits = _mm_set1_epi8(15);
    __m128i high = _mm_and_si128(_mm_srli_epi16(bytes, 4), low_bits), low = _mm_and_si128(bytes, low_bits);
    return first_is_high ? _mm_unpacklo_epi8(high, low) : _mm_unpacklo_epi8(low, high);
}
#endif

#if SIMD_LANES == 16
INLINE void look_up_sixteen(const struct table *table, __m128i codes, bool bf16, void *out) {
    if (bf16) {
        __m256i numbers = _mm256_loadu_si256((const void *)table->rounded);
        _mm256_storeu_si256(out, _mm256_permutexvar_epi16(_mm256_cvtepu8_epi16(codes), numbers));
    } else {
        __m512 numbers = _mm512_loadu_ps(table->numbers);
        _mm512_storeu_ps(out, _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(codes), numbers));
    }
}

/* Looks up 32 codes, in bf16. */
INLINE void look_up_pairs(const struct table *table, const uint8_t *pairs, bool first_is_high, uint16_t *out) {
    __m128i bytes = _mm_loadu_si128((const void *)pairs), low_bits = _mm_set1_epi8(15);
    __m128i high = _mm_and_si128(_mm_srli_epi16(bytes, 4), low_bits), low = _mm_and_si128(bytes, low_bits);
    __m128i even = first_is_high ? high : low, odd = first_is_high ? low : high;
    __m256i codes = _mm256_set_m128i(_mm_unpackhi_epi8(even, odd), _mm_unpacklo_epi8(even, odd));
    __m512i numbers = _mm512_castsi256_si512(_mm256_loadu_si256((const void *)table->rounded));
    _mm512_storeu_si512((void *)out, _mm512_permutexvar_epi16(_mm512_cvtepu8_epi16(codes), numbers));
}
#elif SIMD_LANES == 8
INLINE __m256 look_up_eight(const struct table *table, __m128i codes) {
    __m256i index = _mm256_cvtepu8_epi32(codes);
    __m256 low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table->numbers), index);
    __m256 high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table->numbers + 8), index);
    return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(index, 28)));
}

INLINE void look_up_sixteen(const struct table *table, __m128i codes, bool bf16, void *out) {
    __m256 first = look_up_eight(table, codes), last = look_up_eight(table, _mm_srli_si128(codes, 8));
    if (bf16) {
        *(vh_unaligned *)out = (vh_unaligned)bf16_round((vf)first);
        *((vh_unaligned *)out + 1) = (vh_unaligned)bf16_round((vf)last);
    } else {
        _mm256_storeu_ps(out, first);
        _mm256_storeu_ps((float *)out + 8, last);
    }
}
#endif

/* Numbers of one block. */
INLINE void look_up(const struct quantized_weight *weight, const struct table *table, int64_t first, int64_t count,
                    bool bf16, void *out) {
    int64_t i = 0;
#if SIMD_LANES > 4
    if (first % 2 == 1) look_up_one(weight, table, first, bf16, out, i++);
#if SIMD_LANES == 16
    for (; bf16 && count - i >= 32; i += 32)
        look_up_pairs(table, weight->codes + (first + i) / 2, high_first(weight), (uint16_t *)out + i);
#endif
    for (; count - i >= 16; i += 16) {
        __m128i codes = sixteen_codes(weight->codes + (first + i) / 2, high_first(weight));
        look_up_sixteen(table, codes, bf16, bf16 ? (void *)((uint16_t *)out + i) : (void *)((float *)out + i));
    }
#endif
    for (; i < count; i++)
        look_up_one(weight, table, first + i, bf16, out, i);
}

/* LANES codes of a byte each, as numbers. */
#if SIMD_LANES == 16
INLINE vf bytes_as_numbers(const int8_t *from) {
    return (vf)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)from)));
}
#elif SIMD_LANES == 8
INLINE vf bytes_as_numbers(const int8_t *from) {
    return (vf)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)from)));
}
#else
INLINE vf bytes_as_numbers(const int8_t *from) {
    vf numbers = {0};
    for (int i = 0; i < LANES; i++)
        numbers[i] = (float)from[i];
    return numbers;
}
#endif

/* Numbers of one block. */
INLINE void unpack_bytes(const struct quantized_weight *weight, int64_t block, int64_t first, int64_t count, bool bf16,
                         bool to_bf16, void *out) {
    const int8_t *codes = (const int8_t *)weight->codes + first;
    bool in_steps = weight->format == WEIGHT_INT8;
    float scale = ((const float *)weight->scales)[block], zero = zero_of(weight, block);
    for (int64_t i = 0; i < count; i += LANES) {
        int64_t left = count - i < LANES ? count - i : LANES;
        int8_t last[LANES] = {0};
        if (left < LANES) memcpy(last, codes + i, (size_t)left);
        vf number = (bytes_as_numbers(left < LANES ? last : codes + i) - zero) * scale;
        if (in_steps) number *= WEIGHT_INT8_STEP;
        if (bf16 && !to_bf16) number = bf16_widen(bf16_round(number));
        store(out, i, left, to_bf16, number);
    }
}

/* Division by a constant is a shift. */
INLINE int64_t block_of(const struct quantized_weight *weight, int64_t number) {
    enum { USUAL = 64, SHORT = 32 };
    if (weight->block == USUAL) return number / USUAL;
    return weight->block == SHORT ? number / SHORT : number / weight->block;
}

void SIMD_NAME(simd_unpack)(const struct quantized_weight *weight, int64_t first, int64_t count, enum dtype dtype,
                            enum dtype to, void *out) {
    bool bf16 = dtype == DTYPE_BF16, to_bf16 = to == DTYPE_BF16;
    int64_t block = block_of(weight, first), left = (block + 1) * weight->block - first;
    for (int64_t done = 0, here; done < count; done += here, block++, left = weight->block) {
        int64_t at = first + done;
        here = count - done < left ? count - done : left;
        char *place = (char *)out + done * (to_bf16 ? 2 : 4);
        struct table table;
        if (!has_pairs(weight)) {
            unpack_bytes(weight, block, at, here, bf16, to_bf16, place);
            continue;
        }
        fill_table(weight, block, bf16, &table);
        WITH_CONSTANT(in_bf16, to_bf16, look_up(weight, &table, at, here, in_bf16, place));
    }
}
