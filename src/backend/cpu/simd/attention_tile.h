/* Shared by attention and its gradient: tiles of positions of one head in fp32, and the range that a query sees.
 *
 * A tile is [positions][columns], with zeros after the head's features and after the sequence's end. Turned it is
 * [panel][columns][TILE_COLUMNS positions], the right side of a tile_multiply over features. */
#pragma once

#include "backend/cpu/simd/kernels.h"
#include "backend/cpu/simd/simd.h"

/* The inner product of all tiles: a tile of c stays in registers for all of k. */

/* As many accumulators as the registers hold besides two vectors of b and one element of a. */
#define TILE_ROWS_avx512 8
#define TILE_ROWS_avx2 6
#define TILE_ROWS_generic 8
enum { TILE_ROWS = SIMD_JOIN(TILE_ROWS, CPU_ISA), TILE_VECTORS = 2, TILE_COLUMNS = TILE_VECTORS * LANES };

INLINE int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

/* c[rows][TILE_COLUMNS] (+)= a[rows][k] b[k][TILE_COLUMNS], c_row elements between rows of c, b_k between those of b,
 * (a_row, a_k) between elements of a. `rows` is a constant up to TILE_ROWS. */
INLINE void tile_multiply_rows(int rows, int64_t k, const float *a, int64_t a_row, int64_t a_k, const float *b,
                               int64_t b_k, float *c, int64_t c_row, bool accumulate) {
    vf sum[TILE_ROWS][TILE_VECTORS];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < TILE_VECTORS; j++)
            sum[i][j] = accumulate ? vf_load(c + i * c_row + j * LANES) : (vf){0};
#pragma GCC unroll 4
    for (int64_t p = 0; p < k; p++) {
        vf right[TILE_VECTORS];
        for (int j = 0; j < TILE_VECTORS; j++)
            right[j] = vf_load(b + j * LANES);
        for (int i = 0; i < rows; i++) {
            vf left = vf_set(a[i * a_row]);
            for (int j = 0; j < TILE_VECTORS; j++)
                sum[i][j] = vf_fma(left, right[j], sum[i][j]);
        }
        a += a_k;
        b += b_k;
    }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < TILE_VECTORS; j++)
            vf_store(c + i * c_row + j * LANES, sum[i][j]);
}

INLINE void tile_multiply(int64_t k, const float *a, int64_t a_row, int64_t a_k, const float *b, int64_t b_k, float *c,
                          int64_t c_row, bool accumulate) {
    tile_multiply_rows(TILE_ROWS, k, a, a_row, a_k, b, b_k, c, c_row, accumulate);
}

/* Keys of a tile, and queries of the gradient's: a multiple of TILE_ROWS and of TILE_COLUMNS. */
#define ATTENTION_TILE_avx512 64
#define ATTENTION_TILE_avx2 48
#define ATTENTION_TILE_generic 64
enum {
    ATTENTION_TILE = SIMD_JOIN(ATTENTION_TILE, CPU_ISA),
    ATTENTION_QUERIES = 4 * ATTENTION_TILE, /* of attention's tiles: each copy of keys and values serves them all */
};

/* Scores are in units of ln 2: exponentials are then powers of 2. */
#define LOG2_E 1.44269504089f
#define LN_2 0.69314718056f

/* Row stride of tiles. */
INLINE int64_t tile_columns(int64_t head_dim) { return round_up(head_dim, TILE_COLUMNS); }

INLINE int64_t positions_from(const struct attention_head *head, int64_t start, int64_t max) {
    return head->length - start < max ? head->length - start : max;
}

enum sight { SEES_NOTHING, SEES_PART, SEES_ALL };

struct segment_range {
    int32_t min, max;
};

INLINE struct segment_range segment_range(const int32_t *segments, int64_t count) {
    struct segment_range range = {segments[0], segments[0]};
    for (int64_t i = 1; i < count; i++) {
        range.min = segments[i] < range.min ? segments[i] : range.min;
        range.max = segments[i] > range.max ? segments[i] : range.max;
    }
    return range;
}

