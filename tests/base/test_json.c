/* JSON files: errors name file and field, and output parameters keep their defaults. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/random.h"
#include "support/fault_sweep.h"
#include "support/temp_folder.h"
#include "support/unit.h"

static json_t *parse(const char *text) {
    json_t *object = NULL;
    if (json_parse_object("a.json", text, strlen(text), &object) != STATUS_OK) fail_msg("%s", status_message());
    return object;
}

static void assert_refused(const char *text, size_t bytes, const char *message) {
    json_t *object = NULL;
    if (json_parse_object("a.json", text, bytes, &object) != STATUS_BAD_INPUT) fail_msg("taken: %.60s", text);
    assert_null(object);
    assert_memory_equal(status_message(), "a.json: ", 8);
    assert_null(strchr(status_message(), '\n'));
    if (!strstr(status_message(), message)) fail_msg("expected '%s' in: %s", message, status_message());
}

static void malformed_text_is_refused(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"", "line 1"},
        {"{", "line 1"},
        {"{\"a\": 1,\n \"b\": }", "line 2"},
        {"{\"a\": 1} x", "line 1"},
        {"{\"a\": 1, \"a\": 2}", "duplicate"},
        {"{\"a\": nul}", "line 1"},
        {"{\"a\": 1e999}", "line 1"},
        {"{\"a\": \"\xff\xfe\"}", "unable to decode byte 0xff"},
        {"{\"a\": \"line\nbreak\"}", "line 1"},
        {"{\"a\": \"\\u0000\"}", "line 1"},
        {"[]", "object"},
        {"[1, 2]", "object"},
        {"3", "line 1"},
        {"null", "line 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_refused(cases[i][0], strlen(cases[i][0]), cases[i][1]);
    assert_refused("{\"a\":\0 1}", 9, "line 1");
    assert_refused("{} \0", 4, "line 1");
}

/* transformers writes 1000000000000000019884624838656 as the length of a tokenizer that has no limit. */
static void integers_beyond_64_bits_are_floats(void **state) {
    (void)state;
    json_t *object =
        parse("{\"a\": 1000000000000000019884624838656, \"b\": [-9223372036854775809,9223372036854775807], "
              "\"c\": \"\\\"99999999999999999999\", \"d\": 2.5, \"e\": 3, \"f\": 18446744073709551616}");
    const json_t *list = json_object_get(object, "b");
    int64_t whole = 0;
    assert_true(json_real_value(json_object_get(object, "a")) == 1000000000000000019884624838656.0);
    assert_true(json_real_value(json_array_get(list, 0)) == -9223372036854775808.0);
    assert_int_equal(json_integer_value(json_array_get(list, 1)), INT64_MAX);
    assert_string_equal(json_string_value(json_object_get(object, "c")), "\"99999999999999999999");
    assert_true(json_real_value(json_object_get(object, "d")) == 2.5);
    assert_int_equal(json_integer_value(json_object_get(object, "e")), 3);
    assert_true(json_real_value(json_object_get(object, "f")) == 18446744073709551616.0);
    assert_int_equal(json_read_int("a.json", object, "f", 0, 9, &whole), STATUS_BAD_INPUT);
    assert_string_equal(status_message(), "a.json: f: must be a whole number");
    json_decref(object);
}

static void a_byte_order_mark_is_passed_over(void **state) {
    (void)state;
    json_t *object = parse("\xEF\xBB\xBF{\"a\": 3}");
    assert_int_equal(json_integer_value(json_object_get(object, "a")), 3);
    json_decref(object);
}

static void deep_nesting_is_refused(void **state) {
    (void)state;
    enum { DEPTH = 1000000 };
    char *text = mem_array(DEPTH + 16, 1);
    memcpy(text, "{\"a\":", 5);
    memset(text + 5, '[', DEPTH);
    assert_refused(text, DEPTH + 5, "depth");
    mem_free(text);
}

