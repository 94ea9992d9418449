/* JSON lines: line ends, allowed contents, and error messages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* cmocka.h needs the headers above. */
#include <cmocka.h>

#include "data/source.h"

/* A document's object, or NULL for a blank line, and its text, which is borrowed from *out. */
static enum status parse_document(const char *name, int64_t line, const char *json, size_t json_bytes, json_t **out,
                                  const char **text, size_t *bytes) {
    json_t *value;
    const json_t *string = NULL;
    TRY(jsonl_parse_object(name, line, json, json_bytes, &value));
    enum status status =
        value ? jsonl_read_string(&(struct jsonl_row){NULL, name, line, value}, "text", &string) : STATUS_OK;
    if (status != STATUS_OK) return json_decref(value), status;
    *out = value;
    *text = json_string_value(string);
    *bytes = json_string_length(string);
    return status;
}

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
        enum status status = parse_document("a.jsonl", 1, cases[i].json, strlen(cases[i].json), &value, &text, &bytes);
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
        assert_int_equal(parse_document("a.jsonl", 1, blanks[i], strlen(blanks[i]), &value, &text, &bytes), STATUS_OK);
        assert_null(value);
    }
}

static void bad_lines_are_named(void **state) {
    (void)state;
    static const struct {
        const char *json, *message;
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
        enum status status = parse_document("a.jsonl", 42, cases[i].json, strlen(cases[i].json), &value, &text, &bytes);
        assert_int_equal(status, STATUS_BAD_INPUT);
        if (!strstr(status_message(), "a.jsonl: ") || !strstr(status_message(), cases[i].message))
            fail_msg("%s: \"%s\" does not say \"%s\"", cases[i].json, status_message(), cases[i].message);
    }
}

static void keys_that_are_there_are_reported(void **state) {
    (void)state;
    json_t *value;
    const char *text, *json = "{\"question\": \"a\", \"answer\": \"b\"}";
    size_t bytes;
    assert_int_equal(parse_document("a.jsonl", 1, json, strlen(json), &value, &text, &bytes), STATUS_BAD_INPUT);
    assert_string_equal(status_message(), "a.jsonl: line 1: text: missing: the keys are question, answer");
    assert_non_null(strstr(status_hint_text(), "--columns prompt=question,completion=answer"));
    json = "{\"1\": 0, \"2\": 0, \"3\": 0, \"4\": 0, \"5\": 0, \"6\": 0, \"7\": 0, \"8\": 0, \"9\": 0, \"10\": 0, "
           "\"a key that is longer than keys are by far\": 0, \"12\": 0, \"13\": 0}";
    assert_int_equal(parse_document("a.jsonl", 1, json, strlen(json), &value, &text, &bytes), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "10, a key that is longer tha, 12, ..."));
    assert_int_equal(parse_document("a.jsonl", 1, "{}", 2, &value, &text, &bytes), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "the line has no keys"));
    assert_int_equal(parse_document("a.jsonl", 1, "{\"text\": \"\xe9\"}", 13, &value, &text, &bytes), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_hint_text(), "iconv"));
}

static void columns_name_keys(void **state) {
    (void)state;
    struct jsonl_columns columns;
    assert_int_equal(jsonl_columns_parse("completion=a=b,prompt=question", &columns), STATUS_OK);
    assert_string_equal(jsonl_key(&columns, JSONL_PROMPT), "question");
    assert_string_equal(jsonl_key(&columns, JSONL_COMPLETION), "a=b");
    assert_null(jsonl_key(&columns, JSONL_TEXT));
    jsonl_columns_free(&columns);
    assert_int_equal(jsonl_columns_parse("", &columns), STATUS_OK);
    assert_string_equal(jsonl_key(&columns, JSONL_TEXT), "text");
    assert_string_equal(jsonl_key(NULL, JSONL_OUTPUT), "output");
    static const char *const bad[] = {
        "question", "prompt=a", "prompt=,completion=b", "x=y", "text=a,,", "text=a,text=b", "input=a", "=a"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (jsonl_columns_parse(bad[i], &columns) != STATUS_BAD_INPUT) fail_msg("%s is not refused", bad[i]);
        assert_non_null(strstr(status_message(), "--columns"));
        assert_non_null(strstr(status_hint_text(), "prompt=question,completion=answer"));
    }
}

static void expect_form(enum status status, json_t *const *out, const char *expected) {
    json_t *formed = *out;
    if (status != STATUS_OK) fail_msg("%s", status_message());
    char *text = json_dumps(formed, JSON_COMPACT);
    assert_string_equal(text, expected);
    free(text);
    json_decref(formed);
}

