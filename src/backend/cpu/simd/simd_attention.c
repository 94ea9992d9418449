/* Attention in tiles with a running softmax (Dao et al., FlashAttention, arXiv 2205.14135): scores of one tile of
 * queries and one tile of keys are held at a time. */
#include <math.h>

#include "backend/cpu/simd/attention_tile.h"
#include "backend/cpu/simd/table.h"

/* A tile of queries on its way over the keys. */
struct running {
    float *turned;          /* queries times scale, turned */
    float *keys, *values;   /* tiles; `keys` holds the queries first */
    float *scores, *output; /* output: [panel][feature_rows][queries] */
    float *largest, *sum;   /* of each query so far */
};

int64_t SIMD_NAME(simd_attention_columns)(int64_t head_dim) { return tile_columns(head_dim); }

int64_t SIMD_NAME(simd_attention_workspace)(int64_t head_dim) {
    int64_t columns = tile_columns(head_dim);
    return ATTENTION_TILE * (columns * 4 + 2) + SCORES + columns;
}

static struct running running_start(const struct attention_head *head, const struct tile_pair *pair, float *workspace) {
    int64_t tile = ATTENTION_TILE * pair->columns;
    struct running running = {.turned = workspace, .keys = workspace + tile, .values = workspace + 2 * tile};
    running.output = workspace + 3 * tile;
    running.scores = workspace + 4 * tile;
    running.largest = running.scores + SCORES;
    running.sum = running.largest + ATTENTION_TILE;
    tile_copy(head->dtype, pair, pair->queries, head->q, head->q_stride, pair->q0, head->scale, running.keys);
    tile_turn(pair, running.keys, running.turned);
    memset(running.output, 0, (size_t)(pair->feature_rows * ATTENTION_TILE) * sizeof(float));
    for (int i = 0; i < ATTENTION_TILE; i++) {
        running.largest[i] = -__FLT_MAX__; /* finite: a query may see none of its first keys */
        running.sum[i] = 0;
    }
    return running;
}

/* The factor by which sums and outputs so far shrink; scores become exponentials. */
INLINE vf softmax_column(int64_t keys, float *column, float *largest, float *sum) {
    vf before = vf_load(largest), now = before, total = {0};
    for (int64_t key = 0; key < keys; key++)
        now = vf_max(vf_load(column + key * TILE_COLUMNS), now);
    for (int64_t key = 0; key < keys; key++) {
        vf value = vf_exp(vf_load(column + key * TILE_COLUMNS) - now);
        vf_store(column + key * TILE_COLUMNS, value);
        total += value;
    }
    vf shrink = vf_exp(before - now);
    vf_store(largest, now);
    vf_store(sum, vf_fma(vf_load(sum), shrink, total));
    return shrink;
}

static void running_softmax(const struct tile_pair *pair, struct running *running) {
    for (int64_t at = 0; at < ATTENTION_TILE; at += LANES) {
        int64_t panel = at / TILE_COLUMNS, lane = at % TILE_COLUMNS;
        vf shrink = softmax_column(pair->keys, running->scores + panel * (SCORES / PANELS) + lane,
                                   running->largest + at, running->sum + at);
        float *output = running->output + panel * pair->feature_rows * TILE_COLUMNS + lane;
        for (int64_t i = 0; i < pair->feature_rows; i++, output += TILE_COLUMNS)
            vf_store(output, vf_load(output) * shrink);
    }
}

static void running_finish(const struct attention_head *head, const struct tile_pair *pair, struct running *running) {
    for (int64_t i = 0; i < pair->queries; i++) {
        head->lse[pair->q0 + i] = running->largest[i] + logf(running->sum[i]);
        running->sum[i] = 1.0f / running->sum[i];
    }
    float *row = running->sum + ATTENTION_TILE;
    tile_turn_back(head->dtype, pair, running->output, running->sum, row, head->y, head->y_stride);
}

void SIMD_NAME(simd_attention)(const struct attention_head *head, int64_t tile, float *workspace) {
    struct tile_pair pair = pair_of_queries(head, tile);
    struct running running = running_start(head, &pair, workspace);
    for (pair.k0 = first_key(head, &pair); pair.k0 <= pair.q0; pair.k0 += ATTENTION_TILE) {
        pair.keys = tile_extent(head, pair.k0);
        if (!segments_meet(head, &pair)) continue;
        tile_copy(head->dtype, &pair, pair.keys, head->k, head->k_stride, pair.k0, 1, running.keys);
        tile_copy(head->dtype, &pair, pair.keys, head->v, head->v_stride, pair.k0, 1, running.values);
        tile_scores(&pair, running.keys, running.turned, running.scores);
        tile_mask(head, &pair, running.scores);
        running_softmax(&pair, &running);
        tile_gather(&pair, running.values, running.scores, running.output);
    }
    running_finish(head, &pair, &running);
}