static void fields_are_read(void **state) {
    (void)state;
    json_t *object =
        parse("{\"n\": -7, \"x\": 1.5, \"whole\": 3, \"yes\": true, \"no\": false, \"s\": \"text\", \"z\": null}");
    int64_t number = 11;
    double decimal = 0.25;
    bool flag = false;
    const char *text = "default";
    assert_int_equal(json_read_int("a.json", object, "n", -7, 100, &number), STATUS_OK);
    assert_int_equal(number, -7);
    assert_int_equal(json_read_double("a.json", object, "x", 1.5, 1.5, &decimal), STATUS_OK);
    assert_true(decimal == 1.5);
    assert_int_equal(json_read_double("a.json", object, "whole", 0, 4, &decimal), STATUS_OK);
    assert_true(decimal == 3);
    assert_int_equal(json_read_bool("a.json", object, "yes", &flag), STATUS_OK);
    assert_true(flag);
    assert_int_equal(json_read_bool("a.json", object, "no", &flag), STATUS_OK);
    assert_false(flag);
    assert_int_equal(json_read_string("a.json", object, "s", &text), STATUS_OK);
    assert_string_equal(text, "text");
    for (int i = 0; i < 2; i++) { /* null counts as missing */
        const char *field = i ? "z" : "absent";
        number = 11;
        text = "default";
        assert_int_equal(json_read_int("a.json", object, field, 0, 1, &number), STATUS_OK);
        assert_int_equal(json_read_double("a.json", object, field, 0, 1, &decimal), STATUS_OK);
        assert_int_equal(json_read_bool("a.json", object, field, &flag), STATUS_OK);
        assert_int_equal(json_read_string("a.json", object, field, &text), STATUS_OK);
        assert_int_equal(number, 11);
        assert_true(decimal == 3 && !flag);
        assert_string_equal(text, "default");
        assert_int_equal(json_require("a.json", object, field), STATUS_BAD_INPUT);
        assert_non_null(strstr(status_message(), field));
    }
    assert_int_equal(json_require("a.json", object, "n"), STATUS_OK);
    json_decref(object);
}

static void assert_wrong(enum status status, const char *field) {
    assert_int_equal(status, STATUS_BAD_INPUT);
    char expected[64] = "a.json: ";
    strcat(expected, field);
    assert_memory_equal(status_message(), expected, strlen(expected));
}

static void assert_nearest(enum status status, const char *field, const char *hint) {
    assert_wrong(status, field);
    if (hint[0] ? !strstr(status_hint_text(), hint) : status_hint_text()[0])
        fail_msg("%s: hint '%s' where '%s' was expected", field, status_hint_text(), hint);
}

static void texts_fit_their_buffers(void **state) {
    (void)state;
    json_t *object = parse("{\"s\": \"abc\", \"n\": 5}");
    char text[4] = "-";
    assert_int_equal(json_read_text("a.json", object, "absent", sizeof text, text), STATUS_OK);
    assert_string_equal(text, "-");
    assert_nearest(json_read_text("a.json", object, "s", 3, text), "s", "the nearest legal length is 2 bytes");
    assert_wrong(json_read_text("a.json", object, "n", sizeof text, text), "n");
    assert_string_equal(text, "-");
    assert_int_equal(json_read_text("a.json", object, "s", sizeof text, text), STATUS_OK);
    assert_string_equal(text, "abc");
    json_decref(object);
}

static void unknown_fields_are_refused(void **state) {
    (void)state;
    static const char *const known[] = {"batch", "threads", "seed"};
    json_t *object = parse("{\"seed\": 1, \"bacth\": 2}");
    assert_int_equal(json_refuse_unknown("a.json", "recipe.", object, known, 3), STATUS_BAD_INPUT);
    assert_string_equal(status_message(), "a.json: recipe.bacth: unknown field");
    assert_string_equal(status_hint_text(), "the nearest legal field is batch");
    json_decref(object);
    object = parse("{\"colour\": 1}");
    assert_int_equal(json_refuse_unknown("a.json", "", object, known, 3), STATUS_BAD_INPUT);
    assert_string_equal(status_hint_text(), "the legal fields are batch, threads and seed");
    json_decref(object);
    object = parse("{\"seed\": 1}");
    assert_int_equal(json_refuse_unknown("a.json", "", object, known, 3), STATUS_OK);
    json_decref(object);
}

