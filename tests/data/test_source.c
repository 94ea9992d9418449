/* The files that DATA arguments select. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* cmocka.h needs the headers above. */
#include <cmocka.h>

#include "base/folder.h"
#include "data/source.h"
#include "support/fault_sweep.h"
#include "support/temp_folder.h"

static void expect_source(const struct source *source, const char *folder, const char *name, enum source_kind kind) {
    assert_string_equal(source->path, temp_path(folder, name));
    assert_int_equal(source->kind, kind);
}

static void files_are_known_by_their_ending(void **state) {
    static const char *const names[] = {"a.txt", "b.jsonl", "c.d.bin"};
    struct sources train = {0}, valid = {0};
    for (int i = 0; i < 3; i++) {
        temp_write_text(temp_path(*state, names[i]), "x");
        assert_int_equal(sources_add_train(temp_path(*state, names[i]), NULL, &train, &valid), STATUS_OK);
    }
    assert_int_equal(train.count, 3);
    assert_int_equal(valid.count, 0);
    expect_source(&train.items[0], *state, "a.txt", SOURCE_TEXT);
    expect_source(&train.items[1], *state, "b.jsonl", SOURCE_JSONL);
    expect_source(&train.items[2], *state, "c.d.bin", SOURCE_TOKENS);
    sources_free(&train);
}

static void other_files_are_refused_by_name(void **state) {
    static const char *const names[] = {"a.parquet", "b.json", "c", "txt", "d.TXT", "e.txt.gz"};
    struct sources train = {0}, valid = {0};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *path = temp_path(*state, names[i]);
        temp_write_text(path, "x");
        assert_int_equal(sources_add_train(path, NULL, &train, &valid), STATUS_BAD_INPUT);
        assert_non_null(strstr(status_message(), path));
        assert_non_null(strstr(status_hint_text(), ".jsonl"));
        assert_int_equal(sources_add_valid(path, NULL, &valid), STATUS_BAD_INPUT);
    }
    const char *missing = temp_path(*state, "missing.txt");
    assert_int_equal(sources_add_train(missing, NULL, &train, &valid), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), missing));
    assert_int_equal(train.count + valid.count, 0);
    /* A dot in a directory's name is no ending of the file's. */
    assert_int_equal(folder_create(temp_path(*state, "f.txt")), STATUS_OK);
    temp_write_text(temp_path(*state, "f.txt/data"), "x");
    assert_int_equal(sources_add_train(temp_path(*state, "f.txt/data"), NULL, &train, &valid), STATUS_BAD_INPUT);
}

static void expect_hint(const char *path, const char *content, const char *message, const char *hint) {
    struct sources train = {0}, valid = {0};
    temp_write_text(path, content);
    assert_int_equal(sources_add_train(path, NULL, &train, &valid), STATUS_BAD_INPUT);
    if (!strstr(status_message(), message) || !strstr(status_hint_text(), hint))
        fail_msg("\"%s\" (%s) does not say \"%s\" (%s)", status_message(), status_hint_text(), message, hint);
}

/* What data often come in is named, with what makes lines of it. */
static void common_files_get_a_hint(void **state) {
    expect_hint(temp_path(*state, "a.parquet"), "PAR1", "parquet is not read yet", "read_parquet");
    expect_hint(temp_path(*state, "a.csv"), "a,b", "tables are not read", "read_csv");
    expect_hint(temp_path(*state, "a.json"), " \n[{\"text\": \"a\"}]", "an array is read only as JSON lines",
                "jq -c '.[]'");
    expect_hint(temp_path(*state, "b.json"), "{\"text\": \"a\"}\n", "JSON is read only as JSON lines",
                "name it .jsonl");
    expect_hint(temp_path(*state, "c.json"), "", "JSON is read only as JSON lines", "name it .jsonl");
    expect_hint(temp_path(*state, "a.jsonl.gz"), "x", "compressed files are not read", "gunzip");
}

static void expect_bytes_refused(const char *path, const char *bytes, size_t count, const char *message) {
    struct sources train = {0}, valid = {0};
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(sources_add_train(path, NULL, &train, &valid), message ? STATUS_BAD_INPUT : STATUS_OK);
    if (message && !strstr(status_message(), message)) fail_msg("\"%s\" is not in: %s", message, status_message());
    sources_free(&train);
    sources_free(&valid);
}

