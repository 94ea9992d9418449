/* What attention by pairs of bf16 and its gradient share: how a tile of positions of one head lies in bf16 for their
 * GEMMs, scores in blocks of 32 keys by 32 queries, what queries see of them.
 *
 * A unit of the processor multiplies pairs: dot products of vectors, or tiles (AMX). The file of a unit
 * (simd_attention_dots.c, simd_attention_amx.c) includes this one, and then attention_pairs_forward.h and
 * attention_pairs_grad.h, after it has defined
 *     UNIT: the attribute of functions that use the unit or round to bf16;
 *     PAIRS_TILE, a multiple of 32: keys of a tile, and queries of the gradient's;
 *     PAIRS_QUERIES, a multiple of 32: queries of attention's tiles, which share each copy of keys and values;
 *     unit_begin, unit_end: before and after GEMMs;
 *     unit_multiply(words, a, a_row, b, b_row, c, c_row, accumulate): c[32][32] (+)= a b over `words` words, a multiple
 *         of 16; a [32][words], b [words][32]; rows are so many words apart.
 *
 * Scores are turned: keys down, queries across the lanes. Words are two elements of bf16. With `columns` the head's
 * features rounded up to a block, and zeros after the features and after the sequence's end, positions lie
 *     in rows:   [position][columns], the left side of GEMMs over features;
 *     turned:    [32 positions][columns / 2 words][32], the right side of those;
 *     in pairs:  [position / 2][columns words of two positions], the right side of GEMMs over positions;
 *     by column: [column][positions], the left side of those.
 * A GEMM's result does not depend on positions that a query does not see: their factors are zeros, which change no
 * sum, and blocks are left out by their positions alone. */
#ifndef BALLAST_BACKEND_CPU_SIMD_ATTENTION_PAIRS_H
#define BALLAST_BACKEND_CPU_SIMD_ATTENTION_PAIRS_H

#include "backend/cpu/simd/attention_tile.h"

enum { PAIRS_BLOCK = 32, HALVES = PAIRS_BLOCK / LANES };

INLINE int64_t pairs_columns(int64_t head_dim) { return round_up(head_dim, PAIRS_BLOCK); }
/* Words of a row. */
INLINE int64_t pairs_words(const struct attention_head *head) { return pairs_columns(head->head_dim) / 2; }

/* `max` rows from `start`, or fewer at the sequence's end. */
static inline __attribute__((unused)) void pairs_rows(const struct attention_head *head, const void *from,
                                                      int64_t stride, int64_t start, int64_t max, float *to) {
    int64_t rows = positions_from(head, start, max), words = pairs_words(head), dim = head->head_dim;
    for (int64_t row = 0; row < rows; row++) {
        const uint16_t *line = (const uint16_t *)from + (start + row) * stride;
        for (int64_t i = 0; i < dim; i += PAIRS_BLOCK) {
            __mmask32 there = dim - i < PAIRS_BLOCK ? (1u << (dim - i)) - 1 : 0xffffffffu;
            _mm512_storeu_si512(to + row * words + i / 2, _mm512_maskz_loadu_epi16(there, line + i));
        }
    }
    memset(to + rows * words, 0, (size_t)((max - rows) * words) * sizeof *to);
}

/* Words [rows][words], of a stride, become [words][rows], of another. */
INLINE void words_turn(const float *from, int64_t from_row, float *to, int64_t to_row) {
    vf block[LANES];
#pragma GCC unroll 16
    for (int r = 0; r < LANES; r++)
        block[r] = vf_load(from + r * from_row);
    vf_turn(block);
#pragma GCC unroll 16
    for (int r = 0; r < LANES; r++)
        vf_store(to + r * to_row, block[r]);
}

static inline __attribute__((unused)) void pairs_turn(int64_t words, const float *rows, int64_t count, float *turned) {
    for (int64_t row = 0; row < count; row += LANES)
        for (int64_t word = 0; word < words; word += LANES)
            words_turn(rows + row * words + word, words,
                       turned + row / PAIRS_BLOCK * words * PAIRS_BLOCK + word * PAIRS_BLOCK + row % PAIRS_BLOCK,
                       PAIRS_BLOCK);
}

