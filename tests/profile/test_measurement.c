/* Statistics of samples, and the detection of unreliable measurements. */
#include "base/clock.h"
#include "profile/measurement.h"
#include "support/unit.h"

static void expect(struct measurement measurement, double seconds, double spread) {
    assert_true(measurement.seconds == seconds);
    assert_true(measurement.spread > spread - 1e-9 && measurement.spread < spread + 1e-9);
}

/* However slow most of the calls were; of those that were not, the one in the middle. */
static void undisturbed_calls_count(void **state) {
    (void)state;
    struct sample seven[] = {{10.5, 0}, {10, 0}, {11, 0}, {11.2, 0}, {11.8, 0}, {12.1, 0}, {40, 0}};
    expect(measurement_of(seven, 7), 11, 0.1);
    struct sample one[] = {{4, 0}}, three[] = {{9, 0}, {4, 0}, {5, 0}};
    struct sample nine[] = {{90, 0}, {11, 0}, {80, 0}, {10, 0}, {99, 0}, {12, 0}, {70, 0}, {13, 0}, {50, 0}};
    expect(measurement_of(one, 1), 4, 0);
    expect(measurement_of(three, 3), 4, 0.25);
    expect(measurement_of(nine, 9), 11, 0.3);
}

/* Samples that agree, since another program ran all the time. */
static void waiting_is_spread(void **state) {
    (void)state;
    struct sample three[] = {{4, 2}, {4, 2}, {4, 2}};
    struct measurement measurement = measurement_of(three, 3);
    expect(measurement, 4, 0.5);
    assert_true(measurement_noisy(&measurement));
}

static void noisy_measurements_are_known(void **state) {
    (void)state;
    const struct measurement steady = {1, 0.1}, loose = {1, 0.3}, tiny = {1e-5, 3};
    assert_false(measurement_noisy(&steady));
    assert_true(measurement_noisy(&loose));
    assert_false(measurement_noisy(&tiny)); /* by 30 us: a thread that woke up */
    struct measurement lower = measurement_lower(&loose, &tiny);
    expect(lower, 1e-5, 0.3);
}

/* Whatever the others say. */
static void samples_that_agree_are_enough(void **state) {
    (void)state;
    const struct sample calls[] = {{90, 0}, {4.05, 0}, {4, 0}}, brief[] = {{4e-3, 0}, {4e-3, 0}, {9e-3, 0}},
                        briefer[] = {{4e-4, 0}, {4e-4, 0}, {4e-4, 0}};
    assert_false(measurement_settled(calls, 0));
    assert_false(measurement_settled(calls, 1));
    assert_false(measurement_settled(calls, 2));
    assert_true(measurement_settled(calls, 3));
    assert_true(measurement_settled(&calls[1], 2));
    assert_false(measurement_settled(brief, 2));
    assert_true(measurement_settled(brief, 3));
    assert_false(measurement_settled(briefer, 3));
}

static void time_is_shared_by_what_is_left(void **state) {
    (void)state;
    struct allowance past = {.end_ns = clock_now_ns() - 1, .left = 4};
    assert_true(allowance_next(&past) == 0);
    struct allowance hour = {.end_ns = clock_now_ns() + (int64_t)3600 * 1000000000, .left = 3};
    double first = allowance_next(&hour), second = allowance_next(&hour), last = allowance_next(&hour);
    assert_true(first > 1000 && first <= 1200);
    assert_true(second > first && last > second && last <= 3600); /* what one leaves, the others have */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(undisturbed_calls_count),        cmocka_unit_test(waiting_is_spread),
        cmocka_unit_test(noisy_measurements_are_known),   cmocka_unit_test(samples_that_agree_are_enough),
        cmocka_unit_test(time_is_shared_by_what_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
