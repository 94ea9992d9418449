/* Attention in tiles with a running softmax (Dao et al., FlashAttention, arXiv 2205.14135): scores of one panel of
 * queries and one tile of keys are held at a time. They are held turned, keys down and queries across the lanes, so
 * that the softmax over keys needs no sums across lanes. */
#include <math.h>

#include "backend/cpu/simd/attention_tile.h"
#include "backend/cpu/simd/simd.h"

/* The state of a tile of queries while it passes over the keys. */
struct running {
    float *queries;       /* times scale, turned */
    float *keys, *values; /* tiles */
    float *scores;        /* [key][TILE_COLUMNS queries] */
    float *output;        /* turned */
    float *rows;          /* the queries, and at last the output, as a tile */
    float *largest, *sum; /* of each query so far */
};

int64_t SIMD_NAME(simd_attention_workspace)(int64_t head_dim) {
    return tile_columns(head_dim) * (3 * ATTENTION_QUERIES + 2 * ATTENTION_TILE) + TILE_COLUMNS * ATTENTION_TILE +
           2 * ATTENTION_QUERIES;
}

static struct running running_start(const struct attention_head *head, int64_t q0, float *workspace) {
    int64_t columns = tile_columns(head->head_dim);
    struct running running = {.queries = workspace};
    running.output = running.queries + ATTENTION_QUERIES * columns;
    running.rows = running.output + ATTENTION_QUERIES * columns;
    running.keys = running.rows + ATTENTION_QUERIES * columns;
    running.values = running.keys + ATTENTION_TILE * columns;
    running.scores = running.values + ATTENTION_TILE * columns;
    running.largest = running.scores + ATTENTION_TILE * TILE_COLUMNS;
    running.sum = running.largest + ATTENTION_QUERIES;
    tile_copy(head, head->q, head->q_stride, q0, ATTENTION_QUERIES, query_factor(head), running.rows);
    tile_turn(head->head_dim, running.rows, ATTENTION_QUERIES, running.queries);
    memset(running.output, 0, (size_t)(ATTENTION_QUERIES * columns) * sizeof(float));
    bool sinks = head->sink > -__FLT_MAX__;
    for (int i = 0; i < ATTENTION_QUERIES; i++) {
        /* finite: a query may see none of its first keys */
        running.largest[i] = sinks ? head->sink * LOG2_E : -__FLT_MAX__;
        running.sum[i] = sinks ? 1 : 0;
    }
    return running;
}

static void panel_mask(const struct attention_head *head, int64_t q0, int64_t k0, int64_t keys, float *scores) {
    for (int at = 0; at < TILE_COLUMNS; at += LANES) {
        vi query = vi_iota() + (int32_t)(q0 + at), segments = {0};
        if (q0 + at < head->length) segments = segments_at(head, q0 + at);
        for (int64_t key = 0; key < keys; key++) {
            float *score = scores + key * TILE_COLUMNS + at;
            vi position = (vi){0} + (int32_t)(k0 + key), segment = (vi){0} + segment_at(head, k0 + key);
            vf_store(score, masked(head, query, position, segments, segment, vf_load(score)));
        }
    }
}

static void panel_cap(const struct attention_head *head, int64_t keys, float *scores) {
    for (int64_t i = 0; i < keys * TILE_COLUMNS; i += LANES)
        vf_store(scores + i, vf_tanh(vf_load(scores + i)) * (head->softcap * LOG2_E));
}

/* In four chains, since a maximum waits for the one before. */
INLINE vf column_largest(int64_t keys, const float *column, vf before) {
    enum { CHAINS = 4 };
    vf largest[CHAINS] = {before, before, before, before};
    int64_t key = 0;
    for (; key + CHAINS <= keys; key += CHAINS)
        for (int i = 0; i < CHAINS; i++)
            largest[i] = vf_max(vf_load(column + (key + i) * TILE_COLUMNS), largest[i]);
    for (; key < keys; key++)
        largest[0] = vf_max(vf_load(column + key * TILE_COLUMNS), largest[0]);
    return vf_max(vf_max(largest[0], largest[1]), vf_max(largest[2], largest[3]));
}

