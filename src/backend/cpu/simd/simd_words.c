/* Packing for products of words: a and b by lines or by steps, in words of 32 bits. A word is a step of k in fp32, a
 * pair of steps in bf16. Nothing is computed: bits are moved. */
#include "backend/cpu/simd/simd.h"
#include "backend/cpu/simd/turn.h"

/* Words [word, word + LANES) of a line, whose steps lie together; zeros after the last step. */
INLINE vf words_along(const struct word_source *source, bool bf16, int64_t line, int64_t word) {
    int64_t step = bf16 ? 2 * word : word, bytes = bf16 ? 2 : 4, left = (source->steps - step) * bytes;
    const char *from = (const char *)source->data + (line * source->line_stride + step) * bytes;
    if (left >= (int64_t)sizeof(vf)) return vf_load((const float *)(const void *)from);
    float part[LANES] = {0};
    if (left > 0) memcpy(part, from, (size_t)left);
    return vf_load(part);
}

/* LANES bf16 elements, of which `left` are there, in the low halves of words. */
INLINE vu halves(const uint16_t *from, int64_t left) {
    if (left >= LANES) return vu_widen((vh)(*(const vh_unaligned *)from));
    return vu_widen(part_load_bf16(from, left));
}

/* Word `word` of lines [line, line + LANES), which lie together, of which there are `left`; zeros after the last step
 * and line. */
INLINE vf words_across(const struct word_source *source, bool bf16, int64_t line, int64_t left, int64_t word) {
    int64_t step = bf16 ? 2 * word : word;
    if (step >= source->steps) return (vf){0};
    if (!bf16) return load(source->data, step * source->step_stride + line, left, false);
    const uint16_t *first = (const uint16_t *)source->data + step * source->step_stride + line;
    if (step + 1 >= source->steps) return (vf)halves(first, left);
    return (vf)(halves(first, left) | halves(first + source->step_stride, left) << 16);
}

/* Squares of words, [line][word] and [word][line]. */
INLINE void square_along(const struct word_source *source, bool bf16, int64_t line, int64_t word, vf square[LANES]) {
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++)
        square[i] = line + i < source->lines ? words_along(source, bf16, line + i, word) : (vf){0};
}

INLINE void square_across(const struct word_source *source, bool bf16, int64_t line, int64_t word, vf square[LANES]) {
    int64_t left = source->lines - line, end = (word + LANES) * (bf16 ? 2 : 1);
    if (left >= LANES && end <= source->steps) {
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++)
            square[i] = words_across(source, bf16, line, LANES, word + i);
    } else {
        for (int i = 0; i < LANES; i++)
            square[i] = words_across(source, bf16, line, left, word + i);
    }
}

INLINE void pack_steps(const struct word_source *source, bool bf16, int64_t words, int64_t width, float *to) {
    if (source->step_stride != 1) {
        for (int64_t word = 0; word < words; word++)
            for (int64_t line = 0; line < width; line += LANES) {
                int64_t left = source->lines - line;
                vf_store(to + word * width + line, left > 0 ? words_across(source, bf16, line, left, word) : (vf){0});
            }
        return;
    }
    for (int64_t word = 0; word < words; word += LANES)
        for (int64_t line = 0; line < width; line += LANES) {
            vf square[LANES];
            square_along(source, bf16, line, word, square);
            vf_turn(square);
#pragma GCC unroll 16
            for (int i = 0; i < LANES; i++)
                vf_store(to + (word + i) * width + line, square[i]);
        }
}

INLINE void pack_lines(const struct word_source *source, bool bf16, int64_t words, float *to) {
    if (source->step_stride == 1) {
        for (int64_t line = 0; line < source->lines; line++)
            for (int64_t word = 0; word < words; word += LANES)
                vf_store(to + line * words + word, words_along(source, bf16, line, word));
        return;
    }
    for (int64_t word = 0; word < words; word += LANES)
        for (int64_t line = 0; line < source->lines; line += LANES) {
            vf square[LANES];
            square_across(source, bf16, line, word, square);
            vf_turn(square);
#pragma GCC unroll 16
            for (int i = 0; i < LANES; i++)
                if (line + i < source->lines) vf_store(to + (line + i) * words + word, square[i]);
        }
}

void SIMD_NAME(simd_pack_steps)(const struct word_source *source, int64_t words, int64_t width, float *to) {
    if (source->dtype == DTYPE_BF16)
        pack_steps(source, true, words, width, to);
    else
        pack_steps(source, false, words, width, to);
}

void SIMD_NAME(simd_pack_lines)(const struct word_source *source, int64_t words, float *to) {
    if (source->dtype == DTYPE_BF16)
        pack_lines(source, true, words, to);
    else
        pack_lines(source, false, words, to);
}
