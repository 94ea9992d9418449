/* What attention and its gradient share: tiles of ATTENTION_TILE positions.
 *
 * Scores are held turned, keys down and queries across the lanes, so that the softmax over keys needs no sums across
 * lanes: [panel][key][TILE_COLUMNS queries]. Rows of q, k, v and dy become fp32 tiles [ATTENTION_TILE][columns], with
 * zeros after the head's features and after the sequence's end. */
#ifndef BALLAST_BACKEND_CPU_SIMD_ATTENTION_TILE_H
#define BALLAST_BACKEND_CPU_SIMD_ATTENTION_TILE_H

#include "backend/cpu/simd/kernels.h"
#include "backend/cpu/simd/tile.h"

#define ATTENTION_TILE_avx512 64
#define ATTENTION_TILE_avx2 48
#define ATTENTION_TILE_generic 64
enum {
    ATTENTION_TILE = SIMD_JOIN(ATTENTION_TILE, CPU_ISA),
    PANELS = ATTENTION_TILE / TILE_COLUMNS,
    SCORES = ATTENTION_TILE * ATTENTION_TILE,
};

/* One head's sizes, and the part of it that is worked on: queries [q0, q0 + queries), keys [k0, k0 + keys). */
struct tile_pair {
    int64_t head_dim, columns, feature_rows;
    int64_t q0, queries, k0, keys;
};

/* Row stride of fp32 tiles: vectors of features, and rows of a tile_multiply, fit into it. */
INLINE int64_t tile_columns(int64_t head_dim) { return round_up(round_up(head_dim, TILE_ROWS), TILE_COLUMNS); }

INLINE int64_t tile_extent(const struct attention_head *head, int64_t start) {
    return head->length - start < ATTENTION_TILE ? head->length - start : ATTENTION_TILE;
}

INLINE struct tile_pair pair_of_queries(const struct attention_head *head, int64_t tile) {
    return (struct tile_pair){
        .head_dim = head->head_dim,
        .columns = tile_columns(head->head_dim),
        .feature_rows = round_up(head->head_dim, TILE_ROWS),
        .q0 = tile * ATTENTION_TILE,
        .queries = tile_extent(head, tile * ATTENTION_TILE),
    };
}

INLINE int64_t visible_window(const struct attention_head *head) {
    return head->window > 0 ? head->window : head->length;
}

/* The first tile of keys that the pair's queries see; the last is the one at q0. */
INLINE int64_t first_key(const struct attention_head *head, const struct tile_pair *pair) {
    int64_t first = pair->q0 - visible_window(head) + 1;
    return first > 0 ? first / ATTENTION_TILE * ATTENTION_TILE : 0;
}

INLINE void segment_range(const int32_t *segments, int64_t count, int32_t *least, int32_t *most) {
    *least = *most = segments[0];
    for (int64_t i = 1; i < count; i++) {
        *least = segments[i] < *least ? segments[i] : *least;
        *most = segments[i] > *most ? segments[i] : *most;
    }
}

/* False when no query and key of the pair can have equal segments. */
INLINE bool segments_meet(const struct attention_head *head, const struct tile_pair *pair) {
    if (!head->segments) return true;
    int32_t q_least, q_most, k_least, k_most;
    segment_range(head->segments + pair->q0, pair->queries, &q_least, &q_most);
    segment_range(head->segments + pair->k0, pair->keys, &k_least, &k_most);
    return q_least <= k_most && k_least <= q_most;
}

/* Rows of any dtype, times factor, as an fp32 tile. */
INLINE void copy_rows(bool bf16, const struct tile_pair *pair, int64_t count, const void *from, int64_t stride,
                      int64_t start, float factor, float *tile) {
    for (int64_t row = 0; row < ATTENTION_TILE; row++, tile += pair->columns) {
        int64_t features = row < count ? pair->head_dim : 0;
        for (int64_t i = 0; i < pair->columns; i += LANES) {
            int64_t left = features - i > 0 ? features - i : 0;
            vf_store(tile + i, left > 0 ? load(from, (start + row) * stride + i, left, bf16) * factor : (vf){0});
        }
    }
}

static inline __attribute__((unused)) void tile_copy(enum dtype dtype, const struct tile_pair *pair, int64_t count,
                                                     const void *from, int64_t stride, int64_t start, float factor,
                                                     float *tile) {
    if (dtype == DTYPE_BF16)
        copy_rows(true, pair, count, from, stride, start, factor, tile);
    else
        copy_rows(false, pair, count, from, stride, start, factor, tile);
}

