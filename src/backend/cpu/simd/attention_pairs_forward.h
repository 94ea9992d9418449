/* Attention by pairs of bf16: the running softmax of simd_attention.c in fp32, of exponentials that are rounded to bf16
 * for their GEMM with the values. Included by the file of a unit (attention_pairs.h). */
#ifndef BALLAST_BACKEND_CPU_SIMD_ATTENTION_PAIRS_FORWARD_H
#define BALLAST_BACKEND_CPU_SIMD_ATTENTION_PAIRS_FORWARD_H

#include <math.h>

#include "backend/cpu/simd/attention_pairs.h"

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

#endif