static void wrong_fields_are_refused(void **state) {
    (void)state;
    json_t *object = parse("{\"n\": 5, \"x\": 1.5, \"b\": true, \"s\": \"5\", \"o\": {}, \"l\": [1], \"h\": 1e30}");
    static const char *const fields[] = {"n", "x", "b", "s", "o", "l"};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        int64_t number = 77;
        double decimal = 77;
        bool flag = true;
        const char *field = fields[i], *text = "same";
        if (*field != 'n') assert_wrong(json_read_int("a.json", object, field, INT64_MIN, INT64_MAX, &number), field);
        if (*field != 'n' && *field != 'x')
            assert_wrong(json_read_double("a.json", object, field, -1e9, 1e9, &decimal), field);
        if (*field != 'b') assert_wrong(json_read_bool("a.json", object, field, &flag), field);
        if (*field != 's') assert_wrong(json_read_string("a.json", object, field, &text), field);
        assert_true(number == 77 && decimal == 77 && flag);
        assert_string_equal(text, "same");
    }
    int64_t number = 77;
    double decimal = 77;
    assert_nearest(json_read_int("a.json", object, "n", 6, 9, &number), "n", "the nearest legal value is 6");
    assert_nearest(json_read_int("a.json", object, "n", 1, 4, &number), "n", "the nearest legal value is 4");
    assert_nearest(json_read_double("a.json", object, "x", 1.6, 9, &decimal), "x", "the nearest legal value is 1.6");
    assert_nearest(json_read_double("a.json", object, "x", 0, 1.4, &decimal), "x", "the nearest legal value is 1.4");
    /* numbers with a fraction, where whole ones are legal */
    assert_nearest(json_read_int("a.json", object, "x", 0, 9, &number), "x", "the nearest legal value is 2");
    assert_nearest(json_read_int("a.json", object, "x", 4, 9, &number), "x", "the nearest legal value is 4");
    assert_nearest(json_read_int("a.json", object, "x", -9, 1, &number), "x", "the nearest legal value is 1");
    assert_nearest(json_read_int("a.json", object, "h", INT64_MIN, INT64_MAX, &number), "h", "9223372036854775807");
    assert_nearest(json_read_int("a.json", object, "s", 0, 9, &number), "s", "");
    assert_true(number == 77 && decimal == 77);
    json_decref(object);
}

static void numbers_come_back_exactly(void **state) {
    const char *path = temp_path(*state, "numbers.json");
    uint64_t seed = 77;
    print_message("seed %llu\n", (unsigned long long)seed);
    double expected[500];
    json_t *object = json_object(), *list = json_array(), *read = NULL;
    for (uint64_t i = 0; i < 500; i++) {
        uint64_t bits = random_u64(seed, RANDOM_TEST, 0, i);
        memcpy(&expected[i], &bits, sizeof bits);
        if (!(expected[i] - expected[i] == 0)) expected[i] = (double)i / 3; /* infinite or no number */
        json_array_append_new(list, json_real(expected[i]));
    }
    json_object_set_new(object, "list", list);
    json_object_set_new(object, "max", json_integer(INT64_MAX));
    json_object_set_new(object, "name", json_string("\xc4\xa0the \"quoted\"\n"));
    assert_int_equal(json_write(path, object), STATUS_OK);
    assert_int_equal(json_read_object(path, 1 << 20, &read), STATUS_OK);
    assert_true(json_equal(object, read));
    for (size_t i = 0; i < 500; i++)
        assert_true(json_real_value(json_array_get(json_object_get(read, "list"), i)) == expected[i]);
    json_decref(object);
    json_decref(read);
    char *text;
    size_t bytes;
    assert_int_equal(file_read(path, 1 << 20, &text, &bytes), STATUS_OK);
    assert_int_equal(text[bytes - 1], '\n');
    mem_free(text);
}

static void files_over_the_limit_are_refused(void **state) {
    const char *path = temp_path(*state, "big.json");
    json_t *object = NULL;
    temp_write_text(path, "{\"a\": 12345}");
    assert_int_equal(json_read_object(path, 11, &object), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), path));
    assert_int_equal(json_read_object(path, 12, &object), STATUS_OK);
    json_decref(object);
    assert_int_equal(json_read_object(temp_path(*state, "absent.json"), 100, &object), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "absent.json"));
}