/* Elements of two rows by turns: [32] and [32] become 32 words. */
INLINE void rows_pair(__m512i even, __m512i odd, float *to) {
    const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
    const __m512i second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    __m512i low = _mm512_unpacklo_epi16(even, odd), high = _mm512_unpackhi_epi16(even, odd);
    _mm512_storeu_si512(to, _mm512_permutex2var_epi64(low, first, high));
    _mm512_storeu_si512(to + LANES, _mm512_permutex2var_epi64(low, second, high));
}

static inline __attribute__((unused)) void pairs_of_rows(int64_t words, const float *rows, int64_t count,
                                                         float *pairs) {
    for (int64_t row = 0; row < count; row += 2, rows += 2 * words)
        for (int64_t word = 0; word < words; word += LANES)
            rows_pair(_mm512_loadu_si512(rows + word), _mm512_loadu_si512(rows + words + word),
                      pairs + row * words + 2 * word);
}

static inline __attribute__((unused)) void pairs_by_column(int64_t words, const float *pairs, int64_t count,
                                                           float *to) {
    for (int64_t pair = 0; pair < count / 2; pair += LANES)
        for (int64_t column = 0; column < 2 * words; column += LANES)
            words_turn(pairs + pair * 2 * words + column, 2 * words, to + column * (count / 2) + pair, count / 2);
}

/* What the GEMMs of q and k are multiplied by, once they need no other change: scores are then in units of ln 2. */
INLINE bool scores_change(const struct attention_head *head) { return head->softcap > 0 || head->scale <= 0; }
INLINE float score_factor(const struct attention_head *head) { return scores_change(head) ? 1 : query_factor(head); }

/* Of a block's scores those become minus infinity that queries from q0 on (within a sequence's end `queries` of them)
 * may not see. */
static inline __attribute__((unused)) void block_mask(const struct attention_head *head, int64_t q0, int64_t queries,
                                                      int64_t k0, float *scores) {
    int64_t keys = positions_from(head, k0, PAIRS_BLOCK);
    if (keys == PAIRS_BLOCK && sight_of(head, q0, queries, k0, keys) == SEES_ALL) return;
    for (int at = 0; at < PAIRS_BLOCK; at += LANES) {
        vi query = vi_iota() + (int32_t)(q0 + at), segments = {0};
        if (q0 + at < head->length) segments = segments_at(head, q0 + at);
        for (int64_t key = 0; key < PAIRS_BLOCK; key++) {
            float *score = scores + key * PAIRS_BLOCK + at;
            vi position = (vi){0} + (int32_t)(k0 + key), segment = {0};
            if (key < keys) segment += segment_at(head, k0 + key);
            vf value = key < keys ? vf_load(score) : vf_set(-__builtin_inff());
            vf_store(score, masked(head, query, position, segments, segment, value));
        }
    }
}

/* 2^x within 2 ulp for x up to 127, 0 for minus infinity: 2^r = 1 + r q(r) for r from 0 to 1, q of least error by
 * Remez' exchange. */
INLINE vf power_of_2(vf x) {
    vf r = (vf)_mm512_reduce_ps((__m512)x, _MM_FROUND_TO_NEG_INF);
    vf q = vf_set(0.00186713005f);
    q = vf_fma(q, r, vf_set(0.009017030708f));
    q = vf_fma(q, r, vf_set(0.05579991266f));
    q = vf_fma(q, r, vf_set(0.2401644439f));
    q = vf_fma(q, r, vf_set(0.6931512952f));
    return (vf)_mm512_scalef_ps((__m512)vf_fma(q, r, vf_set(1.0f)), (__m512)x);
}

/* Two vectors in bf16, the first in the lower half. */
INLINE UNIT __m512i bf16_both(vf first, vf second) {
    return (__m512i)_mm512_cvtne2ps_pbh((__m512)second, (__m512)first);
}

/* A unit's table, at the end of its file. */
#define PAIRS_ENTRY(result, name, arguments) .name = pairs_##name,
#define PAIRS_KERNELS                                                                                                  \
    { .queries = PAIRS_QUERIES, .tile = PAIRS_TILE, .rounds = true, ATTENTION_LIST(PAIRS_ENTRY) }

#endif
