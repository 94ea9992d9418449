/* Finds the most similar name, for hints. */
#include "base/text.h"

#include <string.h>

#include "support/unit.h"

static void the_nearest_name_is_found(void **state) {
    (void)state;
    struct nearest nearest = {.wanted = "tarin"};
    nearest_consider(&nearest, "plan");
    nearest_consider(&nearest, "train");
    nearest_consider(&nearest, "eval");
    assert_string_equal(nearest.best, "train");
    struct nearest none = {.wanted = "xylophone"};
    nearest_consider(&none, "train");
    assert_null(none.best);
    struct nearest begun = {.wanted = "gen"};
    nearest_consider(&begun, "generate");
    assert_string_equal(begun.best, "generate");
}

static void hints_name_it(void **state) {
    (void)state;
    static const char *const tiers[] = {"device", "host", "disk"};
    char longest[800];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    const char *const names[] = {longest, longest};
    status_set(STATUS_BAD_INPUT, "a message");
    assert_int_equal(nearest_hint(STATUS_BAD_INPUT, "value", "hots", tiers, 3), STATUS_BAD_INPUT);
    assert_string_equal(status_message(), "a message");
    assert_string_equal(status_hint_text(), "the nearest legal value is host");
    nearest_hint(STATUS_BAD_INPUT, "value", "dsik", tiers, 3);
    assert_string_equal(status_hint_text(), "the nearest legal value is disk");
    nearest_hint(STATUS_BAD_INPUT, "tier", "cloud", tiers, 3);
    assert_string_equal(status_hint_text(), "the legal tiers are device, host and disk");
    nearest_hint(STATUS_BAD_INPUT, "value", "", tiers, 1);
    assert_string_equal(status_hint_text(), "the legal values are device");
    nearest_hint(STATUS_BAD_INPUT, "value", "y", names, 2); /* cut where there is no space */
    assert_memory_equal(status_hint_text(), "the legal values are xxx", 24);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_nearest_name_is_found),
        cmocka_unit_test(hints_name_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
