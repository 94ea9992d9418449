/* Training gives the tokens and merges of the `tokenizers` library, and a file that can be read. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "support/temp_folder.h"
#include "support/tokenizer_text.h"
#include "support/unit.h"
#include "text/tokenizer/tokenizer.h"

static const char *const specials[] = {"<|endoftext|>", "<|pad|>"};
enum { SPECIALS = 2, BYTES = 256, VOCAB = 1000, LARGEST_FIXTURE = 1 << 22 };

static char *text;
static size_t text_bytes;

static int text_open(void **state) {
    (void)state;
    if (file_read(BALLAST_FIXTURES "/tokenizers/train.txt", LARGEST_FIXTURE, &text, &text_bytes) != STATUS_OK)
        fail_msg("%s", status_message());
    return 0;
}

static int text_close(void **state) {
    (void)state;
    mem_free(text);
    return 0;
}

static json_t *json_open(const char *path) {
    json_t *file;
    if (json_read_object(path, LARGEST_FIXTURE, &file) != STATUS_OK) fail_msg("%s", status_message());
    return file;
}

static void merges_are_those_of_the_library(void **state) {
    const char *path = temp_path(*state, "tokenizer.json");
    if (tokenizer_train(text, text_bytes, VOCAB, specials, SPECIALS, path) != STATUS_OK)
        fail_msg("%s", status_message());
    json_t *made = json_open(path), *want = json_open(BALLAST_FIXTURES "/tokenizers/trained.json");
    const json_t *model = json_object_get(made, "model");
    assert_int_equal(json_object_size(json_object_get(want, "vocab")), VOCAB);
    assert_true(json_equal(json_object_get(model, "vocab"), json_object_get(want, "vocab")));
    assert_true(json_equal(json_object_get(model, "merges"), json_object_get(want, "merges")));
    json_decref(made);
    json_decref(want);
}

static void the_file_is_a_tokenizer(void **state) {
    const char *path = temp_path(*state, "tokenizer.json");
    struct tokenizer *tokenizer;
    struct token_ids ids = {0};
    char *back;
    size_t bytes;
    uint32_t id;
    assert_int_equal(tokenizer_train(text, text_bytes, VOCAB, specials, SPECIALS, path), STATUS_OK);
    if (tokenizer_open(path, &tokenizer) != STATUS_OK) fail_msg("%s", status_message());
    assert_int_equal(tokenizer_vocab_size(tokenizer), VOCAB);
    for (uint32_t i = 0; i < SPECIALS; i++) {
        assert_true(tokenizer_find(tokenizer, specials[i], &id) && id == i);
        assert_true(tokenizer_is_special(tokenizer, i));
    }
    assert_int_equal(tokenizer_encode(tokenizer, text, text_bytes, true, &ids), STATUS_OK);
    assert_in_range(ids.count, text_bytes / 8, text_bytes / 2);
    assert_int_equal(tokenizer_decode(tokenizer, ids.items, ids.count, false, &back, &bytes), STATUS_OK);
    assert_int_equal(bytes, text_bytes);
    assert_memory_equal(back, text, bytes);
    mem_free(back);
    vec_free(&ids);
    tokenizer_free(tokenizer);
}

static void the_same_text_gives_the_same_file(void **state) {
    const char *paths[2] = {temp_path(*state, "a.json"), temp_path(*state, "b.json")};
    char *made[2];
    size_t bytes[2];
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(tokenizer_train(text, text_bytes, 500, specials, SPECIALS, paths[i]), STATUS_OK);
        assert_int_equal(file_read(paths[i], LARGEST_FIXTURE, &made[i], &bytes[i]), STATUS_OK);
    }
    assert_int_equal(bytes[0], bytes[1]);
    assert_memory_equal(made[0], made[1], bytes[0]);
    mem_free(made[0]);
    mem_free(made[1]);
}

static void expect_refused(const char *path, const char *input, int64_t vocab, const char *const *tokens, size_t count,
                           const char *words) {
    assert_int_equal(tokenizer_train(input, strlen(input), vocab, tokens, count, path), STATUS_BAD_INPUT);
    if (!strstr(status_message(), words)) fail_msg("\"%s\" does not say \"%s\"", status_message(), words);
    assert_false(file_exists(path));
}

static void what_cannot_be_trained_is_refused(void **state) {
    const char *path = temp_path(*state, "tokenizer.json");
    const char *const twice[] = {"<s>", "<s>"}, *const empty[] = {""}, *const broken[] = {"\xff"};
    /* ab and abab; " a" occurs once, and is no pair worth a token. */
    expect_refused(path, "abab abab a", 300, NULL, 0, "too small for a vocabulary of 300 tokens: it gives 258");
    assert_non_null(strstr(status_hint_text(), "258"));
    expect_refused(path, "", 257, NULL, 0, "it gives 256");
    expect_refused(path, "abab", 257, specials, SPECIALS, "bytes and special tokens take 258");
    expect_refused(path, "abab", -1, NULL, 0, "a vocabulary of -1 tokens");
    expect_refused(path, "abab", (int64_t)1 << 40, NULL, 0, "must be 0 to");
    expect_refused(path, "abab", 300, twice, 2, "<s>: is there twice");
    expect_refused(path, "abab", 300, empty, 1, "special token 0");
    expect_refused(path, "abab", 300, broken, 1, "special token 0");
}

/* The number that the message names can be reached; one more cannot. */
static void the_reachable_number_is_right(void **state) {
    static const char input[] = "abab abab a", *bytes_only = "";
    const char *path = temp_path(*state, "tokenizer.json");
    assert_int_equal(tokenizer_train(input, strlen(input), 258, NULL, 0, path), STATUS_OK);
    assert_int_equal(tokenizer_train(input, strlen(input), 259, NULL, 0, path), STATUS_BAD_INPUT);
    assert_int_equal(tokenizer_train(bytes_only, 0, BYTES, NULL, 0, path), STATUS_OK);
    struct tokenizer *tokenizer;
    assert_int_equal(tokenizer_open(path, &tokenizer), STATUS_OK);
    assert_int_equal(tokenizer_vocab_size(tokenizer), BYTES);
    tokenizer_free(tokenizer);
}

/* Text that is not UTF-8 is repaired first, as for encoding. */
static void broken_text_is_fixed(void **state) {
    const char *path = temp_path(*state, "tokenizer.json");
    struct tokenizer *tokenizer;
    uint32_t id;
    assert_int_equal(tokenizer_train("\xff\xff \xff\xff", 5, 259, NULL, 0, path), STATUS_OK);
    assert_int_equal(tokenizer_open(path, &tokenizer), STATUS_OK);
    assert_true(tokenizer_find(tokenizer, "ï¿½", &id)); /* EF BF BD in the byte alphabet */
    tokenizer_free(tokenizer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(merges_are_those_of_the_library, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(the_file_is_a_tokenizer, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(the_same_text_gives_the_same_file, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(what_cannot_be_trained_is_refused, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(the_reachable_number_is_right, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(broken_text_is_fixed, temp_folder_make, temp_folder_drop),
    };
    return cmocka_run_group_tests(tests, text_open, text_close);
}
