/* Training options in run.json: given ones, absent ones, and values of versions that did not write null. */
#include "session/options.h"

#include <stdio.h>
#include <string.h>

#include "support/unit.h"

static const char *const paths[] = {"/data/a.txt"};

static struct train_options some(void) {
    struct train_options options;
    train_options_init(&options);
    options.data_paths = paths;
    options.data_path_count = 1;
    return options;
}

static struct train_options read(const json_t *object, struct scratch *memory) {
    struct train_options out;
    assert_int_equal(train_options_from_json("run.json", object, memory, &out), STATUS_OK);
    return out;
}

static void what_was_not_given_is_null(void **state) {
    (void)state;
    struct scratch memory = {0};
    struct train_options options = some();
    json_t *object = train_options_to_json(&options);
    assert_true(json_is_null(json_object_get(object, "epochs")));
    assert_true(json_is_null(json_object_get(object, "schedule_steps")));
    assert_true(json_is_null(json_object_get(object, "warmup_steps")));
    assert_int_equal(json_integer_value(json_object_get(object, "steps")), 1000);
    struct train_options back = read(object, &memory);
    assert_false(SETTINGS_HAVE(&back, epochs) || SETTINGS_HAVE(&back, schedule_steps) ||
                 SETTINGS_HAVE(&back, warmup_steps) || SETTINGS_HAVE(&back, chat_time_s));
    assert_int_equal(back.steps, options.steps);
    json_decref(object);
    scratch_free(&memory);
}

static void what_was_given_comes_back(void **state) {
    (void)state;
    struct scratch memory = {0};
    struct train_options options = some();
    SETTINGS_GIVE(&options, epochs, 0.5);
    SETTINGS_GIVE(&options, warmup_steps, 0);
    SETTINGS_GIVE(&options, schedule_steps, 7);
    json_t *object = train_options_to_json(&options);
    struct train_options back = read(object, &memory);
    assert_true(SETTINGS_HAVE(&back, epochs) && back.epochs > 0.4);
    assert_true(SETTINGS_HAVE(&back, warmup_steps) && back.warmup_steps == 0);
    assert_true(SETTINGS_HAVE(&back, schedule_steps) && back.schedule_steps == 7);
    json_decref(object);
    scratch_free(&memory);
}

static void runs_of_earlier_versions(void **state) {
    (void)state;
    struct scratch memory = {0};
    struct train_options options = some();
    json_t *object = train_options_to_json(&options);
    json_object_set_new(object, "epochs", json_real(0));
    json_object_set_new(object, "schedule_steps", json_integer(0));
    json_object_set_new(object, "warmup_steps", json_integer(-1));
    struct train_options back = read(object, &memory);
    assert_false(SETTINGS_HAVE(&back, epochs) || SETTINGS_HAVE(&back, schedule_steps) ||
                 SETTINGS_HAVE(&back, warmup_steps));
    assert_int_equal(json_object_del(object, "epochs"), 0);
    back = read(object, &memory);
    assert_false(SETTINGS_HAVE(&back, epochs));
    json_decref(object);
    scratch_free(&memory);
}

/* The limits of the command line. */
static void illegal_values_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *field;
        double value;
    } bad[] = {{"learning_rate", 1001},   {"learning_rate", 0}, {"valid_fraction", 0.95},
               {"wsd_decay_fraction", 0}, {"epochs", 2e6},      {"epochs", -3}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct scratch memory = {0};
        struct train_options options = some(), out;
        json_t *object = train_options_to_json(&options);
        json_object_set_new(object, bad[i].field, json_real(bad[i].value));
        if (train_options_from_json("run.json", object, &memory, &out) != STATUS_BAD_INPUT)
            fail_msg("%s: %g was taken", bad[i].field, bad[i].value);
        assert_non_null(strstr(status_message(), bad[i].field));
        json_decref(object);
        scratch_free(&memory);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_not_given_is_null),
        cmocka_unit_test(what_was_given_comes_back),
        cmocka_unit_test(runs_of_earlier_versions),
        cmocka_unit_test(illegal_values_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
