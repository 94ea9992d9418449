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

/* Where no query has found a larger score, nothing shrinks. */
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
