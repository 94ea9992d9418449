/* The gradient of attention in tiles (FlashAttention, arXiv 2205.14135, appendix B): the probabilities are made again
 * from the scores and the saved log of their sum. */
#include "backend/cpu/simd/attention_tile.h"
#include "backend/cpu/simd/table.h"

/* A tile of queries on its way over the keys. */
struct backward {
    float *queries, *gradients;               /* q times scale, and dy: tiles */
    float *turned_queries, *turned_gradients; /* the same, turned */
    float *keys, *values;
    float *probabilities, *dscores;
    float *dq;          /* [panel][feature_rows][queries] */
    float *lse, *delta; /* delta: dy . y of each query */
};

int64_t SIMD_NAME(simd_attention_grad_workspace)(int64_t head_dim) {
    return ATTENTION_TILE * (tile_columns(head_dim) * 7 + 2) + 2 * SCORES;
}

/* Dot products of the rows of dy (as a tile) and y. */
INLINE void row_products(bool bf16, const struct attention_head *head, const struct tile_pair *pair,
                         const float *gradients, float *delta) {
    for (int64_t r = 0; r < pair->queries; r++, gradients += pair->columns) {
        vf sum = {0};
        for (int64_t i = 0; i < pair->head_dim; i += LANES)
            sum = vf_fma(vf_load(gradients + i),
                         load(head->y, (pair->q0 + r) * head->y_stride + i, pair->head_dim - i, bf16), sum);
        delta[r] = vf_sum(sum);
    }
}

static struct backward backward_start(const struct attention_head *head, const struct tile_pair *pair,
                                      float *workspace) {
    int64_t tile = ATTENTION_TILE * pair->columns;
    struct backward work = {.queries = workspace, .gradients = workspace + tile};
    work.turned_queries = workspace + 2 * tile;
    work.turned_gradients = workspace + 3 * tile;
    work.keys = workspace + 4 * tile;
    work.values = workspace + 5 * tile;
    work.dq = workspace + 6 * tile;
    work.probabilities = workspace + 7 * tile;
    work.dscores = work.probabilities + SCORES;
    work.lse = work.dscores + SCORES;
    work.delta = work.lse + ATTENTION_TILE;
    tile_copy(head->dtype, pair, pair->queries, head->q, head->q_stride, pair->q0, head->scale, work.queries);
    tile_copy(head->dtype, pair, pair->queries, head->dy, head->dy_stride, pair->q0, 1, work.gradients);
    tile_turn(pair, work.queries, work.turned_queries);
    tile_turn(pair, work.gradients, work.turned_gradients);
    memset(work.dq, 0, (size_t)(pair->feature_rows * ATTENTION_TILE) * sizeof(float));
    memset(work.lse, 0, 2 * ATTENTION_TILE * sizeof(float));
    memcpy(work.lse, head->lse + pair->q0, (size_t)pair->queries * sizeof(float));
    if (head->dtype == DTYPE_BF16)
        row_products(true, head, pair, work.gradients, work.delta);
    else
        row_products(false, head, pair, work.gradients, work.delta);
    return work;
}

/* Scores become probabilities p = exp(s - lse); dp becomes ds = p (dp - delta). */
static void score_gradients(const struct tile_pair *pair, struct backward *work) {
    for (int64_t at = 0; at < ATTENTION_TILE; at += LANES) {
        int64_t offset = at / TILE_COLUMNS * (SCORES / PANELS) + at % TILE_COLUMNS;
        vf lse = vf_load(work->lse + at), delta = vf_load(work->delta + at);
        for (int64_t key = 0; key < pair->keys; key++, offset += TILE_COLUMNS) {
            vf p = vf_exp(vf_load(work->probabilities + offset) - lse);
            vf_store(work->probabilities + offset, p);
            vf_store(work->dscores + offset, p * (vf_load(work->dscores + offset) - delta));
        }
    }
}

/* sums [keys][columns] += scores (keys down, over queries) times tile (queries down). */
static void tile_scatter(const struct tile_pair *pair, const float *scores, const float *tile, float *sums) {
    for (int64_t at = 0; at < pair->queries; at += TILE_COLUMNS) {
        int64_t queries = pair->queries - at < TILE_COLUMNS ? pair->queries - at : TILE_COLUMNS;
        for (int64_t key = 0; key < pair->keys; key += TILE_ROWS)
            for (int64_t i = 0; i < pair->head_dim; i += TILE_COLUMNS)
                tile_multiply(queries, scores + key * TILE_COLUMNS, TILE_COLUMNS, 1, tile + i, pair->columns,
                              sums + key * pair->columns + i, pair->columns, true);
        scores += SCORES / PANELS;
        tile += TILE_COLUMNS * pair->columns;
    }
}

static void backward_pair(const struct attention_head *head, const struct tile_pair *pair, struct backward *work) {
    tile_copy(head->dtype, pair, pair->keys, head->k, head->k_stride, pair->k0, 1, work->keys);
    tile_copy(head->dtype, pair, pair->keys, head->v, head->v_stride, pair->k0, 1, work->values);
    tile_scores(pair, work->keys, work->turned_queries, work->probabilities);
    tile_scores(pair, work->values, work->turned_gradients, work->dscores);
    tile_mask(head, pair, work->probabilities);
    score_gradients(pair, work);
    tile_scatter(pair, work->probabilities, work->gradients, head->dv + pair->k0 * pair->columns);
    tile_scatter(pair, work->dscores, work->queries, head->dk + pair->k0 * pair->columns);
    tile_gather(pair, work->keys, work->dscores, work->dq);
}

static void backward_finish(const struct attention_head *head, const struct tile_pair *pair, struct backward *work) {
    for (int i = 0; i < ATTENTION_TILE; i++)
        work->delta[i] = head->scale;
    tile_turn_back(head->dtype, pair, work->dq, work->delta, work->keys, head->dq, head->dq_stride);
}

void SIMD_NAME(simd_attention_grad)(const struct attention_head *head, float *workspace) {
    int64_t tiles = (head->length + ATTENTION_TILE - 1) / ATTENTION_TILE;
    size_t bytes = (size_t)(tiles * ATTENTION_TILE * tile_columns(head->head_dim)) * sizeof(float);
    memset(head->dk, 0, bytes);
    memset(head->dv, 0, bytes);
    for (int64_t tile = 0; tile < tiles; tile++) {
        struct tile_pair pair = pair_of_queries(head, tile);
        struct backward work = backward_start(head, &pair, workspace);
        for (pair.k0 = first_key(head, &pair); pair.k0 <= pair.q0; pair.k0 += ATTENTION_TILE) {
            pair.keys = tile_extent(head, pair.k0);
            if (segments_meet(head, &pair)) backward_pair(head, &pair, &work);
        }
        backward_finish(head, &pair, &work);
    }
}
