#include "plan/settings.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/unit.h"

static void defaults_are_legal_and_stand_once(void **state) {
    (void)state;
    for (int i = 0; i < SETTING_COUNT; i++) {
        const struct setting *setting = &setting_table[i];
        assert_non_null(setting->key);
        assert_non_null(setting->name);
        if (!setting->fallback) continue;
        double number = atof(setting->fallback);
        if (setting->type == SETTING_INT) {
            assert_int_equal(setting->int_value, atoll(setting->fallback));
            assert_int_equal(setting_check_int(setting, setting->name, setting->int_value), STATUS_OK);
        } else if (setting->type == SETTING_FLOAT) {
            assert_memory_equal(&setting->float_value, &number, sizeof number);
            assert_int_equal(setting_check_float(setting, setting->name, setting->float_value), STATUS_OK);
        } else if (setting->type == SETTING_CHOICE)
            assert_int_equal(setting_check_choice(setting, setting->name, setting->fallback), STATUS_OK);
    }
}

#define EXPECT(id, type, value, status)                                                                                \
    assert_int_equal(setting_check_##type(&setting_table[SETTING_##id], #id, value), status)

static void limits_are_legal(void **state) {
    (void)state;
    EXPECT(steps, int, 1, STATUS_OK);
    EXPECT(steps, int, 0, STATUS_BAD_INPUT);
    assert_string_equal(status_message(), "steps: 0 is not legal");
    assert_string_equal(status_hint_text(), "must be 1 to 1000000000000");
    EXPECT(steps, int, SETTING_STEPS_MAX, STATUS_OK);
    EXPECT(steps, int, SETTING_STEPS_MAX + 1, STATUS_BAD_INPUT);
    EXPECT(learning_rate, float, 0, STATUS_BAD_INPUT);
    assert_string_equal(status_message(), "learning_rate: 0 is not legal");
    assert_string_equal(status_hint_text(), "must be above 0 and at most 1000");
    EXPECT(learning_rate, float, 1000, STATUS_OK);
    EXPECT(learning_rate, float, 1000.5, STATUS_BAD_INPUT);
    EXPECT(min_lr_fraction, float, 0, STATUS_OK);
    EXPECT(min_lr_fraction, float, (double)NAN, STATUS_BAD_INPUT);
    EXPECT(schedule, choice, "wsd", STATUS_OK);
    EXPECT(schedule, choice, "ws", STATUS_BAD_INPUT);
    EXPECT(schedule, choice, "linear|wsd", STATUS_BAD_INPUT);
    EXPECT(schedule, choice, "", STATUS_BAD_INPUT);
}

static void given_settings_are_known(void **state) {
    (void)state;
    struct {
        struct settings_given given;
        int64_t steps;
        double epochs;
    } options = {0}, *there = &options;
    assert_false(SETTINGS_HAVE(there, steps));
    SETTINGS_GIVE(there, steps, 0); /* a value like any other */
    assert_true(SETTINGS_HAVE(there, steps));
    assert_false(SETTINGS_HAVE(there, epochs));
    SETTINGS_GIVE(there, epochs, 2.5);
    SETTINGS_DROP(there, steps);
    assert_false(SETTINGS_HAVE(there, steps));
    assert_true(SETTINGS_HAVE(there, epochs) && options.epochs > 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_legal_and_stand_once),
        cmocka_unit_test(limits_are_legal),
        cmocka_unit_test(given_settings_are_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
