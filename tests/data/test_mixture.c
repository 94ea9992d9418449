/* Mixtures: exact proportions in any interval, no gaps, and no dependence on the order of requests. */
#include "support/unit.h"

#include "base/mem.h"
#include "base/random.h"
#include "data/rows.h"
#include "support/fault_sweep.h"

enum { PARTS_MAX = 6 };

static struct mixture make(const int64_t *weights, size_t count, uint64_t seed) {
    struct mixture mixture;
    if (mixture_create(weights, count, seed, &mixture) != STATUS_OK) fail_msg("%s", status_message());
    return mixture;
}

static void expect_exact(const int64_t *weights, size_t count, uint64_t seed) {
    struct mixture mixture = make(weights, count, seed);
    int64_t sum = 0, next[PARTS_MAX] = {0};
    for (size_t k = 0; k < count; k++)
        sum += weights[k];
    for (int64_t position = 0; position < 4 * sum; position++) {
        struct mixture_draw draw = mixture_at(&mixture, position);
        assert_in_range(draw.part, 0, count - 1);
        assert_int_equal(draw.ordinal, next[draw.part]++);
        for (size_t k = 0; k < count; k++) {
            int64_t error = next[k] * sum - (position + 1) * weights[k];
            assert_true(error < (int64_t)count * sum && -error < (int64_t)count * sum);
        }
    }
    for (size_t k = 0; k < count; k++)
        assert_int_equal(next[k], 4 * weights[k]);
    mixture_free(&mixture);
}

static void proportions_are_exact(void **state) {
    (void)state;
    uint64_t seed = 20250117;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (uint32_t i = 0; i < 200; i++) {
        size_t count = 1 + random_u64(seed, RANDOM_TEST, 0, i) % PARTS_MAX;
        int64_t weights[PARTS_MAX];
        for (uint32_t k = 0; k < PARTS_MAX; k++)
            weights[k] = 1 + (int64_t)(random_u64(seed, RANDOM_TEST, 1 + k, i) % (i % 2 ? 200 : 5));
        expect_exact(weights, count, i);
    }
}

/* Any interval of as many positions as the weights' sum, not only those from 0 on. */
static void intervals_are_exact(void **state) {
    (void)state;
    static const int64_t weights[] = {7, 1, 12};
    enum { SUM = 20 };
    struct mixture mixture = make(weights, 3, 5);
    for (int64_t first = 0; first < 100; first++) {
        int64_t seen[3] = {0};
        for (int64_t i = 0; i < SUM; i++)
            seen[mixture_at(&mixture, first + i).part]++;
        for (int k = 0; k < 3; k++)
            assert_int_equal(seen[k], weights[k]);
    }
    mixture_free(&mixture);
}

static void late_positions_are_as_good(void **state) {
    (void)state;
    static const int64_t weights[] = {700000000000, 1, 299999999999};
    struct mixture mixture = make(weights, 3, 9);
    int64_t position = INT64_MAX - 1000, first = 0;
    struct mixture_draw before = mixture_at(&mixture, position);
    for (int64_t i = 1; i <= 1000; i++) {
        struct mixture_draw draw = mixture_at(&mixture, position + i - 1);
        if (draw.part == 0) first++;
    }
    assert_in_range(first, 699, 701);
    assert_true(before.ordinal > 0);
    mixture_free(&mixture);
}

static void seeds_begin_elsewhere(void **state) {
    (void)state;
    static const int64_t weights[] = {1, 9};
    bool seen[10] = {false};
    int places = 0;
    for (uint64_t seed = 0; seed < 100; seed++) {
        struct mixture mixture = make(weights, 2, seed);
        int64_t at = 0;
        while (mixture_at(&mixture, at).part != 0)
            at++;
        assert_in_range(at, 0, 9);
        places += !seen[at];
        seen[at] = true;
        mixture_free(&mixture);
    }
    assert_true(places >= 8);
}

static void sums_that_overflow_are_refused(void **state) {
    (void)state;
    static const int64_t weights[] = {INT64_MAX / 2, INT64_MAX / 2};
    struct mixture mixture;
    assert_int_equal(mixture_create(weights, 2, 1, &mixture), STATUS_BAD_INPUT);
}

static enum status create_once(void *payload) {
    static const int64_t weights[] = {1, 2};
    struct mixture mixture;
    (void)payload;
    TRY(mixture_create(weights, 2, 1, &mixture));
    mixture_free(&mixture);
    return STATUS_OK;
}

static void faults_are_reported(void **state) {
    (void)state;
    assert_int_equal(fault_sweep(FAULT_ALLOCATE, false, create_once, NULL), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(proportions_are_exact),          cmocka_unit_test(intervals_are_exact),
        cmocka_unit_test(late_positions_are_as_good),     cmocka_unit_test(seeds_begin_elsewhere),
        cmocka_unit_test(sums_that_overflow_are_refused), cmocka_unit_test(faults_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
