/* JSON lines: where lines end, what a line may hold, and how errors name them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* cmocka.h needs the headers above. */
#include <cmocka.h>

#include "data/jsonl.h"

static void lines_end_at_newlines(void **state) {
    (void)state;
    static const struct {
        const char *text;
        const char *lines[4];
        int count;
    } cases[] = {
        {"", {0}, 0},
        {"\n", {""}, 1},
        {"a", {"a"}, 1},
        {"a\n", {"a"}, 1},
        {"a\nb", {"a", "b"}, 2},
        {"a\n\nb\n", {"a", "", "b"}, 3},
        {"\n\n\n", {"", "", ""}, 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct line_reader reader = {.text = cases[i].text, .bytes = strlen(cases[i].text)};
        const char *line;
        size_t bytes;
        for (int j = 0; j < cases[i].count; j++) {
            assert_true(line_read(&reader, &line, &bytes));
            assert_int_equal(bytes, strlen(cases[i].lines[j]));
            assert_true(memcmp(line, cases[i].lines[j], bytes) == 0);
            assert_int_equal(reader.line, j + 1);
        }
        assert_false(line_read(&reader, &line, &bytes));
    }
}

static void documents_are_found(void **state) {
    (void)state;
    static const struct {
        const char *json, *text;
        size_t bytes;
    } cases[] = {
        {"{\"text\": \"plain\"}", "plain", 5},
        {"  {\"id\": 18446744073709551999, \"text\": \"a\\nb\", \"meta\": {\"text\": 3}}\r", "a\nb", 3},
        {"{\"text\":\"\"}", "", 0},
        {"{\"text\": \"\\u0000x\\u00e9\"}", "\0x\xc3\xa9", 4},
        {"{\"text\": \"\\ud83d\\ude00\"}", "\xf0\x9f\x98\x80", 4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *value;
        const char *text;
        size_t bytes;
        enum status status = jsonl_parse("a.jsonl", 1, cases[i].json, strlen(cases[i].json), &value, &text, &bytes);
        if (status != STATUS_OK) fail_msg("%s: %s", cases[i].json, status_message());
        assert_int_equal(bytes, cases[i].bytes);
        assert_true(memcmp(text, cases[i].text, bytes) == 0);
        json_decref(value);
    }
}

static void blank_lines_hold_no_document(void **state) {
    (void)state;
    static const char *const blanks[] = {"", " ", "\r", " \t \r"};
    for (size_t i = 0; i < sizeof blanks / sizeof blanks[0]; i++) {
        json_t *value = (json_t *)&value;
        const char *text;
        size_t bytes;
        assert_int_equal(jsonl_parse("a.jsonl", 1, blanks[i], strlen(blanks[i]), &value, &text, &bytes), STATUS_OK);
        assert_null(value);
    }
}

static void bad_lines_are_named(void **state) {
    (void)state;
    static const struct {
        const char *json, *words;
    } cases[] = {
        {"{\"text\": \"open", "line 42: not valid JSON"},
        {"{\"text\": \"a\"} {\"text\": \"b\"}", "line 42: not valid JSON"},
        {"plain words", "line 42: not valid JSON"},
        {"{\"text\": \"\xff\xfe\"}", "line 42: not valid JSON"},
        {"{\"text\": \"\\ud800\"}", "line 42: not valid JSON"},
        {"{\"text\": \"a\", \"text\": \"b\"}", "line 42: not valid JSON"},
        {"[\"text\"]", "line 42: not a JSON object"},
        {"\"text\"", "line 42: not"},
        {"{}", "line 42: text: missing"},
        {"{\"Text\": \"a\"}", "line 42: text: missing"},
        {"{\"text\": null}", "line 42: text: must be a string"},
        {"{\"text\": [\"a\"]}", "line 42: text: must be a string"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *value;
        const char *text;
        size_t bytes;
        enum status status = jsonl_parse("a.jsonl", 42, cases[i].json, strlen(cases[i].json), &value, &text, &bytes);
        assert_int_equal(status, STATUS_BAD_INPUT);
        if (!strstr(status_message(), "a.jsonl: ") || !strstr(status_message(), cases[i].words))
            fail_msg("%s: \"%s\" does not say \"%s\"", cases[i].json, status_message(), cases[i].words);
    }
}

static void deep_nesting_is_refused(void **state) {
    (void)state;
    static char json[200000];
    memset(json, '[', sizeof json);
    json_t *value;
    const char *text;
    size_t bytes;
    assert_int_equal(jsonl_parse("a.jsonl", 1, json, sizeof json, &value, &text, &bytes), STATUS_BAD_INPUT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_end_at_newlines),        cmocka_unit_test(documents_are_found),
        cmocka_unit_test(blank_lines_hold_no_document), cmocka_unit_test(bad_lines_are_named),
        cmocka_unit_test(deep_nesting_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
