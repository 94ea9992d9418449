/* Comparisons of two steps' summaries, which show where they differ. */
#include "search/sim/step_summary.h"
#include "support/unit.h"

static struct step_summary two_streams(double products_s, double reads_s, double waiting_s) {
    struct step_summary step = {.step_s = 1, .stream_count = 2};
    step.streams[0] = (struct timeline_stream){STREAM_COMPUTE, products_s, waiting_s};
    step.streams[1] = (struct timeline_stream){STREAM_DISK_IN, reads_s, 0};
    step.busy_s[STREAM_COMPUTE][ACTIVITY_PRODUCT] = products_s;
    step.busy_s[STREAM_DISK_IN][ACTIVITY_DISK_READ] = reads_s;
    return step;
}

static void the_greatest_comes_first(void **state) {
    (void)state;
    struct step_summary predicted = two_streams(0.5, 0.1, 0.01), measured = two_streams(0.54, 0.8, 0.3);
    struct step_difference differences[DIFFERENCES_MAX];
    char text[DIFFERENCE_TEXT_BYTES];
    assert_int_equal(step_differences(&predicted, &measured, differences), 2);
    assert_string_equal(difference_text(&differences[0], text), "disk in: disk reads");
    assert_true(differences[0].predicted_s < 0.11 && differences[0].measured_s > 0.79);
    assert_string_equal(difference_text(&differences[1], text), "compute: waiting");
}

static void less_is_a_difference_too(void **state) {
    (void)state;
    struct step_summary predicted = two_streams(0.5, 0, 0), measured = two_streams(0.1, 0, 0.05);
    struct step_difference differences[DIFFERENCES_MAX];
    char text[DIFFERENCE_TEXT_BYTES];
    assert_int_equal(step_differences(&predicted, &measured, differences), 2);
    assert_string_equal(difference_text(&differences[0], text), "compute: matrix products");
}

static void equal_steps_have_none(void **state) {
    (void)state;
    struct step_summary step = two_streams(0.5, 0.1, 0.01);
    struct step_difference differences[DIFFERENCES_MAX];
    assert_int_equal(step_differences(&step, &step, differences), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_greatest_comes_first),
        cmocka_unit_test(less_is_a_difference_too),
        cmocka_unit_test(equal_steps_have_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
