/* Attention by pairs of bf16, and its gradient: the bf16 layouts of a tile of positions of one head for their GEMMs,
 * scores in blocks of 32 keys by 32 queries, and masks.
 *
 * A unit of the processor multiplies pairs: dot products of vectors, or tiles (AMX). The file of a unit
 * (attention_dots.c, attention_amx.c) includes this one after it has defined
 *     UNIT: the attribute of functions that use the unit or round to bf16;
 *     PAIRS_TILE, a multiple of 32: keys of a tile, and queries of the gradient's;
 *     PAIRS_QUERIES, a multiple of 32: queries of attention's tiles, which share each copy of keys and values;
 *     unit_begin, unit_end: before and after GEMMs;
 *   - unit_multiply(words, a, a_row, b, b_row, c, c_row, accumulate): c[32][32] (+)= a b over `words` words, a multiple
 *         of 16; a [32][words], b [words][32]; rows are so many words apart.
 *
 * Scores are turned: keys down, queries across the lanes. Words are two elements of bf16. With `columns` the head's
 * features rounded up to a block, and zeros after the features and after the sequence's end, positions lie
 *     in rows:   [position][columns], the left side of GEMMs over features;
 *     turned:    [32 positions][columns / 2 words][32], the right side of those;
 *     in pairs:  [position / 2][columns words of two positions], the right side of GEMMs over positions;
 *     by column: [column][positions], the left side of those.
 * A GEMM's result does not depend on positions that a query does not see: their factors are zeros, which change no sum,
 * and blocks are left out by their positions alone. */
#pragma once

#include <math.h>

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

/* The factor of the GEMMs of q and k if scores need no other change: scores are then in units of ln 2. */
INLINE bool scores_change(const struct attention_head *head) { return head->softcap > 0 || head->scale <= 0; }
INLINE float score_factor(const struct attention_head *head) { return scores_change(head) ? 1 : query_factor(head); }

/* Sets to minus infinity the scores of a block that queries from q0 on (`queries` of them within a sequence's end) may
 * not see. */
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

/* Attention by pairs of bf16: the running softmax of attention.c in fp32, of exponentials that are rounded to bf16
 * for their GEMM with the values. */

/* The state of a tile of queries while it passes over the keys. */
struct running {
    float *queries;       /* turned */
    float *keys, *values; /* a tile: in rows, by column */
    float *scores;        /* [key][32 queries] */
    float *weights;       /* exponentials [key / 2][32 words of two keys] */
    float *output;        /* [32 queries][columns][32] */
    float *rows;          /* rows that are packed, and at last the output's */
    float *largest, *sum; /* of each query so far */
};

static int64_t pairs_workspace(int64_t head_dim) {
    return pairs_columns(head_dim) * (PAIRS_QUERIES / 2 + PAIRS_TILE + 2 * PAIRS_QUERIES) +
           PAIRS_BLOCK * PAIRS_TILE * 3 / 2 + 2 * PAIRS_QUERIES;
}

static struct running running_start(const struct attention_head *head, int64_t q0, float *workspace) {
    int64_t words = pairs_words(head), columns = 2 * words;
    struct running running = {.queries = workspace};
    running.keys = running.queries + PAIRS_QUERIES * words;
    running.values = running.keys + PAIRS_TILE * words;
    running.scores = running.values + PAIRS_TILE * words;
    running.weights = running.scores + PAIRS_TILE * PAIRS_BLOCK;
    running.output = running.weights + PAIRS_TILE / 2 * PAIRS_BLOCK;
    running.rows = running.output + PAIRS_QUERIES * columns;
    running.largest = running.rows + PAIRS_QUERIES * columns;
    running.sum = running.largest + PAIRS_QUERIES;
    pairs_rows(head, head->q, head->q_stride, q0, PAIRS_QUERIES, running.rows);
    pairs_turn(words, running.rows, PAIRS_QUERIES, running.queries);
    memset(running.output, 0, (size_t)(PAIRS_QUERIES * columns) * sizeof(float));
    bool sinks = head->sink > -__FLT_MAX__;
    for (int i = 0; i < PAIRS_QUERIES; i++) {
        /* finite: a query may see none of its first keys */
        running.largest[i] = sinks ? head->sink * LOG2_E : -__FLT_MAX__;
        running.sum[i] = sinks ? 1 : 0;
    }
    return running;
}

