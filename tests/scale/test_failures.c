/* Failing nodes: the expected time against random failures, and the best checkpoint interval against others. */
#include <math.h>

#include "search/scale/forecast.h"
#include "support/unit.h"

static const struct failures usual = {.node_mtbf_s = 6000 * 3600.0, .checkpoint_s = 60, .restart_s = 600};

static uint64_t next(uint64_t *seed) {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    return *seed ^= *seed << 17;
}

static double drawn_s(uint64_t *seed, double mean) { return -mean * log(((double)(next(seed) >> 11) + 0.5) * 0x1p-53); }

/* Seconds until so many intervals are done and saved. A failure may come during a restart too. */
static double played_s(const struct failures *failures, int64_t nodes, double interval_s, int intervals) {
    uint64_t seed = 20261122;
    double mean = failures->node_mtbf_s / (double)nodes, passed = 0, left = drawn_s(&seed, mean);
    bool restarting = false;
    for (int done = 0; done < intervals;) {
        double wanted = restarting ? failures->restart_s : interval_s + failures->checkpoint_s;
        if (left < wanted) {
            passed += left;
            left = drawn_s(&seed, mean);
            restarting = true;
            continue;
        }
        passed += wanted;
        left -= wanted;
        done += !restarting;
        restarting = false;
    }
    return passed;
}

static void the_useful_part_is_that_of_failures_drawn_at_random(void **state) {
    (void)state;
    const int64_t nodes[] = {16, 512, 8192};
    for (int i = 0; i < 3; i++) {
        double interval = failures_best_interval_s(&usual, nodes[i]);
        const int intervals = 200000;
        double drawn = intervals * interval / played_s(&usual, nodes[i], interval, intervals);
        assert_true(fabs(failures_useful_part(&usual, nodes[i], interval) - drawn) < 0.01 * drawn);
    }
}

static void no_interval_beats_the_best(void **state) {
    (void)state;
    for (int64_t nodes = 1; nodes <= 1 << 20; nodes *= 4) {
        double best = failures_best_interval_s(&usual, nodes);
        double useful = failures_useful_part(&usual, nodes, best);
        assert_true(useful >= 0 && useful <= 1);
        for (double factor = 0.5; factor < 2; factor *= 1.05)
            assert_true(failures_useful_part(&usual, nodes, best * factor) <= useful * (1 + 1e-9));
    }
}

static void more_nodes_leave_less_useful_time(void **state) {
    (void)state;
    double before = 1;
    for (int64_t nodes = 1; nodes <= 4096; nodes *= 2) {
        double useful = failures_useful_part(&usual, nodes, failures_best_interval_s(&usual, nodes));
        assert_true(useful < before);
        before = useful;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_useful_part_is_that_of_failures_drawn_at_random),
        cmocka_unit_test(no_interval_beats_the_best),
        cmocka_unit_test(more_nodes_leave_less_useful_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
