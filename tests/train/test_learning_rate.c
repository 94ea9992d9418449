/* Learning-rate schedules against closed forms and the rates recorded in the reference runs. */
#include <math.h>
#include <stdio.h>

#include "model/safetensors.h"
#include "support/unit.h"
#include "train/loop.h"

static const double pi = 3.14159265358979323846;

static void expect_near(double value, double expected, int step) {
    if (!(fabs(value - expected) <= 1e-15 + 1e-12 * fabs(expected)))
        fail_msg("step %d: %.17g, not %.17g", step, value, expected);
}

static struct train_options options_of(enum lr_schedule schedule, double peak, int64_t steps, int64_t warmup,
                                       double min_fraction) {
    struct train_options options;
    train_options_init(&options);
    options.schedule = schedule;
    options.steps = steps;
    options.learning_rate = peak;
    options.min_lr_fraction = min_fraction;
    options.wsd_decay_fraction = 0.3;
    SETTINGS_GIVE(&options, warmup_steps, warmup);
    return options;
}

static void warm_up_rises_to_the_peak(void **state) {
    (void)state;
    for (int schedule = 0; schedule < LR_SCHEDULE_COUNT; schedule++) {
        struct train_options options = options_of((enum lr_schedule)schedule, 2e-3, 100, 10, 0.25);
        for (int s = 0; s < 10; s++)
            expect_near(lr_at_step(&options, s), 2e-3 * (s + 1) / 10, s);
        expect_near(lr_at_step(&options, 10), 2e-3, 10);
    }
}

static void schedules_have_their_closed_forms(void **state) {
    (void)state;
    struct train_options cosine = options_of(LR_SCHEDULE_COSINE, 2e-3, 100, 10, 0.25),
                         linear = options_of(LR_SCHEDULE_LINEAR, 2e-3, 100, 10, 0.25),
                         constant = options_of(LR_SCHEDULE_CONSTANT, 2e-3, 100, 10, 0.25),
                         wsd = options_of(LR_SCHEDULE_WSD, 2e-3, 100, 10, 0.25);
    for (int s = 10; s < 130; s++) {
        double p = (s < 100 ? s - 10 : 90) / 90.0;
        expect_near(lr_at_step(&cosine, s), 2e-3 * (0.25 + 0.75 * (1 + cos(pi * p)) / 2), s);
        expect_near(lr_at_step(&linear, s), 2e-3 * (1 - 0.75 * p), s);
        expect_near(lr_at_step(&constant, s), 2e-3, s);
        double into = s < 70 ? 0 : s < 100 ? s - 70 : 30;
        expect_near(lr_at_step(&wsd, s), 2e-3 * (1 - 0.75 * into / 30), s);
    }
}

static void open_settings_take_defaults(void **state) {
    (void)state;
    struct train_options options;
    train_options_init(&options);
    options.steps = 250;
    assert_int_equal(lr_warmup_steps(&options), 25);
    SETTINGS_GIVE(&options, schedule_steps, 5000);
    assert_int_equal(lr_warmup_steps(&options), 100);
    struct train_options no_decay = options_of(LR_SCHEDULE_COSINE, 1, 5, 5, 0.5);
    expect_near(lr_at_step(&no_decay, 4), 1, 4);
    expect_near(lr_at_step(&no_decay, 5), 0.5, 5);
}

static void rates_are_those_recorded(void **state) {
    (void)state;
    enum { STEPS = 20 };
    struct train_options options = options_of(LR_SCHEDULE_COSINE, 0.003, STEPS, 5, 0.1);
    struct safetensors *set;
    assert_int_equal(safetensors_open(BALLAST_FIXTURES "/models/llama/reference.safetensors", &set), STATUS_OK);
    const struct safetensors_tensor *lrs = safetensors_find(set, "train.lrs");
    assert_non_null(lrs);
    assert_int_equal(lrs->elements, STEPS);
    double rates[STEPS];
    assert_true(safetensors_can_convert(lrs->dtype, DTYPE_F64));
    assert_int_equal(safetensors_convert(set, lrs, 0, STEPS, DTYPE_F64, rates), STATUS_OK);
    for (int s = 0; s < STEPS; s++)
        expect_near(lr_at_step(&options, s), rates[s], s);
    safetensors_close(set);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(warm_up_rises_to_the_peak),
        cmocka_unit_test(schedules_have_their_closed_forms),
        cmocka_unit_test(open_settings_take_defaults),
        cmocka_unit_test(rates_are_those_recorded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