/* The factor of queries: scores are then in units of ln 2 or, until they are capped, of the soft cap. */
INLINE float query_factor(const struct attention_head *head) {
    return head->softcap > 0 ? head->scale / head->softcap : head->scale * LOG2_E;
}

INLINE int64_t visible_window(const struct attention_head *head) {
    return head->window > 0 ? head->window : head->length;
}

/* How queries [q0, q0 + queries) see keys [k0, k0 + keys). PART may turn out to be less. */
static inline __attribute__((unused)) enum sight sight_of(const struct attention_head *head, int64_t q0,
                                                          int64_t queries, int64_t k0, int64_t keys) {
    int64_t q_last = q0 + queries - 1, k_last = k0 + keys - 1, window = visible_window(head);
    if (k0 > q_last || k_last <= q0 - window) return SEES_NOTHING;
    enum sight sight = k_last <= q0 && k0 > q_last - window ? SEES_ALL : SEES_PART;
    if (!head->segments) return sight;
    struct segment_range q = segment_range(head->segments + q0, queries);
    struct segment_range k = segment_range(head->segments + k0, keys);
    if (q.min > k.max || k.min > q.max) return SEES_NOTHING;
    return q.min == q.max && k.min == k.max ? sight : SEES_PART;
}

/* Scores become minus infinity where a query may not see a key: later positions, those before the window, other
 * segments. One side may be the same position in all lanes. */
INLINE vf masked(const struct attention_head *head, vi query, vi key, vi query_segment, vi key_segment, vf score) {
    vi sees = (query >= key) & (query - (int32_t)visible_window(head) < key) & (query_segment == key_segment);
    return vf_select(sees, score, vf_set(-__builtin_inff()));
}

/* The segments of LANES positions from `start`, and of one position; all alike without segments. */
INLINE vi segments_at(const struct attention_head *head, int64_t start) {
    vi segments = {0};
    if (!head->segments) return segments;
    memcpy(&segments, head->segments + start, (size_t)positions_from(head, start, LANES) * sizeof *head->segments);
    return segments;
}
INLINE int32_t segment_at(const struct attention_head *head, int64_t position) {
    return head->segments ? head->segments[position] : 0;
}

/* Prefetches rows [begin, end) of the next tile, or of a result that is stored soon: rows lie in different pages, which
 * hardware prefetchers do not cross. Called for a few rows at a time, between GEMMs, since a core has no more than a
 * dozen lines under way. */
INLINE void rows_call(const struct attention_head *head, const void *from, int64_t stride, int64_t begin, int64_t end) {
    int64_t size = head->dtype == DTYPE_BF16 ? 2 : 4;
    for (int64_t row = begin; row < end; row++)
        for (int64_t at = 0; at < head->head_dim * size; at += 64)
            __builtin_prefetch((const char *)from + row * stride * size + at);
}

INLINE void copy_rows(bool bf16, int64_t head_dim, const void *from, int64_t stride, int64_t rows, float factor,
                      float *tile) {
    int64_t columns = tile_columns(head_dim);
    for (int64_t row = 0; row < rows; row++, tile += columns) {
        for (int64_t i = 0; i < head_dim; i += LANES)
            vf_store(tile + i, load(from, row * stride + i, head_dim - i, bf16) * factor);
        for (int64_t i = round_up(head_dim, LANES); i < columns; i += LANES)
            vf_store(tile + i, (vf){0});
    }
}

/* `max` rows from `start`, or fewer at the sequence's end, times factor. */
static inline __attribute__((unused)) void tile_copy(const struct attention_head *head, const void *from,
                                                     int64_t stride, int64_t start, int64_t max, float factor,
                                                     float *tile) {
    int64_t rows = positions_from(head, start, max), columns = tile_columns(head->head_dim);
    WITH_CONSTANT(bf16, head->dtype == DTYPE_BF16,
                  copy_rows(bf16, head->head_dim, (const char *)from + start * stride * (bf16 ? 2 : 4), stride, rows,
                            factor, tile));
    memset(tile + rows * columns, 0, (size_t)((max - rows) * columns) * sizeof *tile);
}