/* Scores become powers of 2; returns the factor by which sums and outputs so far shrink. */
INLINE vf softmax_column(int64_t keys, float *column, float *largest, float *sum) {
    vf before = vf_load(largest), now = column_largest(keys, column, before), total = {0};
    for (int64_t key = 0; key < keys; key++) {
        vf value = vf_exp2(vf_load(column + key * TILE_COLUMNS) - now);
        vf_store(column + key * TILE_COLUMNS, value);
        total += value;
    }
    vf shrink = vf_exp2(before - now);
    vf_store(largest, now);
    vf_store(sum, vf_fma(vf_load(sum), shrink, total));
    return shrink;
}

/* If no query has found a larger score, nothing is rescaled. */
INLINE bool all_ones(vf factors) {
    vi differs = factors != 1.0f;
    vf4 folded = vf_fold((vf)(differs & 0x3f800000));
    return folded[0] + folded[1] + folded[2] + folded[3] == 0;
}

/* Features [i, i + rows) of a panel's output += values times scores. */
INLINE void output_add(int rows, int64_t keys, const struct running *running, int64_t columns, int64_t i,
                       float *output) {
    tile_multiply_rows(rows, keys, running->values + i, 1, columns, running->scores, TILE_COLUMNS,
                       output + i * TILE_COLUMNS, TILE_COLUMNS, true);
}

/* One panel of queries, from `at` on in its tile, and a tile's first `keys` keys. */
static void panel_attend(const struct attention_head *head, struct running *running, int64_t at, int64_t keys) {
    int64_t columns = tile_columns(head->head_dim);
    float *output = running->output + at * columns;
    for (int lane = 0; lane < TILE_COLUMNS; lane += LANES) {
        vf shrink =
            softmax_column(keys, running->scores + lane, running->largest + at + lane, running->sum + at + lane);
        if (all_ones(shrink)) continue;
        for (int64_t i = 0; i < head->head_dim; i++)
            vf_store(output + i * TILE_COLUMNS + lane, vf_load(output + i * TILE_COLUMNS + lane) * shrink);
    }
    int64_t i = 0;
    for (; i + TILE_ROWS - 2 < head->head_dim; i += TILE_ROWS)
        output_add(TILE_ROWS, keys, running, columns, i, output);
    if (i + 2 < head->head_dim) output_add(4, keys, running, columns, i, output), i += 4;
    if (i < head->head_dim) output_add(2, keys, running, columns, i, output);
}

static void tile_attend(const struct attention_head *head, int64_t q0, int64_t k0, struct running *running) {
    int64_t dim = head->head_dim, columns = tile_columns(dim), queries = positions_from(head, q0, ATTENTION_QUERIES);
    for (int64_t at = 0; at < queries; at += TILE_COLUMNS) {
        int64_t rows = queries - at < TILE_COLUMNS ? queries - at : TILE_COLUMNS, seen = q0 + at + rows - k0;
        int64_t keys = seen < ATTENTION_TILE ? seen : ATTENTION_TILE;
        enum sight sight = keys > 0 ? sight_of(head, q0 + at, rows, k0, keys) : SEES_NOTHING;
        if (sight == SEES_NOTHING) continue;
        for (int64_t key = 0; key < keys; key += TILE_ROWS) {
            tile_multiply(dim, running->keys + key * columns, columns, 1, running->queries + at * columns, TILE_COLUMNS,
                          running->scores + key * TILE_COLUMNS, TILE_COLUMNS, false);
            int64_t next = k0 + ATTENTION_TILE, begin = (at * ATTENTION_TILE + key * TILE_COLUMNS) / ATTENTION_QUERIES;
            int64_t end = (at * ATTENTION_TILE + (key + TILE_ROWS) * TILE_COLUMNS) / ATTENTION_QUERIES;
            rows_call(head, head->k, head->k_stride, next + begin, next + end);
            rows_call(head, head->v, head->v_stride, next + begin, next + end);
            if (seen <= ATTENTION_TILE) /* the last keys of these queries */
                rows_call(head, head->y, head->y_stride, q0 + at + key * rows / keys,
                          q0 + at + (key + TILE_ROWS) * rows / keys);
        }
        if (head->softcap > 0) panel_cap(head, keys, running->scores);
        if (sight == SEES_PART) panel_mask(head, q0 + at, k0, keys, running->scores);
        panel_attend(head, running, at, keys);
    }
}