static void keys_copy(const struct attention_head *head, int64_t k0, const struct running *running) {
    int64_t words = pairs_words(head);
    float *pairs = running->rows + PAIRS_TILE * words;
    pairs_rows(head, head->v, head->v_stride, k0, PAIRS_TILE, running->rows);
    pairs_of_rows(words, running->rows, PAIRS_TILE, pairs);
    pairs_by_column(words, pairs, PAIRS_TILE, running->values);
    pairs_rows(head, head->k, head->k_stride, k0, PAIRS_TILE, running->keys);
}

/* A block's scores in units of ln 2. */
static void block_change(const struct attention_head *head, float *scores) {
    float factor = query_factor(head);
    for (int i = 0; i < PAIRS_BLOCK * PAIRS_BLOCK; i += LANES) {
        vf score = vf_load(scores + i) * factor;
        vf_store(scores + i, head->softcap > 0 ? vf_tanh(score) * (head->softcap * LOG2_E) : score);
    }
}

/* In four chains, since a maximum waits for the one before. */
INLINE vf column_largest(int64_t keys, const float *column) {
    enum { CHAINS = 4 };
    vf largest[CHAINS];
    for (int i = 0; i < CHAINS; i++)
        largest[i] = vf_load(column + i * PAIRS_BLOCK);
    for (int64_t key = CHAINS; key < keys; key += CHAINS)
        for (int i = 0; i < CHAINS; i++)
            largest[i] = vf_max(vf_load(column + (key + i) * PAIRS_BLOCK), largest[i]);
    return vf_max(vf_max(largest[0], largest[1]), vf_max(largest[2], largest[3]));
}

/* Weights are powers of 2 of the scores; returns the factor by which sums and outputs so far shrink. */
INLINE UNIT vf softmax_column(int64_t keys, float factor, const float *column, float *weights, float *largest,
                              float *sum) {
    enum { CHAINS = 4 };
    const __m512i by_turns = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22,
                                              6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    vf before = vf_load(largest), now = vf_max(column_largest(keys, column) * factor, before), total[CHAINS] = {{0}};
    vf scale = vf_set(factor);
    for (int64_t key = 0; key < keys; key += CHAINS) {
        vf weight[CHAINS];
#pragma GCC unroll 4
        for (int i = 0; i < CHAINS; i++) {
            weight[i] = power_of_2(vf_fma(vf_load(column + (key + i) * PAIRS_BLOCK), scale, -now));
            total[i] += weight[i];
        }
#pragma GCC unroll 2
        for (int i = 0; i < CHAINS; i += 2)
            _mm512_storeu_si512(weights + (key + i) / 2 * PAIRS_BLOCK,
                                _mm512_permutexvar_epi16(by_turns, bf16_both(weight[i], weight[i + 1])));
    }
    vf shrink = power_of_2(before - now);
    vf_store(largest, now);
    vf_store(sum, vf_fma(vf_load(sum), shrink, total[0] + total[1] + (total[2] + total[3])));
    return shrink;
}

/* One panel of queries, from `at` on in its tile, and a tile's first `keys` keys. */
static UNIT void panel_attend(const struct attention_head *head, struct running *running, int64_t at, int64_t keys) {
    int64_t columns = pairs_columns(head->head_dim);
    float *output = running->output + at * columns;
    for (int lane = 0; lane < PAIRS_BLOCK; lane += LANES) {
        vf shrink = softmax_column(keys, score_factor(head), running->scores + lane, running->weights + lane,
                                   running->largest + at + lane, running->sum + at + lane);
        if (!_mm512_cmp_ps_mask((__m512)shrink, _mm512_set1_ps(1), _CMP_NEQ_UQ)) continue;
        for (int64_t i = 0; i < columns; i++)
            vf_store(output + i * PAIRS_BLOCK + lane, vf_load(output + i * PAIRS_BLOCK + lane) * shrink);
    }
    for (int64_t i = 0; i < columns; i += PAIRS_BLOCK)
        unit_multiply(keys / 2, running->values + i * (PAIRS_TILE / 2), PAIRS_TILE / 2, running->weights, PAIRS_BLOCK,
                      output + i * PAIRS_BLOCK, PAIRS_BLOCK, true);
}