static void other_forms_become_ours(void **state) {
    (void)state;
    struct jsonl_columns talk;
    size_t first;
    json_t *out = NULL, *line = json_loads("{\"system\": \"s\", \"conversations\": [{\"from\": \"human\", \"value\": "
                                           "\"u\"}, {\"from\": \"gpt\", \"value\": \"a\"}], \"tools\": \"\"}",
                                           0, NULL);
    const char *expected =
        "{\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"u\"},"
        "{\"role\":\"assistant\",\"content\":\"a\"}]}";
    expect_form(jsonl_form_conversation(&(struct jsonl_row){NULL, "a", 1, line}, &out, &first), &out, expected);
    json_array_append_new(json_object_get(line, "conversations"), json_pack("{s:s,s:s}", "from", "bard", "value", "x"));
    assert_int_equal(jsonl_form_conversation(&(struct jsonl_row){NULL, "a", 3, line}, &out, &first), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "a: line 3: conversations[2]: must be"));
    json_decref(line);
    line = json_loads("{\"talk\": [{\"role\": \"user\", \"content\": \"u\"}], \"tools\": [{}]}", 0, NULL);
    assert_int_equal(jsonl_columns_parse("messages=talk", &talk), STATUS_OK);
    expect_form(jsonl_form_conversation(&(struct jsonl_row){&talk, "a", 1, line}, &out, &first), &out,
                "{\"messages\":[{\"role\":\"user\",\"content\":\"u\"}],\"tools\":[{}]}");
    json_object_del(line, "talk");
    assert_int_equal(jsonl_form_conversation(&(struct jsonl_row){&talk, "a", 4, line}, &out, &first), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "a: line 4: talk: missing: the keys are tools"));
    jsonl_columns_free(&talk);
    json_decref(line);
}

static json_t *conversation_of(const char *json, size_t *first) {
    json_t *out = NULL, *line;
    assert_int_equal(jsonl_parse_object("a", 5, json, strlen(json), &line), STATUS_OK);
    enum status status = jsonl_form_conversation(&(struct jsonl_row){NULL, "a", 5, line}, &out, first);
    json_decref(line);
    return status == STATUS_OK ? out : NULL;
}

static void keys_beside_messages_are_applied_or_refused(void **state) {
    (void)state;
#define MESSAGE_OF "\"messages\": [{\"role\": \"user\", \"content\": \"u\"}]"
#define OURS "{\"messages\":[{\"role\":\"user\",\"content\":\"u\"}]"
#define CALL "{\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":{\"x\":3}}}"
    static const struct {
        const char *json, *expected;
        size_t first;
    } applied[] = {
        {"{" MESSAGE_OF ", \"id\": 123456789012345678901234567890}", OURS "}", 0},
        {"{" MESSAGE_OF ", \"tools\": \"[{\\\"name\\\": \\\"f\\\"}]\"}", OURS ",\"tools\":[{\"name\":\"f\"}]}", 0},
        {"{" MESSAGE_OF ", \"tools\": null, \"system\": \"\", \"images\": []}", OURS "}", 0},
        {"{" MESSAGE_OF ", \"system\": \"s\"}",
         "{\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"u\"}]}", 1},
        {"{" MESSAGE_OF ", \"chat_template_kwargs\": {\"reasoning_effort\": \"high\"}}",
         OURS ",\"chat_template_kwargs\":{\"reasoning_effort\":\"high\"}}", 0},
        {"{\"conversations\": [{\"from\": \"human\", \"value\": \"u\"}, {\"from\": \"gpt\", \"value\": null, "
         "\"tool_calls\": [{\"type\": \"function\"}], \"weight\": 0}]}",
         "{\"messages\":[{\"role\":\"user\",\"content\":\"u\"},{\"tool_calls\":[{\"type\":\"function\"}],\"weight\":0,"
         "\"role\":\"assistant\"}]}",
         0},
        {"{\"conversations\": [{\"from\": \"user\", \"value\": \"u\"}, {\"from\": \"function_call\", \"value\": "
         "\"{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": {\\\"x\\\": 3}}\"}, {\"from\": \"observation\", "
         "\"value\": \"o\"}, {\"from\": \"chatgpt\", \"value\": \"a\"}]}",
         "{\"messages\":[{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"assistant\",\"tool_calls\":[" CALL
         "],\"content\":\"\"},{\"role\":\"tool\",\"content\":\"o\"},{\"role\":\"assistant\",\"content\":\"a\"}]}",
         0},
        {"{\"prompt\": [{\"role\": \"user\", \"content\": \"u\"}], \"completion\": [{\"role\": \"assistant\", "
         "\"content\": \"a\"}]}",
         "{\"messages\":[{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"assistant\",\"content\":\"a\"}]}", 1},
    };
    static const char *const refused[][2] = {
        {"{" MESSAGE_OF ", \"tools\": {\"bad\": 1}}", "tools: must be a list"},
        {"{" MESSAGE_OF ", \"tools\": \"f\"}", "tools: must be a list"},
        {"{" MESSAGE_OF ", \"tools\": [1]}", "tools: must be a list of objects"},
        {"{" MESSAGE_OF ", \"tools\": [{\"n\": 99999999999999999999}]}", "messages: hold a number beyond 64 bits"},
        {"{" MESSAGE_OF ", \"system\": 3}", "system: must be a string"},
        {"{" MESSAGE_OF ", \"chat_template_kwargs\": []}", "chat_template_kwargs: must be an object"},
        {"{" MESSAGE_OF ", \"chat_template_kwargs\": {\"chat_template\": \"x\"}}",
         "chat_template_kwargs.chat_template: is not"},
        {"{" MESSAGE_OF ", \"images\": [\"a.png\"]}", "images: cannot be applied"},
        {"{" MESSAGE_OF ", \"functions\": [{}]}", "functions: cannot be applied"},
        {"{" MESSAGE_OF ", \"weight\": 0.5}", "weight: cannot be applied"},
        {"{\"messages\": [{\"role\": \"system\", \"content\": \"a\"}], \"system\": \"b\"}", "system: differs"},
        {"{\"conversations\": [{\"from\": \"function_call\", \"value\": \"f(3)\"}]}", "conversations[0]: must be"},
        {"{\"prompt\": [], \"completion\": \"a\"}", "completion: must be a list of messages"},
    };
    size_t first;
    for (size_t i = 0; i < sizeof applied / sizeof *applied; i++) {
        json_t *made = conversation_of(applied[i].json, &first);
        if (!made) fail_msg("%s: %s", applied[i].json, status_message());
        expect_form(STATUS_OK, &made, applied[i].expected);
        assert_int_equal(first, applied[i].first);
    }
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        if (conversation_of(refused[i][0], &first)) fail_msg("taken: %s", refused[i][0]);
        if (!strstr(status_message(), "a: line 5: ") || !strstr(status_message(), refused[i][1]))
            fail_msg("%s: %s", refused[i][0], status_message());
    }
}