static void other_encodings_are_refused(void **state) {
    const char *path = temp_path(*state, "wide.txt");
    expect_bytes_refused(path, "\xFF\xFEr\0i\0", 6, "wide.txt: is UTF-16; ");
    expect_bytes_refused(path, "\xFE\xFF\0r\0i", 6, "is UTF-16; ");
    expect_bytes_refused(path, "\xFF\xFE\0\0r\0\0\0", 8, "is UTF-32; ");
    expect_bytes_refused(path, "\0\0\xFE\xFF\0\0\0r", 8, "is UTF-32; ");
    expect_bytes_refused(path, "r\0i\0v\0e\0r\0", 10, "is UTF-16LE; ");
    expect_bytes_refused(path, "\0r\0i\0v\0e\0r", 10, "is UTF-16BE; ");
    expect_bytes_refused(path, "river\0stone\0", 12, NULL);
    expect_bytes_refused(path, "\0\0\0\0\0\0\0\0", 8, NULL);
}

static void lines_are_known_by_the_first(void **state) {
    static const struct {
        const char *line, *columns;
        enum source_kind kind;
    } cases[] = {
        {"\n{\"text\": \"\"}", "", SOURCE_JSONL},
        {"{\"prompt\": \"\", \"completion\": \"\", \"text\": \"\"}", "", SOURCE_PROMPTS},
        {"{\"messages\": [], \"text\": \"\"}", "", SOURCE_CHAT},
        {"{\"conversations\": []}", "", SOURCE_CHAT},
        {"{\"instruction\": \"\", \"input\": \"\", \"output\": \"\"}", "", SOURCE_ALPACA},
        {"{\"instruction\": \"\", \"output\": \"\", \"text\": \"\"}", "", SOURCE_JSONL},
        {"{\"question\": \"\", \"answer\": \"\"}", "", SOURCE_JSONL},
        {"{\"question\": \"\", \"answer\": \"\"}", "prompt=question,completion=answer", SOURCE_PROMPTS},
        {"{\"text\": \"\", \"body\": \"\"}", "text=body", SOURCE_JSONL},
        {"{\"text\": \"\"}", "messages=talk", SOURCE_CHAT},
        {"{\"text\": \"\"}", "instruction=q,output=a", SOURCE_ALPACA},
    };
    const char *path = temp_path(*state, "a.jsonl");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sources train = {0}, valid = {0};
        struct jsonl_columns columns;
        temp_write_text(path, cases[i].line);
        assert_int_equal(jsonl_columns_parse(cases[i].columns, &columns), STATUS_OK);
        assert_int_equal(sources_add_train(path, &columns, &train, &valid), STATUS_OK);
        if (train.items[0].kind != cases[i].kind) fail_msg("%s: kind %d", cases[i].line, (int)train.items[0].kind);
        jsonl_columns_free(&columns);
        sources_free(&train);
    }
}

static void folders_hold_train_and_valid(void **state) {
    static const char *const names[] = {"train.10.txt", "train.02.txt", "train.bin",
                                        "valid.jsonl",  "README.md",    "trainer"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        temp_write_text(temp_path(*state, names[i]), "x");
    struct sources train = {0}, valid = {0};
    assert_int_equal(sources_add_train(*state, NULL, &train, &valid), STATUS_OK);
    assert_int_equal(train.count, 3);
    expect_source(&train.items[0], *state, "train.02.txt", SOURCE_TEXT);
    expect_source(&train.items[1], *state, "train.10.txt", SOURCE_TEXT);
    expect_source(&train.items[2], *state, "train.bin", SOURCE_TOKENS);
    assert_int_equal(valid.count, 1);
    expect_source(&valid.items[0], *state, "valid.jsonl", SOURCE_JSONL);
    assert_int_equal(sources_add_valid(*state, NULL, &valid), STATUS_OK);
    assert_int_equal(valid.count, 2);
    expect_source(&valid.items[1], *state, "valid.jsonl", SOURCE_JSONL);
    temp_write_text(temp_path(*state, "train.parquet"), "x");
    assert_int_equal(sources_add_train(*state, NULL, &train, &valid), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "train.parquet"));
    sources_free(&train);
    sources_free(&valid);
}

