#include "data/row_order.h"

#include "base/random.h"
#include "base/status.h"

/* Window k begins at row 64 (2^k - 1). */
static int64_t window_begin(int k) { return ROW_ORDER_FIRST_WINDOW * (((int64_t)1 << k) - 1); }

static int window_of(int64_t ordinal) {
    return 63 - __builtin_clzll((unsigned long long)(ordinal / ROW_ORDER_FIRST_WINDOW + 1));
}

int64_t row_order_window_end(int64_t ordinal) {
    int k = window_of(ordinal);
    return k < 57 ? window_begin(k + 1) : INT64_MAX;
}

/* Windows and epochs count their permutations from opposite ends. UINT32_MAX itself is the mixture's. */
static uint32_t round_of_window(int k) { return k == 0 ? 0 : UINT32_MAX - (uint32_t)k; }

int64_t row_order_at(uint64_t seed, int64_t ordinal, int64_t rows) {
    BUG_IF(ordinal < 0 || rows < 1, "ordinal %lld of %lld rows", (long long)ordinal, (long long)rows);
    int64_t epoch = ordinal / rows;
    if (epoch > 0) return (int64_t)random_permute(seed, (uint32_t)epoch, (uint64_t)(ordinal % rows), (uint64_t)rows);
    int k = window_of(ordinal);
    int64_t begin = window_begin(k), end = row_order_window_end(ordinal);
    if (end > rows) end = rows;
    return begin +
           (int64_t)random_permute(seed, round_of_window(k), (uint64_t)(ordinal - begin), (uint64_t)(end - begin));
}