static void running_finish(const struct attention_head *head, int64_t q0, struct running *running) {
    int64_t queries = positions_from(head, q0, ATTENTION_QUERIES);
    for (int64_t i = 0; i < queries; i++) {
        head->lse[q0 + i] = running->largest[i] * LN_2 + logf(running->sum[i]);
        running->sum[i] = 1.0f / running->sum[i];
    }
    tile_turn_back(head->head_dim, running->output, ATTENTION_QUERIES, running->sum, running->rows);
    tile_store(head, running->rows, q0, ATTENTION_QUERIES, 1, head->y, head->y_stride);
}

void SIMD_NAME(simd_attention_attend)(const struct attention_head *head, int64_t tile, float *workspace) {
    int64_t q0 = tile * ATTENTION_QUERIES, queries = positions_from(head, q0, ATTENTION_QUERIES);
    struct running running = running_start(head, q0, workspace);
    int64_t first = q0 - visible_window(head) + 1;
    for (int64_t k0 = first > 0 ? first / ATTENTION_TILE * ATTENTION_TILE : 0; k0 < q0 + queries;
         k0 += ATTENTION_TILE) {
        int64_t keys = positions_from(head, k0, ATTENTION_TILE);
        if (sight_of(head, q0, queries, k0, keys) == SEES_NOTHING) continue;
        tile_copy(head, head->k, head->k_stride, k0, ATTENTION_TILE, 1, running.keys);
        tile_copy(head, head->v, head->v_stride, k0, ATTENTION_TILE, 1, running.values);
        tile_attend(head, q0, k0, &running);
    }
    running_finish(head, q0, &running);
}

/* The gradient of attention in tiles (FlashAttention, arXiv 2205.14135, appendix B): the probabilities are recomputed
 * from the scores and the saved log of their sum. A tile of keys stays while tiles of queries pass, the last first.
 *
 * Scores are [query][ATTENTION_TILE keys]. Rows and columns are in groups of TILE_ROWS; of a group of queries and one
 * of keys all scores are made, or none. */

struct backward {
    float *queries, *gradients; /* q times query_factor, and dy: tiles */
    float *keys, *turned_keys, *turned_values;
    float *dk, *dv;
    float *probabilities, *dscores;
};

/* Queries [q0, q0 + queries) and keys [k0, k0 + keys). */
struct tile_pair {
    int64_t q0, queries, k0, keys;
    enum sight sight;
};

enum { SCORES = ATTENTION_TILE * ATTENTION_TILE };

int64_t SIMD_NAME(simd_attention_columns)(int64_t head_dim) { return tile_columns(head_dim); }

int64_t SIMD_NAME(simd_attention_grad_workspace)(int64_t head_dim) {
    return 7 * ATTENTION_TILE * tile_columns(head_dim) + 2 * SCORES;
}

static struct backward backward_of(const struct attention_head *head, float *workspace) {
    int64_t tile = ATTENTION_TILE * tile_columns(head->head_dim);
    struct backward work = {.queries = workspace, .gradients = workspace + tile};
    work.keys = workspace + 2 * tile;
    work.turned_keys = workspace + 3 * tile;
    work.turned_values = workspace + 4 * tile;
    work.dk = workspace + 5 * tile;
    work.dv = workspace + 6 * tile;
    work.probabilities = workspace + 7 * tile;
    work.dscores = work.probabilities + SCORES;
    return work;
}

void SIMD_NAME(simd_attention_grad_prepare)(const struct attention_head *head, int64_t query_tile) {
    int64_t begin = query_tile * ATTENTION_TILE, end = begin + positions_from(head, begin, ATTENTION_TILE);
    int64_t columns = tile_columns(head->head_dim);
    tile_deltas(head, begin, end);
    memset(head->dq_sums + begin * columns, 0, (size_t)(ATTENTION_TILE * columns) * sizeof(float));
}

