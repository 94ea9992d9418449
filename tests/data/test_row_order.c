/* The order of a source's rows, against one that is written out in full: shuffle buffers and epochs. The number of
 * rows matters only for the last shuffle buffer. */
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "base/random.h"
#include "data/rows.h"
#include "support/unit.h"

enum { ROWS_MAX = 3000, EPOCHS = 3 };

/* Epoch by epoch, in the first shuffle buffer by shuffle buffer, each a permutation under a number of its own. */
static void write_out(uint64_t seed, int64_t rows, int64_t order[EPOCHS * ROWS_MAX]) {
    int64_t at = 0, shuffle_buffer = 64, begin = 0;
    for (uint32_t k = 0; begin < rows; k++, begin += shuffle_buffer, shuffle_buffer *= 2) {
        int64_t count = begin + shuffle_buffer <= rows ? shuffle_buffer : rows - begin;
        for (int64_t i = 0; i < count; i++)
            order[at++] =
                begin + (int64_t)random_permute(seed, k > 0 ? UINT32_MAX - k : 0, (uint64_t)i, (uint64_t)count);
    }
    for (uint32_t epoch = 1; epoch < EPOCHS; epoch++)
        for (int64_t i = 0; i < rows; i++)
            order[at++] = (int64_t)random_permute(seed, epoch, (uint64_t)i, (uint64_t)rows);
}

static const int64_t counts[] = {1, 2, 63, 64, 65, 191, 192, 193, 447, 448, 449, 1000, ROWS_MAX};
enum { COUNTS = sizeof counts / sizeof *counts };

static void the_order_is_that_written_out(void **state) {
    (void)state;
    static int64_t expected[EPOCHS * ROWS_MAX];
    for (int c = 0; c < COUNTS; c++)
        for (uint64_t seed = 1; seed <= 3; seed++) {
            write_out(seed, counts[c], expected);
            for (int64_t n = 0; n < EPOCHS * counts[c]; n++)
                assert_int_equal(row_order_at(seed, n, counts[c]), expected[n]);
        }
}

static void each_epoch_has_each_row_once(void **state) {
    (void)state;
    for (int c = 0; c < COUNTS; c++)
        for (int64_t epoch = 0; epoch < EPOCHS; epoch++) {
            static unsigned char seen[ROWS_MAX];
            memset(seen, 0, sizeof seen);
            for (int64_t i = 0; i < counts[c]; i++)
                assert_int_equal(seen[row_order_at(7, epoch * counts[c] + i, counts[c])]++, 0);
        }
}

/* A reader who does not know all rows yet, but that its shuffle buffer is among them, reads the row that comes of all.
 */
static void rows_to_come_change_nothing(void **state) {
    (void)state;
    for (int64_t n = 0; n < 400; n++) {
        int64_t end = row_order_shuffle_buffer_end(n), row = row_order_at(5, n, end);
        assert_true(end > n && row < end && end <= 2 * n + 64);
        for (int64_t rows = end; rows < end + 500; rows += 7)
            assert_int_equal(row_order_at(5, n, rows), row);
    }
}

static void shuffle_buffers_end_where_numbers_do(void **state) {
    (void)state;
    assert_int_equal(row_order_shuffle_buffer_end(0), 64);
    assert_int_equal(row_order_shuffle_buffer_end(63), 64);
    assert_int_equal(row_order_shuffle_buffer_end(64), 192);
    for (int64_t n = 1; n < INT64_MAX / 2; n *= 2)
        assert_true(row_order_shuffle_buffer_end(n) > n);
    assert_int_equal(row_order_shuffle_buffer_end(INT64_MAX - 1), INT64_MAX);
}

/* Neighbouring shuffle buffers of like permutations would show the same pattern. */
static void shuffle_buffers_are_shuffled_apart(void **state) {
    (void)state;
    int same = 0;
    for (int64_t i = 0; i < 128; i++)
        same += row_order_at(1, 64 + i, 192) - 64 == (int64_t)random_permute(1, 0, (uint64_t)i, 128);
    assert_true(same < 16);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_order_is_that_written_out),      cmocka_unit_test(each_epoch_has_each_row_once),
        cmocka_unit_test(rows_to_come_change_nothing),        cmocka_unit_test(shuffle_buffers_end_where_numbers_do),
        cmocka_unit_test(shuffle_buffers_are_shuffled_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
