#include "data/row_order.h"

#include "base/random.h"
#include "base/status.h"

/* Shuffle buffer k begins at row 64 (2^k - 1). */
static int64_t shuffle_buffer_begin(int k) { return ROW_ORDER_FIRST_SHUFFLE_BUFFER * (((int64_t)1 << k) - 1); }

static int shuffle_buffer_of(int64_t ordinal) {
    return 63 - __builtin_clzll((unsigned long long)(ordinal / ROW_ORDER_FIRST_SHUFFLE_BUFFER + 1));
}

int64_t row_order_shuffle_buffer_end(int64_t ordinal) {
    int k = shuffle_buffer_of(ordinal);
    return k < 57 ? shuffle_buffer_begin(k + 1) : INT64_MAX;
}

/* Shuffle buffers and epochs count their permutations from opposite ends. UINT32_MAX itself is the mixture's. */
static uint32_t round_of_shuffle_buffer(int k) { return k == 0 ? 0 : UINT32_MAX - (uint32_t)k; }

int64_t row_order_at(uint64_t seed, int64_t ordinal, int64_t rows) {
    BUG_IF(ordinal < 0 || rows < 1, "ordinal %lld of %lld rows", (long long)ordinal, (long long)rows);
    int64_t epoch = ordinal / rows;
    if (epoch > 0) return (int64_t)random_permute(seed, (uint32_t)epoch, (uint64_t)(ordinal % rows), (uint64_t)rows);
    int k = shuffle_buffer_of(ordinal);
    int64_t begin = shuffle_buffer_begin(k), end = row_order_shuffle_buffer_end(ordinal);
    if (end > rows) end = rows;
    return begin + (int64_t)random_permute(seed, round_of_shuffle_buffer(k), (uint64_t)(ordinal - begin),
                                           (uint64_t)(end - begin));
}