static struct tile_pair pair_of(const struct attention_head *head, int64_t key_tile, int64_t query_tile) {
    struct tile_pair pair = {.q0 = query_tile * ATTENTION_TILE, .k0 = key_tile * ATTENTION_TILE};
    pair.queries = positions_from(head, pair.q0, ATTENTION_TILE);
    pair.keys = positions_from(head, pair.k0, ATTENTION_TILE);
    pair.sight = sight_of(head, pair.q0, pair.queries, pair.k0, pair.keys);
    return pair;
}

/* The first of the pair's queries that is not before the key; the end of the keys that queries of its group see. */
INLINE int64_t first_query(const struct tile_pair *pair, int64_t key) {
    int64_t first = pair->k0 + key - pair->q0;
    return first > 0 ? first / TILE_ROWS * TILE_ROWS : 0;
}
INLINE int64_t keys_end(const struct tile_pair *pair, int64_t query) {
    int64_t end = pair->q0 + query / TILE_ROWS * TILE_ROWS + TILE_ROWS - pair->k0;
    return end < pair->keys ? end : pair->keys;
}

void SIMD_NAME(simd_attention_grad_start)(const struct attention_head *head, int64_t key_tile, float *workspace) {
    struct backward work = backward_of(head, workspace);
    int64_t dim = head->head_dim, k0 = key_tile * ATTENTION_TILE;
    tile_copy(head, head->v, head->v_stride, k0, ATTENTION_TILE, 1, work.keys);
    tile_turn(dim, work.keys, ATTENTION_TILE, work.turned_values);
    tile_copy(head, head->k, head->k_stride, k0, ATTENTION_TILE, 1, work.keys);
    tile_turn(dim, work.keys, ATTENTION_TILE, work.turned_keys);
    memset(work.dk, 0, (size_t)(2 * ATTENTION_TILE * tile_columns(dim)) * sizeof(float));
}

/* Rows that are needed next, a tile of them from `start` on. */
struct ahead {
    const void *rows;
    int64_t stride, start;
};

/* The tile of queries before this one is next; after the last pair the gradient of the keys (or values) is stored. */
static struct ahead ahead_of(const struct tile_pair *pair, const void *from, int64_t stride, const void *gradient,
                             int64_t gradient_stride) {
    if (pair->q0 == pair->k0) return (struct ahead){gradient, gradient_stride, pair->k0};
    return (struct ahead){from, stride, pair->q0 - ATTENTION_TILE};
}

/* scores = queries (or gradients) times turned keys (or values), where queries are not before keys. */
static void pair_scores(const struct attention_head *head, const struct tile_pair *pair, const float *tile,
                        struct ahead ahead, const float *turned, float *scores) {
    int64_t columns = tile_columns(head->head_dim);
    for (int64_t key = 0; key < pair->keys; key += TILE_COLUMNS)
        for (int64_t query = first_query(pair, key); query < pair->queries; query += TILE_ROWS) {
            tile_multiply(head->head_dim, tile + query * columns, columns, 1, turned + key * columns, TILE_COLUMNS,
                          scores + query * ATTENTION_TILE + key, ATTENTION_TILE, false);
            int64_t begin = ahead.start + key + query * TILE_COLUMNS / ATTENTION_TILE;
            rows_call(head, ahead.rows, ahead.stride, begin, begin + TILE_ROWS * TILE_COLUMNS / ATTENTION_TILE);
        }
}

static void pair_mask(const struct attention_head *head, const struct tile_pair *pair, float *scores) {
    for (int64_t row = 0; row < pair->queries; row++) {
        vi query = (vi){0} + (int32_t)(pair->q0 + row), segment = (vi){0} + segment_at(head, pair->q0 + row);
        for (int64_t key = 0; key < keys_end(pair, row); key += LANES) {
            float *score = scores + row * ATTENTION_TILE + key;
            vi position = vi_iota() + (int32_t)(pair->k0 + key), segments = segments_at(head, pair->k0 + key);
            vf_store(score, masked(head, query, position, segment, segments, vf_load(score)));
        }
    }
}

