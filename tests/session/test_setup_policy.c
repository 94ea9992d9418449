/* Which policy is chosen for a step that does not fit as it is. */
#include <string.h>

#include "session/train_setup.h"
#include "support/temp_folder.h"
#include "support/tiny_run.h"
#include "support/unit.h"

static void create(const char *folder, int64_t device_bytes, int64_t host_bytes, struct train_setup *out) {
    struct tiny_run run;
    tiny_run_make(folder, "llama", &run);
    SETTINGS_GIVE(&run.plan.memory, device_bytes, device_bytes);
    SETTINGS_GIVE(&run.plan.memory, host_bytes, host_bytes);
    expect_status(train_setup_create(run.model, SETUP_TRAIN, &run.plan, &run.options, out), STATUS_OK, NULL);
}

enum { PLENTY = 64 << 20 };

static void test_nothing_moves_without_need(void **state) {
    struct train_setup setup;
    create(*state, PLENTY, PLENTY, &setup);
    assert_int_equal(setup.plan.policy.optimizer, TIER_DEVICE);
    assert_string_equal(setup.plan.policy.schedule, "");
    train_setup_free(&setup);
}

static void test_what_is_taken_is_the_fastest_found(void **state) {
    struct train_setup setup;
    struct step_summary prediction;
    create(*state, PLENTY, 0, &setup);
    int64_t plain = setup.program_bytes[TIER_DEVICE];
    assert_int_equal(setup.search.enumerated, 0);
    train_setup_free(&setup);
    create(*state, plain - 1, PLENTY, &setup);
    assert_true(setup.program_bytes[TIER_DEVICE] < plain);
    assert_true(setup.search.front.count > 0);
    const struct candidate *winner = &setup.search.front.items[0];
    assert_memory_equal(&setup.plan.policy, &winner->policy, sizeof winner->policy);
    assert_int_equal(setup.main->program->tier_bytes[TIER_DEVICE], winner->tier_bytes[TIER_DEVICE]);
    expect_status(train_setup_predict(&setup, &prediction), STATUS_OK, NULL);
    assert_true(prediction.step_s >= winner->step_s && prediction.step_s <= winner->step_s);
    train_setup_free(&setup);
}

static void test_the_least_that_is_named_is_enough(void **state) {
    struct train_setup setup;
    create(*state, 4096, PLENTY, &setup);
    int64_t least = setup.least_bytes;
    assert_true(least < setup.program_bytes[TIER_DEVICE]);
    train_setup_free(&setup);
    create(*state, least, PLENTY, &setup);
    assert_int_equal(setup.program_bytes[TIER_DEVICE], least);
    expect_status(train_setup_check_memory(&setup), STATUS_OK, NULL);
    train_setup_free(&setup);
    create(*state, least - 1, PLENTY, &setup);
    expect_status(train_setup_check_memory(&setup), STATUS_NO_FIT, "no plan fits");
    train_setup_free(&setup);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_moves_without_need),
        cmocka_unit_test(test_what_is_taken_is_the_fastest_found),
        cmocka_unit_test(test_the_least_that_is_named_is_enough),
    };
    return cmocka_run_group_tests(tests, temp_folder_make, temp_folder_drop);
}
