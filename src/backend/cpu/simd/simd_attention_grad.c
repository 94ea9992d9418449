/* The gradient of attention in tiles (FlashAttention, arXiv 2205.14135, appendix B): the probabilities are recomputed
 * from the scores and the saved log of their sum. A tile of keys stays while tiles of queries pass, the last first.
 *
 * Scores are [query][ATTENTION_TILE keys]. Rows and columns are in groups of TILE_ROWS; of a group of queries and one
 * of keys all scores are made, or none. */
#include "backend/cpu/simd/attention_tile.h"
#include "backend/cpu/simd/simd.h"

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

/* A capped score in units of ln 2, and the slope of the cap there. What is masked stays minus infinity. */
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
    if (head->softcap > 0)
        pair_gradients(true, head, &pair, &work);
    else
        pair_gradients(false, head, &pair, &work);
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