/* Rows of the next tile that are asked for with a block, and those of the output with the last keys. */
INLINE void prefetch_next_rows(const struct attention_head *head, int64_t q0, int64_t at, int64_t k0, int64_t key,
                               bool last) {
    enum { SHARE = PAIRS_BLOCK * PAIRS_BLOCK / PAIRS_QUERIES };
    int64_t begin = k0 + PAIRS_TILE + (at * PAIRS_TILE + key * PAIRS_BLOCK) / PAIRS_QUERIES;
    rows_call(head, head->k, head->k_stride, begin, begin + SHARE);
    rows_call(head, head->v, head->v_stride, begin, begin + SHARE);
    if (last && key == 0) rows_call(head, head->y, head->y_stride, q0 + at, q0 + at + PAIRS_BLOCK);
}

static UNIT void tile_attend(const struct attention_head *head, int64_t q0, int64_t k0, struct running *running) {
    int64_t words = pairs_words(head), queries = positions_from(head, q0, PAIRS_QUERIES);
    for (int64_t at = 0; at < queries; at += PAIRS_BLOCK) {
        int64_t rows = queries - at < PAIRS_BLOCK ? queries - at : PAIRS_BLOCK, seen = q0 + at + PAIRS_BLOCK - k0;
        int64_t keys = seen < PAIRS_TILE ? seen : PAIRS_TILE, within = positions_from(head, k0, keys);
        enum sight sight = keys > 0 ? sight_of(head, q0 + at, rows, k0, within) : SEES_NOTHING;
        if (sight == SEES_NOTHING) continue;
        for (int64_t key = 0; key < keys; key += PAIRS_BLOCK) {
            float *scores = running->scores + key * PAIRS_BLOCK;
            unit_multiply(words, running->keys + key * words, words, running->queries + at * words, PAIRS_BLOCK, scores,
                          PAIRS_BLOCK, false);
            if (scores_change(head)) block_change(head, scores);
            if (sight == SEES_PART || within < keys) block_mask(head, q0 + at, rows, k0 + key, scores);
            prefetch_next_rows(head, q0, at, k0, key, seen <= PAIRS_TILE);
        }
        panel_attend(head, running, at, keys);
    }
}

static void running_finish(const struct attention_head *head, int64_t q0, struct running *running) {
    int64_t queries = positions_from(head, q0, PAIRS_QUERIES);
    for (int64_t i = 0; i < queries; i++) {
        head->lse[q0 + i] = running->largest[i] * LN_2 + logf(running->sum[i]);
        running->sum[i] = 1.0f / running->sum[i];
    }
    tile_turn_back(head->head_dim, running->output, PAIRS_QUERIES, running->sum, running->rows);
    tile_store(head, running->rows, q0, PAIRS_QUERIES, 1, head->y, head->y_stride);
}

static UNIT void pairs_attend(const struct attention_head *head, int64_t tile, float *workspace) {
    int64_t q0 = tile * PAIRS_QUERIES, queries = positions_from(head, q0, PAIRS_QUERIES);
    struct running running = running_start(head, q0, workspace);
    int64_t first = q0 - visible_window(head) + 1;
    unit_begin();
    for (int64_t k0 = first > 0 ? first / PAIRS_TILE * PAIRS_TILE : 0; k0 < q0 + queries; k0 += PAIRS_TILE) {
        int64_t keys = positions_from(head, k0, PAIRS_TILE);
        if (sight_of(head, q0, queries, k0, keys) == SEES_NOTHING) continue;
        keys_copy(head, k0, &running);
        tile_attend(head, q0, k0, &running);
    }
    unit_end();
    running_finish(head, q0, &running);
}

/* The gradient of attention by pairs of bf16: that of attention.c, of probabilities and gradients of scores
 * that are made in fp32 and rounded to bf16 for their GEMMs. Blocks of 32 keys by 32 queries are made or left out by
 * their positions alone. */

/* [key][query] and so on, of a pair of tiles, as above. */
struct backward {
    float *keys, *values, *keys_by_column;
    float *queries_turned, *gradients_turned, *query_pairs, *gradient_pairs;
    float *rows;                    /* that are packed; in the end a gradient */
    float *probabilities, *dscores; /* rows of keys [PAIRS_TILE][PAIRS_TILE / 2 words] */
    float *dscore_pairs;            /* [32 queries][PAIRS_TILE / 2][32 words of two keys] */
    float *scores, *products;       /* of a block: q k and dy v */
    float *lse, *delta;             /* of the tile of queries */
    float *dk, *dv;                 /* [key][columns] */
};

/* Queries [q0, q0 + queries) and keys from k0 on. */
struct tile_pair {
    int64_t q0, queries, k0;
    enum sight sight;
};