/* A capped score in units of ln 2, and the slope of the cap there. Masked scores stay minus infinity. */
INLINE vf capped(vf score, float softcap, vf *slope) {
    vf bent = vf_tanh(score);
    *slope = vf_fma(-bent, bent, vf_set(1.0f));
    return vf_select(score == -__builtin_inff(), score, bent * (softcap * LOG2_E));
}

/* Scores become probabilities p = exp(s - lse); dp becomes ds = p (dp - delta), times the slope of a soft cap. */
INLINE void pair_gradients(bool has_cap, const struct attention_head *head, const struct tile_pair *pair,
                           struct backward *work) {
    for (int64_t row = 0; row < pair->queries; row++) {
        float *probabilities = work->probabilities + row * ATTENTION_TILE;
        float *dscores = work->dscores + row * ATTENTION_TILE;
        vf lse = vf_set(head->lse[pair->q0 + row] * LOG2_E), delta = vf_set(head->delta[pair->q0 + row]);
        for (int64_t key = 0; key < keys_end(pair, row); key += LANES) {
            vf score = vf_load(probabilities + key), slope;
            if (has_cap) score = capped(score, head->softcap, &slope);
            vf p = vf_exp2(score - lse), dscore = p * (vf_load(dscores + key) - delta);
            vf_store(probabilities + key, p);
            vf_store(dscores + key, has_cap ? dscore * slope : dscore);
        }
    }
}

/* sums [keys][columns] += scores turned, times tile (queries down). */
static void pair_scatter(const struct attention_head *head, const struct tile_pair *pair, const float *scores,
                         const float *tile, float *sums) {
    int64_t columns = tile_columns(head->head_dim);
    for (int64_t i = 0; i < head->head_dim; i += TILE_COLUMNS)
        for (int64_t key = 0; key < pair->keys; key += TILE_ROWS) {
            int64_t query = first_query(pair, key);
            tile_multiply(pair->queries - query, scores + query * ATTENTION_TILE + key, 1, ATTENTION_TILE,
                          tile + query * columns + i, columns, sums + key * columns + i, columns, true);
        }
}

void SIMD_NAME(simd_attention_grad_pair)(const struct attention_head *head, int64_t key_tile, int64_t query_tile,
                                         float *workspace) {
    struct tile_pair pair = pair_of(head, key_tile, query_tile);
    if (pair.sight == SEES_NOTHING) return;
    struct backward work = backward_of(head, workspace);
    tile_copy(head, head->q, head->q_stride, pair.q0, ATTENTION_TILE, query_factor(head), work.queries);
    tile_copy(head, head->dy, head->dy_stride, pair.q0, ATTENTION_TILE, 1, work.gradients);
    pair_scores(head, &pair, work.queries, ahead_of(&pair, head->q, head->q_stride, head->dk, head->dk_stride),
                work.turned_keys, work.probabilities);
    pair_scores(head, &pair, work.gradients, ahead_of(&pair, head->dy, head->dy_stride, head->dv, head->dv_stride),
                work.turned_values, work.dscores);
    if (pair.sight == SEES_PART) pair_mask(head, &pair, work.probabilities);
    WITH_CONSTANT(capped, head->softcap > 0, pair_gradients(capped, head, &pair, &work));
    pair_scatter(head, &pair, work.probabilities, work.gradients, work.dv);
    pair_scatter(head, &pair, work.dscores, work.queries, work.dk);
}

void SIMD_NAME(simd_attention_grad_queries)(const struct attention_head *head, int64_t key_tile, int64_t query_tile,
                                            float *workspace) {
    struct tile_pair pair = pair_of(head, key_tile, query_tile);
    if (pair.sight == SEES_NOTHING) return;
    struct backward work = backward_of(head, workspace);
    int64_t columns = tile_columns(head->head_dim);
    float *sums = head->dq_sums + pair.q0 * columns;
    for (int64_t i = 0; i < head->head_dim; i += TILE_COLUMNS)
        for (int64_t query = 0; query < pair.queries; query += TILE_ROWS) {
            tile_multiply(keys_end(&pair, query), work.dscores + query * ATTENTION_TILE, ATTENTION_TILE, 1,
                          work.keys + i, columns, sums + query * columns + i, columns, true);
            if (key_tile == query_tile && i == 0)
                rows_call(head, head->dq, head->dq_stride, pair.q0 + query, pair.q0 + query + TILE_ROWS);
        }
    if (key_tile == query_tile) tile_store(head, sums, pair.q0, ATTENTION_TILE, head->scale, head->dq, head->dq_stride);
}