/* No text, however cut or changed, may do more than fail. */
static void damaged_text_is_survived(void **state) {
    (void)state;
    static const char text[] = "{\"a\": [1, 2.5e3, {\"b\": \"\\u00e9\\n\"}], \"c\": null, \"d\": {\"e\": true}}";
    uint64_t seed = 5;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (uint64_t i = 0; i < 20000; i++) {
        char *damaged = mem_array(sizeof text, 1);
        memcpy(damaged, text, sizeof text);
        size_t bytes = sizeof text - 1;
        for (uint32_t j = 0; j < 1 + i % 3; j++) {
            uint64_t draw = random_u64(seed, RANDOM_TEST, j, i);
            damaged[draw % bytes] = (char)(draw >> 32);
        }
        if (i % 5 == 0) bytes = i % sizeof text;
        json_t *object = NULL;
        char *exact = mem_array(bytes, 1); /* so that the address sanitizer sees a read past the end */
        memcpy(exact, damaged, bytes);
        enum status status = json_parse_object("a.json", exact, bytes, &object);
        assert_true(status == STATUS_OK ? json_is_object(object) : status == STATUS_BAD_INPUT && !object);
        json_decref(object);
        mem_free(exact);
        mem_free(damaged);
    }
}

static enum status read_and_write(void *folder) {
    json_t *object = NULL;
    TRY(json_read_object(temp_path(folder, "in.json"), 1000, &object));
    enum status status = json_write(temp_path(folder, "out.json"), object);
    json_decref(object);
    return status;
}

static void each_operation_may_fail(void **state) {
    temp_write_text(temp_path(*state, "in.json"), "{\"a\": 1}");
    for (enum fault_kind kind = 0; kind <= FAULT_RENAME; kind++)
        assert_true(fault_sweep(kind, false, read_and_write, *state) > 0);
    assert_true(file_exists(temp_path(*state, "out.json")));
    assert_false(file_exists(temp_path(*state, "out.json.new")));
}

/* jansson's own json_dumps leaves out a key for which it gets no memory, and says nothing. */
static enum status print_and_parse(void *payload) {
    char *text = json_text(payload, JSON_COMPACT);
    if (!text) return STATUS_FAILED;
    fault_arm(FAULT_ALLOCATE, 0, false);
    json_t *back = parse(text);
    assert_true(json_equal(back, payload));
    json_decref(back);
    mem_free(text);
    return STATUS_OK;
}

static void text_is_whole_or_missing(void **state) {
    (void)state;
    json_t *object = json_object();
    for (int i = 0; i < 200; i++) {
        char key[24];
        snprintf(key, sizeof key, "%.*s%d", i % 17, "aaaaaaaaaaaaaaaaa", i);
        assert_int_equal(json_object_set_new(object, key, json_integer(i)), 0);
    }
    json_faults(true);
    for (int nth = 1, missing = 1; missing; nth++) {
        fault_arm(FAULT_ALLOCATE, nth, false);
        missing = print_and_parse(object) != STATUS_OK;
        fault_arm(FAULT_ALLOCATE, 0, false);
        assert_true(missing || nth > 3);
    }
    json_faults(false);
    json_decref(object);
}

/* Without memory jansson reports no error and leaves the code as the caller had it. */
static void a_failed_allocation_is_no_wide_integer(void **state) {
    (void)state;
    static const char text[] = "{\"key\": \"value\"}";
    json_faults(true);
    for (int nth = 1, failed = 1; failed; nth++) {
        json_error_t error;
        bool wide;
        memset(&error, json_error_numeric_overflow, sizeof error);
        fault_arm(FAULT_ALLOCATE, nth, false);
        json_t *value = json_load(text, strlen(text), 0, &wide, &error);
        fault_arm(FAULT_ALLOCATE, 0, false);
        assert_false(wide);
        failed = !value;
        assert_true(failed || nth > 3);
        json_decref(value);
    }
    json_faults(false);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(malformed_text_is_refused),
        cmocka_unit_test(integers_beyond_64_bits_are_floats),
        cmocka_unit_test(a_byte_order_mark_is_passed_over),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(fields_are_read),
        cmocka_unit_test(wrong_fields_are_refused),
        cmocka_unit_test(texts_fit_their_buffers),
        cmocka_unit_test(unknown_fields_are_refused),
        cmocka_unit_test_setup_teardown(numbers_come_back_exactly, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(files_over_the_limit_are_refused, temp_folder_make, temp_folder_drop),
        cmocka_unit_test(damaged_text_is_survived),
        cmocka_unit_test(text_is_whole_or_missing),
        cmocka_unit_test(a_failed_allocation_is_no_wide_integer),
        cmocka_unit_test_setup_teardown(each_operation_may_fail, temp_folder_make, temp_folder_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
