/* Packing for GEMMs of words: a and b by lines or by steps, in words of 32 bits. A word is a step of k in fp32, a
 * pair of steps in bf16. Nothing is computed: bits are moved. */
#include "backend/cpu/simd/simd.h"
#include "backend/cpu/simd/turn.h"

/* Words are where pairs of bf16 numbers are: at any even address. */
INLINE vf words_load(const char *from) {
    vf words;
    memcpy(&words, from, sizeof words);
    return words;
}

/* Words [word, word + LANES) of a line, whose steps lie together; zeros after the last step. */
INLINE vf words_along(const struct word_source *source, bool bf16, int64_t line, int64_t word) {
    int64_t step = bf16 ? 2 * word : word, bytes = bf16 ? 2 : 4, left = (source->steps - step) * bytes;
    const char *from = (const char *)source->data + (line * source->line_stride + step) * bytes;
    if (left >= (int64_t)sizeof(vf)) return words_load(from);
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

enum { LINE_BYTES = 64, WORDS_AHEAD = 8 };

/* Squares of words, [line][word] and [word][line]. What the next squares are made of is asked for. */
INLINE void square_along(const struct word_source *source, bool bf16, int64_t line, int64_t word, int64_t ahead,
                         vf square[LANES]) {
    const char *next = (const char *)source->data + (line + ahead) * source->line_stride * (bf16 ? 2 : 4) + word * 4;
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++)
        square[i] = line + i < source->lines ? words_along(source, bf16, line + i, word) : (vf){0};
    for (int i = 0; i < LANES; i++)
        __builtin_prefetch(next + i * source->line_stride * (bf16 ? 2 : 4), 0, 2);
}

INLINE void square_across(const struct word_source *source, bool bf16, int64_t line, int64_t word, vf square[LANES]) {
    int64_t left = source->lines - line, end = (word + LANES) * (bf16 ? 2 : 1), bytes = bf16 ? 2 : 4;
    if (left >= LANES && end <= source->steps) {
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++)
            square[i] = words_across(source, bf16, line, LANES, word + i);
    } else {
        for (int i = 0; i < LANES; i++)
            square[i] = words_across(source, bf16, line, left, word + i);
    }
    if (line * bytes % LINE_BYTES) return;
    const char *next = (const char *)source->data + (end * source->step_stride + line) * bytes;
    for (int64_t step = 0; step < LANES * 4 / bytes; step++)
        __builtin_prefetch(next + step * source->step_stride * bytes, 0, 2);
}

/* Pairs of two rows' neighbours, of 2 LANES columns. */
INLINE void pair_rows(const uint16_t *first, const uint16_t *second, float *to) {
#if SIMD_LANES == 16
    typedef uint16_t row_unaligned __attribute__((vector_size(64), aligned(2), may_alias));
    typedef uint16_t row __attribute__((vector_size(64)));
    row a = (row)(*(const row_unaligned *)first), b = (row)(*(const row_unaligned *)second);
    vf_store(to, (vf)__builtin_shufflevector(a, b, 0, 32, 1, 33, 2, 34, 3, 35, 4, 36, 5, 37, 6, 38, 7, 39, 8, 40, 9, 41,
                                             10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47));
    vf_store(to + LANES,
             (vf)__builtin_shufflevector(a, b, 16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55, 24, 56,
                                         25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63));
#else
    for (int i = 0; i < 2 * LANES; i += LANES)
        vf_store(to + i, (vf)(halves(first + i, LANES) | halves(second + i, LANES) << 16));
#endif
}

/* Steps are rows: asks for those of a few words ahead. */
INLINE void word_across(const struct word_source *source, bool bf16, int64_t word, int64_t width, float *to) {
    int64_t stride = source->step_stride, step = bf16 ? 2 * word : word, bytes = bf16 ? 2 : 4, line = 0;
    const char *next = (const char *)source->data + (step + WORDS_AHEAD * 4 / bytes) * stride * bytes;
    for (int64_t at = 0; at < width * bytes; at += LINE_BYTES)
        for (int64_t i = 0; i < 4 / bytes; i++)
            __builtin_prefetch(next + i * stride * bytes + at, 0, 2);
    if (bf16 && step + 1 < source->steps)
        for (; line + 2 * LANES <= width && line + 2 * LANES <= source->lines; line += 2 * LANES) {
            const uint16_t *first = (const uint16_t *)source->data + step * stride + line;
            pair_rows(first, first + stride, to + line);
        }
    for (; line < width; line += LANES) {
        int64_t left = source->lines - line;
        vf_store(to + line, left > 0 ? words_across(source, bf16, line, left, word) : (vf){0});
    }
}

INLINE void pack_steps(const struct word_source *source, bool bf16, int64_t words, int64_t width, float *to) {
    if (source->step_stride != 1) {
        for (int64_t word = 0; word < words; word++)
            word_across(source, bf16, word, width, to + word * width);
        return;
    }
    for (int64_t word = 0; word < words; word += LANES)
        for (int64_t line = 0; line < width; line += LANES) {
            vf square[LANES];
            square_along(source, bf16, line, word, width, square);
            vf_turn(square);
#pragma GCC unroll 16
            for (int i = 0; i < LANES; i++)
                vf_store(to + (word + i) * width + line, square[i]);
        }
}

enum { LINES_AHEAD = 8 };

/* A line whose steps lie together; the same of a few lines ahead is asked for. */
INLINE void line_along(const struct word_source *source, bool bf16, int64_t line, int64_t words, float *to) {
    int64_t bytes = bf16 ? 2 : 4, word = 0, whole = source->steps * bytes / (int64_t)sizeof(vf) * LANES;
    const char *from = (const char *)source->data + line * source->line_stride * bytes;
    const char *next = from + LINES_AHEAD * source->line_stride * bytes;
    for (; word < whole; word += LANES) {
        __builtin_prefetch(next + word * 4, 0, 2);
        vf_store(to + word, words_load(from + word * 4));
    }
    for (; word < words; word += LANES)
        vf_store(to + word, words_along(source, bf16, line, word));
}

INLINE void pack_lines(const struct word_source *source, bool bf16, int64_t words, float *to) {
    if (source->step_stride == 1) {
        for (int64_t line = 0; line < source->lines; line++)
            line_along(source, bf16, line, words, to + line * words);
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