static void folders_without_are_refused(void **state) {
    struct sources train = {0}, valid = {0};
    assert_int_equal(sources_add_train(*state, NULL, &train, &valid), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "train.*"));
    temp_write_text(temp_path(*state, "train.txt"), "x");
    assert_int_equal(sources_add_valid(*state, NULL, &valid), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "valid.*"));
    assert_int_equal(train.count + valid.count, 0);
}

static void weights_stand_behind_a_colon(void **state) {
    static const struct {
        const char *suffix;
        int64_t weight; /* -1: refused, -2: part of the path */
    } cases[] = {{":1", 1000000},
                 {":0.7", 700000},
                 {":.25", 250000},
                 {":3.", 3000000},
                 {":0.000001", 1},
                 {":1000000", 1000000000000},
                 {":0", -1},
                 {":0.0000001", -1},
                 {":1000000.000001", -1},
                 {":-1", -1},
                 {":1e3", -1},
                 {":1.2.3", -1},
                 {":99999999999999999999999", -1},
                 {":", -2},
                 {":half", -2},
                 {":1x", -2}};
    const char *path = temp_path(*state, "a.txt");
    temp_write_text(path, "x");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char argument[4096];
        size_t bytes;
        int64_t weight;
        snprintf(argument, sizeof argument, "%s%s", path, cases[i].suffix);
        enum status status = source_split_argument(argument, &bytes, &weight);
        if ((status == STATUS_OK) == (cases[i].weight == -1)) fail_msg("%s: %s", argument, status_message());
        if (status != STATUS_OK) {
            assert_non_null(strstr(status_message(), cases[i].suffix));
            continue;
        }
        assert_int_equal(bytes, cases[i].weight == -2 ? strlen(argument) : strlen(path));
        assert_int_equal(weight, cases[i].weight == -2 ? 0 : cases[i].weight);
    }
    /* A file of the whole name comes first. */
    temp_write_text(temp_path(*state, "b:2.txt"), "x");
    temp_write_text(temp_path(*state, "b:2"), "x");
    size_t bytes;
    int64_t weight;
    assert_int_equal(source_split_argument(temp_path(*state, "b:2"), &bytes, &weight), STATUS_OK);
    assert_int_equal(weight, 0);
}

static void weights_go_with_their_argument(void **state) {
    struct sources train = {0}, valid = {0};
    temp_write_text(temp_path(*state, "train.1.txt"), "x");
    temp_write_text(temp_path(*state, "train.2.txt"), "x");
    temp_write_text(temp_path(*state, "valid.txt"), "x");
    char folder[4096], file[4096];
    snprintf(folder, sizeof folder, "%s:0.5", (const char *)*state);
    snprintf(file, sizeof file, "%s:2", temp_path(*state, "train.1.txt"));
    assert_int_equal(sources_add_train(folder, NULL, &train, &valid), STATUS_OK);
    assert_int_equal(sources_add_train(file, NULL, &train, &valid), STATUS_OK);
    assert_int_equal(train.count, 3);
    static const int64_t weights[] = {500000, 500000, 2000000};
    static const size_t arguments[] = {0, 0, 1};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(train.items[i].weight, weights[i]);
        assert_int_equal(train.items[i].argument, arguments[i]);
    }
    assert_int_equal(valid.count, 1);
    assert_int_equal(sources_add_valid(file, NULL, &valid), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "a weight is for training data"));
    sources_free(&train);
    sources_free(&valid);
}

static enum status add_folder_once(void *folder) {
    struct sources train = {0}, valid = {0};
    enum status status = sources_add_train(folder, NULL, &train, &valid);
    sources_free(&train);
    sources_free(&valid);
    return status;
}

static void faults_are_reported(void **state) {
    temp_write_text(temp_path(*state, "train.txt"), "x");
    temp_write_text(temp_path(*state, "valid.txt"), "x");
    assert_true(fault_sweep(FAULT_ALLOCATE, false, add_folder_once, *state) >= 6);
    assert_int_equal(fault_sweep(FAULT_OPEN, false, add_folder_once, *state), 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(files_are_known_by_their_ending, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(other_files_are_refused_by_name, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(common_files_get_a_hint, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(other_encodings_are_refused, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(lines_are_known_by_the_first, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(folders_hold_train_and_valid, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(folders_without_are_refused, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(weights_stand_behind_a_colon, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(weights_go_with_their_argument, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(faults_are_reported, temp_folder_make, temp_folder_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