#define ALPACA_TASK "Below is an instruction that describes a task"
#define ALPACA_REST ". Write a response that appropriately completes the request.\\n\\n### Instruction:\\n"

static void alpaca_is_read(void **state) {
    (void)state;
    json_t *out = NULL, *line = json_pack("{s:s, s:s, s:s, s:s}", "instruction", "add", "input", "1 2", "output", "3",
                                          "system", "s");
    expect_form(
        jsonl_form_alpaca(&(struct jsonl_row){NULL, "a", 1, line}, true, &out), &out,
        "{\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"add\\n\\n1 2\"},"
        "{\"role\":\"assistant\",\"content\":\"3\"}]}");
    expect_form(jsonl_form_alpaca(&(struct jsonl_row){NULL, "a", 1, line}, false, &out), &out,
                "{\"prompt\":\"s\\n\\n### Instruction:\\n"
                "add\\n\\n### Input:\\n1 2\\n\\n### Response:\\n\",\"completion\":\"3\"}");
    json_object_set_new(line, "system", json_string(""));
    expect_form(jsonl_form_alpaca(&(struct jsonl_row){NULL, "a", 1, line}, false, &out), &out,
                "{\"prompt\":\"" ALPACA_TASK ", paired with an input that provides further context" ALPACA_REST
                "add\\n\\n### Input:\\n1 2\\n\\n### Response:\\n\",\"completion\":\"3\"}");
    json_object_set_new(line, "input", json_string(""));
    expect_form(jsonl_form_alpaca(&(struct jsonl_row){NULL, "a", 1, line}, false, &out), &out,
                "{\"prompt\":\"" ALPACA_TASK ALPACA_REST "add\\n\\n### Response:\\n\",\"completion\":\"3\"}");
    json_object_set_new(line, "system", json_string("s"));
    json_object_set_new(line, "history", json_string("[[\"q\", \"a\"]]"));
    expect_form(jsonl_form_alpaca(&(struct jsonl_row){NULL, "a", 2, line}, true, &out), &out,
                "{\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"q\"},"
                "{\"role\":\"assistant\",\"content\":\"a\"},{\"role\":\"user\",\"content\":\"add\"},"
                "{\"role\":\"assistant\",\"content\":\"3\"}]}");
    assert_int_equal(jsonl_form_alpaca(&(struct jsonl_row){NULL, "a", 2, line}, false, &out), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "a: line 2: history: cannot be applied"));
    json_object_set_new(line, "history", json_string("q"));
    assert_int_equal(jsonl_form_alpaca(&(struct jsonl_row){NULL, "a", 2, line}, true, &out), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "a: line 2: history: must be a list"));
    json_object_del(line, "output");
    assert_int_equal(jsonl_form_alpaca(&(struct jsonl_row){NULL, "a", 2, line}, true, &out), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "a: line 2: output: missing: the keys are instruction, input"));
    json_decref(line);
}

static void deep_nesting_is_refused(void **state) {
    (void)state;
    static char json[200000];
    memset(json, '[', sizeof json);
    json_t *value;
    const char *text;
    size_t bytes;
    assert_int_equal(parse_document("a.jsonl", 1, json, sizeof json, &value, &text, &bytes), STATUS_BAD_INPUT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_end_at_newlines),
        cmocka_unit_test(documents_are_found),
        cmocka_unit_test(blank_lines_hold_no_document),
        cmocka_unit_test(bad_lines_are_named),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(keys_that_are_there_are_reported),
        cmocka_unit_test(columns_name_keys),
        cmocka_unit_test(other_forms_become_ours),
        cmocka_unit_test(keys_beside_messages_are_applied_or_refused),
        cmocka_unit_test(alpaca_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