enum { SCORE_WORDS = PAIRS_TILE * PAIRS_TILE / 2, BLOCK_SCORES = PAIRS_BLOCK * PAIRS_BLOCK };

static int64_t pairs_grad_workspace(int64_t head_dim) {
    int64_t tile = PAIRS_TILE * pairs_columns(head_dim);
    return 7 * tile / 2 + 3 * tile + 3 * SCORE_WORDS + 2 * BLOCK_SCORES + 2 * PAIRS_TILE;
}

static struct backward backward_of(const struct attention_head *head, float *workspace) {
    int64_t tile = PAIRS_TILE * pairs_words(head);
    struct backward work = {.keys = workspace, .values = workspace + tile, .keys_by_column = workspace + 2 * tile};
    work.queries_turned = workspace + 3 * tile;
    work.gradients_turned = workspace + 4 * tile;
    work.query_pairs = workspace + 5 * tile;
    work.gradient_pairs = workspace + 6 * tile;
    work.rows = workspace + 7 * tile;
    work.dk = workspace + 9 * tile;
    work.dv = workspace + 11 * tile;
    work.probabilities = workspace + 13 * tile;
    work.dscores = work.probabilities + SCORE_WORDS;
    work.dscore_pairs = work.dscores + SCORE_WORDS;
    work.scores = work.dscore_pairs + SCORE_WORDS;
    work.products = work.scores + BLOCK_SCORES;
    work.lse = work.products + BLOCK_SCORES;
    work.delta = work.lse + PAIRS_TILE;
    return work;
}

static void pairs_grad_prepare(const struct attention_head *head, int64_t query_tile) {
    int64_t begin = query_tile * PAIRS_TILE, columns = pairs_columns(head->head_dim);
    tile_deltas(head, begin, begin + positions_from(head, begin, PAIRS_TILE));
    memset(head->dq_sums + begin * columns, 0, (size_t)(PAIRS_TILE * columns) * sizeof(float));
}

static void pairs_grad_start(const struct attention_head *head, int64_t key_tile, float *workspace) {
    struct backward work = backward_of(head, workspace);
    int64_t k0 = key_tile * PAIRS_TILE, words = pairs_words(head);
    pairs_rows(head, head->v, head->v_stride, k0, PAIRS_TILE, work.values);
    pairs_rows(head, head->k, head->k_stride, k0, PAIRS_TILE, work.keys);
    pairs_of_rows(words, work.keys, PAIRS_TILE, work.rows);
    pairs_by_column(words, work.rows, PAIRS_TILE, work.keys_by_column);
    memset(work.dk, 0, (size_t)(4 * PAIRS_TILE * words) * sizeof(float));
}

static struct tile_pair pair_of(const struct attention_head *head, int64_t key_tile, int64_t query_tile) {
    struct tile_pair pair = {.q0 = query_tile * PAIRS_TILE, .k0 = key_tile * PAIRS_TILE};
    pair.queries = positions_from(head, pair.q0, PAIRS_TILE);
    int64_t keys = positions_from(head, pair.k0, PAIRS_TILE);
    pair.sight = sight_of(head, pair.q0, pair.queries, pair.k0, keys);
    if (pair.sight == SEES_ALL && keys < PAIRS_TILE) pair.sight = SEES_PART; /* not the zeros after the end */
    return pair;
}

/* The first of the pair's queries whose block is not before that of the key; the end of the keys whose blocks are not
 * after that of the query. */
INLINE int64_t first_query(const struct tile_pair *pair, int64_t key) {
    int64_t first = pair->k0 + key - pair->q0;
    return first > 0 ? first : 0;
}
INLINE int64_t keys_end(const struct tile_pair *pair, int64_t query) {
    int64_t end = pair->q0 + query + PAIRS_BLOCK - pair->k0;
    return end < PAIRS_TILE ? end : PAIRS_TILE;
}

/* A block of rows from `start` on, turned and in pairs. */
static void block_copy(const struct attention_head *head, const void *from, int64_t stride, int64_t start, float *rows,
                       float *turned, float *pairs) {
    int64_t words = pairs_words(head);
    pairs_rows(head, from, stride, start, PAIRS_BLOCK, rows);
    pairs_turn(words, rows, PAIRS_BLOCK, turned);
    pairs_of_rows(words, rows, PAIRS_BLOCK, pairs);
}

