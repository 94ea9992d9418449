/* llm.c's token files: valid ones, and the messages for invalid ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* cmocka.h needs the headers above. */
#include <cmocka.h>

#include "base/file.h"
#include "data/token_file.h"
#include "support/data_files.h"
#include "support/temp_folder.h"

static const uint32_t ids[] = {0, 1, 50256, 7, 65535, 12, 3};
enum { IDS = sizeof ids / sizeof ids[0] };

static enum status parse(const char *path, struct file_input *file, struct token_view *view) {
    assert_int_equal(file_input_open(path, file), STATUS_OK);
    enum status status = token_file_parse(path, file, view);
    if (status != STATUS_OK) file_input_close(file);
    return status;
}

static void expect_refused(const char *path, const char *message) {
    struct file_input file;
    struct token_view view;
    assert_int_equal(parse(path, &file, &view), STATUS_BAD_INPUT);
    if (!strstr(status_message(), message)) fail_msg("\"%s\" does not say \"%s\"", status_message(), message);
    assert_non_null(strstr(status_message(), path));
}

static void both_widths_are_read(void **state) {
    for (int token_bytes = 2; token_bytes <= 4; token_bytes += 2) {
        const char *path = temp_path(*state, "a.bin");
        token_file_write(path, token_bytes, ids, IDS);
        struct file_input file;
        struct token_view view;
        assert_int_equal(parse(path, &file, &view), STATUS_OK);
        assert_int_equal(view.count, IDS);
        assert_int_equal(view.token_bytes, token_bytes);
        assert_int_equal(view.id_limit, token_bytes == 2 ? 65536 : (int64_t)1 << 32);
        int32_t out[IDS];
        assert_int_equal(token_view_read(&view, 0, IDS, out), STATUS_OK);
        for (int i = 0; i < IDS; i++)
            assert_int_equal(out[i], ids[i]);
        assert_int_equal(token_view_read(&view, 2, 3, out), STATUS_OK);
        assert_int_equal(out[0], 50256);
        assert_int_equal(out[2], 65535);
        file_input_close(&file);
    }
}

static void one_that_is_cut_short_is_named(void **state) {
    const char *path = temp_path(*state, "cut.bin");
    struct file_input file;
    struct token_view view;
    int32_t out[IDS];
    uint64_t hash;
    token_file_write(path, 2, ids, IDS);
    assert_int_equal(parse(path, &file, &view), STATUS_OK);
    assert_int_equal(truncate(path, 1024 + 2 * 4), 0);
    assert_int_equal(token_view_read(&view, 0, 4, out), STATUS_OK);
    assert_int_equal(token_view_read(&view, 3, 2, out), STATUS_FAILED);
    assert_non_null(strstr(status_message(), path));
    assert_non_null(strstr(status_message(), "was cut short"));
    assert_int_equal(token_view_examine(path, &view, 1 << 20, &hash), STATUS_FAILED);
    file_input_close(&file);
}

static void bad_headers_are_refused(void **state) {
    const char *path = temp_path(*state, "bad.bin");
    temp_write(path, ids, sizeof ids);
    expect_refused(path, "header");
    temp_write(path, "", 0);
    expect_refused(path, "header");
    token_file_write_raw(path, 20240522, 1, IDS, 2, ids, IDS);
    expect_refused(path, "magic: 20240522");
    token_file_write_raw(path, TOKEN_MAGIC_16, 2, IDS, 2, ids, IDS);
    expect_refused(path, "version: 2");
    token_file_write_raw(path, TOKEN_MAGIC_16, TOKEN_VERSION_32, IDS, 4, ids, IDS);
    expect_refused(path, "version: 7");
    token_file_write_raw(path, TOKEN_MAGIC_32, TOKEN_VERSION_16, IDS, 2, ids, IDS);
    expect_refused(path, "version: 1");
}

static void counts_that_contradict_the_size_are_refused(void **state) {
    const char *path = temp_path(*state, "bad.bin");
    static const int32_t counts[] = {IDS - 1, IDS + 1, -1, 0, INT32_MAX, INT32_MIN, 2 * IDS};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        for (int token_bytes = 2; token_bytes <= 4; token_bytes += 2) {
            token_file_write_raw(path, token_bytes == 2 ? TOKEN_MAGIC_16 : TOKEN_MAGIC_32,
                                 token_bytes == 2 ? TOKEN_VERSION_16 : TOKEN_VERSION_32, counts[i], token_bytes, ids,
                                 IDS);
            expect_refused(path, "count: ");
            assert_int_equal(strstr(status_message(), "truncated") != NULL, counts[i] > IDS);
        }
}

static void ids_beyond_the_vocabulary_are_named(void **state) {
    enum { MANY = 300000, WRONG = 200001 };
    static uint32_t many[MANY];
    for (uint32_t i = 0; i < MANY; i++)
        many[i] = i % 1000;
    for (int token_bytes = 2; token_bytes <= 4; token_bytes += 2) {
        const char *path = temp_path(*state, "a.bin");
        struct file_input file;
        struct token_view view;
        uint64_t hash[3];
        many[WRONG] = 999;
        token_file_write(path, token_bytes, many, MANY);
        assert_int_equal(parse(path, &file, &view), STATUS_OK);
        assert_int_equal(token_view_examine(path, &view, 1000, &hash[0]), STATUS_OK);
        assert_int_equal(token_view_examine(path, &view, 1 << 20, &hash[1]), STATUS_OK);
        assert_true(hash[0] == hash[1]);
        file_input_close(&file);

        many[WRONG] = token_bytes == 2 ? 1000 : 0xFFFFFFFFu; /* not to be taken for -1 */
        token_file_write(path, token_bytes, many, MANY);
        assert_int_equal(parse(path, &file, &view), STATUS_OK);
        assert_int_equal(token_view_examine(path, &view, (int64_t)1 << 32, &hash[2]), STATUS_OK);
        assert_true(hash[0] != hash[2]);
        assert_int_equal(token_view_examine(path, &view, 1000, &hash[2]), STATUS_BAD_INPUT);
        char message[64];
        snprintf(message, sizeof message, "token %d has id %u", WRONG, many[WRONG]);
        assert_non_null(strstr(status_message(), message));
        assert_non_null(strstr(status_message(), path));
        assert_non_null(strstr(status_message(), "1000"));
        file_input_close(&file);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(both_widths_are_read, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(one_that_is_cut_short_is_named, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(bad_headers_are_refused, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(counts_that_contradict_the_size_are_refused, temp_folder_make,
                                        temp_folder_drop),
        cmocka_unit_test_setup_teardown(ids_beyond_the_vocabulary_are_named, temp_folder_make, temp_folder_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