/* A tile turned into [panel][feature][TILE_COLUMNS positions]. */
static inline __attribute__((unused)) void tile_turn(const struct tile_pair *pair, const float *tile, float *turned) {
    for (int panel = 0; panel < PANELS; panel++)
        for (int64_t i = 0; i < pair->head_dim; i += LANES)
            for (int64_t row = 0; row < TILE_COLUMNS; row++) {
                vf piece = vf_load(tile + (panel * TILE_COLUMNS + row) * pair->columns + i);
                float *to = turned + (panel * pair->head_dim + i) * TILE_COLUMNS + row;
                for (int lane = 0; lane < LANES && i + lane < pair->head_dim; lane++)
                    to[lane * TILE_COLUMNS] = piece[lane];
            }
}

/* Turns [panel][feature_rows][TILE_COLUMNS positions] back into rows of `dtype`, row r times factors[r]. `row` holds
 * `columns` floats. */
static inline __attribute__((unused)) void tile_turn_back(enum dtype dtype, const struct tile_pair *pair,
                                                          const float *turned, const float *factors, float *row,
                                                          void *to, int64_t stride) {
    for (int64_t r = 0; r < pair->queries; r++) {
        const float *from = turned + r / TILE_COLUMNS * pair->feature_rows * TILE_COLUMNS + r % TILE_COLUMNS;
        for (int64_t i = 0; i < pair->head_dim; i++)
            row[i] = from[i * TILE_COLUMNS] * factors[r];
        for (int64_t i = 0; i < pair->head_dim; i += LANES)
            store(to, (pair->q0 + r) * stride + i, pair->head_dim - i, dtype == DTYPE_BF16,
                  load(row, i, pair->head_dim - i, false));
    }
}

/* scores = tile (keys down) times turned (queries across): over the features. */
static inline __attribute__((unused)) void tile_scores(const struct tile_pair *pair, const float *tile,
                                                       const float *turned, float *scores) {
    for (int panel = 0; panel < PANELS; panel++, turned += pair->head_dim * TILE_COLUMNS, scores += SCORES / PANELS)
        for (int64_t key = 0; key < pair->keys; key += TILE_ROWS)
            tile_multiply(pair->head_dim, tile + key * pair->columns, pair->columns, 1, turned, TILE_COLUMNS,
                          scores + key * TILE_COLUMNS, TILE_COLUMNS, false);
}

/* turned [panel][feature_rows][queries] += tile^t (features down, over keys) times scores. */
static inline __attribute__((unused)) void tile_gather(const struct tile_pair *pair, const float *tile,
                                                       const float *scores, float *turned) {
    for (int panel = 0; panel < PANELS; panel++, scores += SCORES / PANELS)
        for (int64_t i = 0; i < pair->feature_rows; i += TILE_ROWS, turned += TILE_ROWS * TILE_COLUMNS)
            tile_multiply(pair->keys, tile + i, 1, pair->columns, scores, TILE_COLUMNS, turned, TILE_COLUMNS, true);
}

/* Minus infinity where a query may not see a key: later positions, those before the window, other segments. */
static inline __attribute__((unused)) void tile_mask(const struct attention_head *head, const struct tile_pair *pair,
                                                     float *scores) {
    int64_t window = visible_window(head), last_query = pair->q0 + pair->queries - 1;
    if (!head->segments && pair->k0 + pair->keys - 1 <= pair->q0 && pair->k0 > last_query - window) return;
    int32_t segments[ATTENTION_TILE] = {0};
    if (head->segments) memcpy(segments, head->segments + pair->q0, (size_t)pair->queries * sizeof *segments);
    for (int64_t at = 0; at < ATTENTION_TILE; at += LANES) {
        float *column = scores + at / TILE_COLUMNS * (SCORES / PANELS) + at % TILE_COLUMNS;
        vi query = vi_iota() + (int32_t)(pair->q0 + at), segment;
        memcpy(&segment, segments + at, sizeof segment);
        for (int64_t key = 0; key < pair->keys; key++, column += TILE_COLUMNS) {
            int32_t position = (int32_t)(pair->k0 + key);
            vi sees = (query >= position) & (query - (int32_t)window < position);
            if (head->segments) sees &= segment == head->segments[position];
            vf_store(column, vf_select(sees, vf_load(column), vf_set(-__builtin_inff())));
        }
    }
}

#endif
