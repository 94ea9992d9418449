/* Messages, hints and prefixes. Each thread has its own, and they stay one line of bounded length. */
#include <pthread.h>
#include <string.h>

#include "base/status.h"
#include "support/unit.h"

static void message_is_kept_and_code_returned(void **state) {
    (void)state;
    assert_int_equal(status_set(STATUS_BAD_INPUT, "%s: %s: %d", "a.json", "layers", -3), STATUS_BAD_INPUT);
    assert_string_equal(status_message(), "a.json: layers: -3");
    assert_string_equal(status_hint_text(), "");
    assert_int_equal(status_hint(STATUS_BAD_INPUT, "try %d", 2), STATUS_BAD_INPUT);
    assert_string_equal(status_hint_text(), "try 2");
    assert_string_equal(status_message(), "a.json: layers: -3");
    assert_int_equal(status_prefix(STATUS_FAILED, "rank %d", 7), STATUS_FAILED);
    assert_string_equal(status_message(), "rank 7: a.json: layers: -3");
    assert_string_equal(status_hint_text(), "try 2");
    status_set(STATUS_FAILED, "other");
    assert_string_equal(status_hint_text(), "");
    status_hint(STATUS_FAILED, "hint");
    status_clear();
    assert_string_equal(status_message(), "");
    assert_string_equal(status_hint_text(), "");
}

static void message_may_quote_itself(void **state) {
    (void)state;
    status_set(STATUS_FAILED, "inner");
    status_set(STATUS_FAILED, "outer (%s)", status_message());
    assert_string_equal(status_message(), "outer (inner)");
    status_prefix(STATUS_FAILED, "%s", status_message());
    assert_string_equal(status_message(), "outer (inner): outer (inner)");
    status_hint(STATUS_FAILED, "%s", status_message());
    assert_string_equal(status_hint_text(), "outer (inner): outer (inner)");
}

static void long_text_is_cut(void **state) {
    (void)state;
    char text[5000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    status_set(STATUS_FAILED, "%s", text);
    size_t length = strlen(status_message());
    assert_in_range(length, 256, sizeof text - 2);
    status_prefix(STATUS_FAILED, "file");
    assert_int_equal(strlen(status_message()), length);
    assert_memory_equal(status_message(), "file: xx", 8);
    status_prefix(STATUS_FAILED, "%s", text);
    assert_int_equal(strlen(status_message()), length);
    status_hint(STATUS_FAILED, "%s", text);
    assert_int_equal(strlen(status_hint_text()), length);
}

static void control_characters_are_replaced(void **state) {
    (void)state;
    status_set(STATUS_BAD_INPUT, "tensor '%s'", "a\nb\x1b[31m\x7f\xc3\xa9");
    assert_string_equal(status_message(), "tensor 'a?b?[31m?\xc3\xa9'");
    status_hint(STATUS_BAD_INPUT, "%s", "one\r\ntwo");
    assert_string_equal(status_hint_text(), "one??two");
    status_prefix(STATUS_BAD_INPUT, "%s", "a\tb");
    assert_string_equal(status_message(), "a?b: tensor 'a?b?[31m?\xc3\xa9'");
}

static void *other_thread(void *message) {
    memcpy(message, status_message()[0] == '\0' ? "empty" : "taken", 6);
    status_set(STATUS_FAILED, "from the other thread");
    return NULL;
}

static void threads_have_their_own(void **state) {
    (void)state;
    char seen[6] = "";
    pthread_t thread;
    status_set(STATUS_FAILED, "mine");
    assert_int_equal(pthread_create(&thread, NULL, other_thread, seen), 0);
    pthread_join(thread, NULL);
    assert_string_equal(seen, "empty");
    assert_string_equal(status_message(), "mine");
}

static enum status count_runs(int *runs, enum status status) {
    ++*runs;
    return status;
}

static enum status try_twice(int *runs, enum status first) {
    TRY(count_runs(runs, first));
    return count_runs(runs, STATUS_NO_FIT);
}

static enum status try_and_clean(int *cleaned, enum status first) {
    enum status status;
    TRY_GOTO(status, first, clean);
    *cleaned += 10;
clean:
    ++*cleaned;
    return status;
}

static void try_stops_at_the_first_failure(void **state) {
    (void)state;
    int runs = 0;
    assert_int_equal(try_twice(&runs, STATUS_FAILED), STATUS_FAILED);
    assert_int_equal(runs, 1);
    assert_int_equal(try_twice(&runs, STATUS_OK), STATUS_NO_FIT);
    assert_int_equal(runs, 3);
    int cleaned = 0;
    assert_int_equal(try_and_clean(&cleaned, STATUS_BAD_INPUT), STATUS_BAD_INPUT);
    assert_int_equal(cleaned, 1);
    assert_int_equal(try_and_clean(&cleaned, STATUS_OK), STATUS_OK);
    assert_int_equal(cleaned, 12);
}

static void codes_are_the_exit_statuses(void **state) {
    (void)state;
    static const int expected[] = {0, 1, 2, 3, 130, 143};
    static const enum status codes[] = {STATUS_OK,     STATUS_FAILED,      STATUS_BAD_INPUT,
                                        STATUS_NO_FIT, STATUS_INTERRUPTED, STATUS_TERMINATED};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        assert_int_equal(codes[i], expected[i]);
        assert_string_not_equal(status_name(codes[i]), "unknown status");
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(status_name(codes[i]), status_name(codes[j]));
    }
    assert_string_equal(status_name((enum status)99), "unknown status");
    assert_int_equal(status_no_memory(12345, "tests"), STATUS_FAILED);
    assert_non_null(strstr(status_message(), "12345"));
    assert_non_null(strstr(status_message(), "tests"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(message_is_kept_and_code_returned),
        cmocka_unit_test(message_may_quote_itself),
        cmocka_unit_test(long_text_is_cut),
        cmocka_unit_test(control_characters_are_replaced),
        cmocka_unit_test(threads_have_their_own),
        cmocka_unit_test(try_stops_at_the_first_failure),
        cmocka_unit_test(codes_are_the_exit_statuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