INLINE void store_rows(bool bf16, int64_t head_dim, const float *tile, int64_t rows, float factor, void *to,
                       int64_t stride) {
    int64_t columns = tile_columns(head_dim);
    for (int64_t row = 0; row < rows; row++, tile += columns)
        for (int64_t i = 0; i < head_dim; i += LANES)
            store(to, row * stride + i, head_dim - i, bf16, vf_load(tile + i) * factor);
}

/* The tile's rows within the sequence, times factor, to rows from `start`. */
static inline __attribute__((unused)) void tile_store(const struct attention_head *head, const float *tile,
                                                      int64_t start, int64_t max, float factor, void *to,
                                                      int64_t stride) {
    int64_t rows = positions_from(head, start, max);
    WITH_CONSTANT(
        bf16, head->dtype == DTYPE_BF16,
        store_rows(bf16, head->head_dim, tile, rows, factor, (char *)to + start * stride * (bf16 ? 2 : 4), stride));
}

static inline __attribute__((unused)) void tile_turn(int64_t head_dim, const float *tile, int64_t rows, float *turned) {
    int64_t columns = tile_columns(head_dim);
    for (int64_t row = 0; row < rows; row += LANES)
        for (int64_t i = 0; i < head_dim; i += LANES) {
            vf block[LANES];
            for (int r = 0; r < LANES; r++)
                block[r] = vf_load(tile + (row + r) * columns + i);
            vf_turn(block);
            float *to = turned + row / TILE_COLUMNS * columns * TILE_COLUMNS + i * TILE_COLUMNS + row % TILE_COLUMNS;
            for (int r = 0; r < LANES; r++)
                vf_store(to + r * TILE_COLUMNS, block[r]);
        }
}

/* And back; position r times factors[r]. */
static inline __attribute__((unused)) void tile_turn_back(int64_t head_dim, const float *turned, int64_t rows,
                                                          const float *factors, float *tile) {
    int64_t columns = tile_columns(head_dim);
    for (int64_t row = 0; row < rows; row += LANES)
        for (int64_t i = 0; i < head_dim; i += LANES) {
            const float *from =
                turned + row / TILE_COLUMNS * columns * TILE_COLUMNS + i * TILE_COLUMNS + row % TILE_COLUMNS;
            vf block[LANES], factor = vf_load(factors + row);
            for (int r = 0; r < LANES; r++)
                block[r] = vf_load(from + r * TILE_COLUMNS) * factor;
            vf_turn(block);
            for (int r = 0; r < LANES; r++)
                vf_store(tile + (row + r) * columns + i, block[r]);
        }
}

/* Rows that are asked for before they are read: with the sums between them, a core alone asks for too few. */
enum { ROWS_AHEAD = 16 };

/* delta = dy . y of queries [begin, end). */
INLINE void delta_rows(bool bf16, const struct attention_head *head, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row++) {
        vf sum = {0};
        rows_call(head, head->dy, head->dy_stride, row + ROWS_AHEAD, row + ROWS_AHEAD + 1);
        rows_call(head, head->y, head->y_stride, row + ROWS_AHEAD, row + ROWS_AHEAD + 1);
        for (int64_t i = 0; i < head->head_dim; i += LANES)
            sum = vf_fma(load(head->dy, row * head->dy_stride + i, head->head_dim - i, bf16),
                         load(head->y, row * head->y_stride + i, head->head_dim - i, bf16), sum);
        head->delta[row] = vf_sum(sum);
    }
}

static inline __attribute__((unused)) void tile_deltas(const struct attention_head *head, int64_t begin, int64_t end) {
    WITH_CONSTANT(bf16, head->dtype == DTYPE_BF16, delta_rows(bf16, head, begin, end));
}
