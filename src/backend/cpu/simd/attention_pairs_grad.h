/* The gradient of attention by pairs of bf16: that of simd_attention_grad.c, of probabilities and gradients of scores
 * that are made in fp32 and rounded to bf16 for their GEMMs. Blocks of 32 keys by 32 queries are made or left out by
 * their positions alone. Included by the file of a unit (attention_pairs.h). */
#ifndef BALLAST_BACKEND_CPU_SIMD_ATTENTION_PAIRS_GRAD_H
#define BALLAST_BACKEND_CPU_SIMD_ATTENTION_PAIRS_GRAD_H

#include "backend/cpu/simd/attention_pairs.h"

/* [key][query] and so on, of a pair of tiles; see attention_pairs.h. */
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

/* A score in units of ln 2, and the slope of its soft cap. What is masked stays minus infinity. */
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

/* Of a block: p = exp(s - lse) and ds = p (dp - delta), times the slope of a soft cap, in bf16. */
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
    if (scores_change(head))
        block_gradients(true, head, work, query, key);
    else
        block_gradients(false, head, work, query, key);
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

#endif