/* Queries and their gradients as the GEMMs need them; after the sequence's end probabilities will be 0. */
static void queries_copy(const struct attention_head *head, const struct tile_pair *pair, const struct backward *work) {
    int64_t words = pairs_words(head), count = round_up(pair->queries, PAIRS_BLOCK);
    for (int64_t i = 0; i < count; i += PAIRS_BLOCK) {
        block_copy(head, head->q, head->q_stride, pair->q0 + i, work->rows, work->queries_turned + i * words,
                   work->query_pairs + i * words);
        block_copy(head, head->dy, head->dy_stride, pair->q0 + i, work->rows, work->gradients_turned + i * words,
                   work->gradient_pairs + i * words);
    }
    for (int64_t i = 0; i < count; i++) {
        work->lse[i] = i < pair->queries ? head->lse[pair->q0 + i] * LOG2_E : __builtin_inff();
        work->delta[i] = i < pair->queries ? head->delta[pair->q0 + i] : 0;
    }
}

/* A score in units of ln 2, and the slope of its soft cap. Masked scores stay minus infinity. */
INLINE vf capped(const struct attention_head *head, vf score, vf *slope) {
    vf bent = score * query_factor(head);
    *slope = vf_set(1.0f);
    if (head->softcap > 0) {
        vf capped = vf_tanh(bent);
        *slope = vf_fma(-capped, capped, vf_set(1.0f));
        bent = capped * (head->softcap * LOG2_E);
    }
    return vf_select(score == -__builtin_inff(), score, bent);
}

/* For a block: p = exp(s - lse) and ds = p (dp - delta), times the slope of a soft cap, in bf16. */
INLINE UNIT void block_gradients(bool changes, const struct attention_head *head, const struct backward *work,
                                 int64_t query, int64_t key) {
    vf lse[HALVES], delta[HALVES], factor = vf_set(score_factor(head));
    for (int h = 0; h < HALVES; h++) {
        lse[h] = vf_load(work->lse + query + h * LANES);
        delta[h] = vf_load(work->delta + query + h * LANES);
    }
    float *probabilities = work->probabilities + (key * PAIRS_TILE + query) / 2;
    float *dscores = work->dscores + (key * PAIRS_TILE + query) / 2;
    float *pairs = work->dscore_pairs + query * (PAIRS_TILE / 2) + key / 2 * PAIRS_BLOCK;
    for (int row = 0; row < PAIRS_BLOCK; row += 2, pairs += PAIRS_BLOCK) {
        __m512i both[2];
#pragma GCC unroll 2
        for (int r = 0; r < 2; r++) {
            vf p[HALVES], ds[HALVES];
#pragma GCC unroll 2
            for (int h = 0; h < HALVES; h++) {
                int64_t at = (row + r) * PAIRS_BLOCK + h * LANES;
                vf score = vf_load(work->scores + at), slope;
                if (changes) score = capped(head, score, &slope);
                p[h] = power_of_2(vf_fma(score, factor, -lse[h]));
                ds[h] = p[h] * (vf_load(work->products + at) - delta[h]);
                if (changes) ds[h] *= slope;
            }
            both[r] = bf16_both(ds[0], ds[1]);
            _mm512_storeu_si512(probabilities + (row + r) * (PAIRS_TILE / 2), bf16_both(p[0], p[1]));
            _mm512_storeu_si512(dscores + (row + r) * (PAIRS_TILE / 2), both[r]);
        }
        rows_pair(both[0], both[1], pairs);
    }
}

static UNIT void block_make(const struct attention_head *head, const struct tile_pair *pair,
                            const struct backward *work, int64_t query, int64_t key) {
    int64_t words = pairs_words(head), left = pair->queries - query;
    unit_multiply(words, work->keys + key * words, words, work->queries_turned + query * words, PAIRS_BLOCK,
                  work->scores, PAIRS_BLOCK, false);
    unit_multiply(words, work->values + key * words, words, work->gradients_turned + query * words, PAIRS_BLOCK,
                  work->products, PAIRS_BLOCK, false);
    if (pair->sight == SEES_PART)
        block_mask(head, pair->q0 + query, left < PAIRS_BLOCK ? left : PAIRS_BLOCK, pair->k0 + key, work->scores);
    WITH_CONSTANT(change, scores_change(head), block_gradients(change, head, work, query, key));
}