/* The queries in dk's sum were times query_factor. */
void SIMD_NAME(simd_attention_grad_finish)(const struct attention_head *head, int64_t key_tile, float *workspace) {
    struct backward work = backward_of(head, workspace);
    int64_t k0 = key_tile * ATTENTION_TILE;
    float factor = head->softcap > 0 ? head->softcap : LN_2;
    tile_store(head, work.dk, k0, ATTENTION_TILE, factor, head->dk, head->dk_stride);
    tile_store(head, work.dv, k0, ATTENTION_TILE, 1, head->dv, head->dv_stride);
}

/* Attention of a single query: a dot product for each key, a softmax, a weighted sum. For generating text, where tiles
 * of queries would be nearly empty. */

/* Keys that are worked on side by side, so that their chains of additions overlap. */
enum { KEYS = 4 };

INLINE void query_scores(bool bf16, const struct attention_query *query, float *scores) {
    int64_t dim = query->head_dim, stride = query->k_stride;
    for (int64_t key = 0; key < query->keys; key += KEYS) {
        vf sums[KEYS] = {{0}};
        for (int64_t i = 0; i < dim; i += LANES) {
            vf q = load(query->q, i, dim - i, bf16);
            for (int64_t n = 0; n < KEYS; n++) {
                int64_t row = key + n < query->keys ? key + n : key;
                sums[n] = vf_fma(q, load(query->k, row * stride + i, dim - i, bf16), sums[n]);
            }
        }
        for (int64_t n = 0; n < KEYS && key + n < query->keys; n++)
            scores[key + n] = vf_sum(sums[n]) * query->scale;
    }
}

static void query_cap(int64_t keys, float softcap, float *scores) {
    for (int64_t key = 0; key < keys; key += LANES)
        store(scores, key, keys - key, false, vf_tanh(load(scores, key, keys - key, false) / softcap) * softcap);
}

/* Scores become exponentials; returns their sum and the sink's. */
static float query_exponentials(int64_t keys, float sink, float *scores) {
    float largest = sink;
    for (int64_t key = 0; key < keys; key++)
        largest = scores[key] > largest ? scores[key] : largest;
    vf total = {0};
    for (int64_t key = 0; key < keys; key += LANES) {
        vf value = keep(vf_exp(load(scores, key, keys - key, false) - largest), keys - key);
        store(scores, key, keys - key, false, value);
        total += value;
    }
    return vf_sum(total) + expf(sink - largest);
}

static void query_round(int64_t keys, float *weights) {
    for (int64_t key = 0; key < keys; key += LANES)
        store(weights, key, keys - key, false, bf16_widen(bf16_round(load(weights, key, keys - key, false))));
}

INLINE void query_mix(bool bf16, const struct attention_query *query, const float *weights, float factor) {
    int64_t dim = query->head_dim;
    for (int64_t i = 0; i < dim; i += LANES) {
        vf sums[KEYS] = {{0}};
        for (int64_t key = 0; key < query->keys; key += KEYS)
            for (int64_t n = 0; n < KEYS && key + n < query->keys; n++)
                sums[n] = vf_fma(vf_set(weights[key + n]),
                                 load(query->v, (key + n) * query->v_stride + i, dim - i, bf16), sums[n]);
        store(query->y, i, dim - i, bf16, (sums[0] + sums[1] + (sums[2] + sums[3])) * factor);
    }
}

void SIMD_NAME(simd_attention_query)(const struct attention_query *query, float *scores) {
    WITH_CONSTANT(bf16, query->dtype == DTYPE_BF16, query_scores(bf16, query, scores));
    if (query->softcap > 0) query_cap(query->keys, query->softcap, scores);
    float factor = 1.0f / query_exponentials(query->keys, query->sink, scores);
    if (query->rounds) query_round(query->keys, scores);
    WITH_CONSTANT(bf16, query->dtype == DTYPE_BF16, query_mix(bf16, query, scores, factor));
}