/* sums [key][columns] += scores (rows of keys) times pairs of queries. */
static UNIT void pair_scatter(const struct attention_head *head, const struct tile_pair *pair, const float *scores,
                              const float *pairs, float *sums) {
    int64_t columns = pairs_columns(head->head_dim), queries = round_up(pair->queries, PAIRS_BLOCK);
    for (int64_t key = 0; key < PAIRS_TILE; key += PAIRS_BLOCK) {
        int64_t query = first_query(pair, key);
        if (query >= queries) break;
        for (int64_t i = 0; i < columns; i += PAIRS_BLOCK)
            unit_multiply((queries - query) / 2, scores + (key * PAIRS_TILE + query) / 2, PAIRS_TILE / 2,
                          pairs + query / 2 * columns + i, columns, sums + key * columns + i, columns, true);
    }
}

/* Rows that are needed next: those of the tile of queries before this one, or, after the last pair, gradients of keys
 * and values that are stored soon. */
static void prefetch_pair_rows(const struct attention_head *head, const struct tile_pair *pair, int64_t query,
                               int64_t key) {
    enum { SHARE = PAIRS_BLOCK * PAIRS_BLOCK / PAIRS_TILE };
    int64_t begin = query + key * PAIRS_BLOCK / PAIRS_TILE, q = pair->q0 - PAIRS_TILE + begin, k = pair->k0 + begin;
    if (pair->q0 == pair->k0) {
        rows_call(head, head->dk, head->dk_stride, k, k + SHARE);
        rows_call(head, head->dv, head->dv_stride, k, k + SHARE);
    } else {
        rows_call(head, head->q, head->q_stride, q, q + SHARE);
        rows_call(head, head->dy, head->dy_stride, q, q + SHARE);
    }
}

static UNIT void pairs_grad_pair(const struct attention_head *head, int64_t key_tile, int64_t query_tile,
                                 float *workspace) {
    struct tile_pair pair = pair_of(head, key_tile, query_tile);
    if (pair.sight == SEES_NOTHING) return;
    struct backward work = backward_of(head, workspace);
    queries_copy(head, &pair, &work);
    unit_begin();
    for (int64_t query = 0; query < pair.queries; query += PAIRS_BLOCK)
        for (int64_t key = 0; key < keys_end(&pair, query); key += PAIRS_BLOCK) {
            block_make(head, &pair, &work, query, key);
            prefetch_pair_rows(head, &pair, query, key);
        }
    pair_scatter(head, &pair, work.probabilities, work.gradient_pairs, work.dv);
    pair_scatter(head, &pair, work.dscores, work.query_pairs, work.dk);
    unit_end();
}

/* A tile of dq_sums is [32 queries][columns][32]. */
static UNIT void pairs_grad_queries(const struct attention_head *head, int64_t key_tile, int64_t query_tile,
                                    float *workspace) {
    struct tile_pair pair = pair_of(head, key_tile, query_tile);
    if (pair.sight == SEES_NOTHING) return;
    struct backward work = backward_of(head, workspace);
    int64_t columns = pairs_columns(head->head_dim);
    float *sums = head->dq_sums + pair.q0 * columns;
    unit_begin();
    for (int64_t query = 0; query < pair.queries; query += PAIRS_BLOCK) {
        if (key_tile == query_tile)
            rows_call(head, head->dq, head->dq_stride, pair.q0 + query, pair.q0 + query + PAIRS_BLOCK);
        for (int64_t i = 0; i < columns; i += PAIRS_BLOCK)
            unit_multiply(keys_end(&pair, query) / 2, work.keys_by_column + i * (PAIRS_TILE / 2), PAIRS_TILE / 2,
                          work.dscore_pairs + query * (PAIRS_TILE / 2), PAIRS_BLOCK,
                          sums + query * columns + i * PAIRS_BLOCK, PAIRS_BLOCK, true);
    }
    unit_end();
    if (key_tile != query_tile) return;
    for (int i = 0; i < PAIRS_TILE; i++)
        work.delta[i] = 1;
    tile_turn_back(head->head_dim, sums, PAIRS_TILE, work.delta, work.rows);
    tile_store(head, work.rows, pair.q0, PAIRS_TILE, head->scale, head->dq, head->dq_stride);
}

static void pairs_grad_finish(const struct attention_head *head, int64_t key_tile, float *workspace) {
    struct backward work = backward_of(head, workspace);
    int64_t k0 = key_tile * PAIRS_TILE;
    tile_store(head, work.dk, k0, PAIRS_TILE, head->scale, head->dk, head->dk_stride);
    tile_store(head, work.dv, k0, PAIRS_TILE, 1, head->dv, head->dv_stride);
}
