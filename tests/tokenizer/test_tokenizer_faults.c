/* Every allocation and file operation of the tokenizer fails in turn. Each gives a status and a message, and leaks
 * nothing. */
#include <string.h>

#include "base/file.h"
#include "support/fault_sweep.h"
#include "support/temp_folder.h"
#include "support/tokenizer_text.h"
#include "support/unit.h"
#include "text/tokenizer/tokenizer.h"

#define FIXTURE(name) BALLAST_FIXTURES "/tokenizers/" name ".json"

static enum status open_and_close(void *payload) {
    struct tokenizer *tokenizer;
    TRY(tokenizer_open(payload, &tokenizer));
    tokenizer_free(tokenizer);
    return STATUS_OK;
}

static void opening_survives_faults(void **state) {
    (void)state;
    static const char *const paths[] = {FIXTURE("gpt2_prefix_space"), FIXTURE("llama3"),        FIXTURE("flags"),
                                        FIXTURE("other_splits"),      FIXTURE("unknown_fused"), FIXTURE("llama2"),
                                        FIXTURE("metaspace_always"),  FIXTURE("gemma"),         FIXTURE("strip_right")};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        assert_true(fault_sweep(FAULT_ALLOCATE, false, open_and_close, (void *)paths[i]) > 20);
        assert_true(fault_sweep(FAULT_ALLOCATE, true, open_and_close, (void *)paths[i]) > 20);
    }
    assert_true(fault_sweep(FAULT_OPEN, false, open_and_close, (void *)paths[0]) > 0);
}

/* Awkward enough to take every road: tokens with white space, marks to be ordered, broken bytes, a long word. */
static const char text[] = "Hello  [1] [2]\xff tok0 q\xCC\x87\xCC\xA3\xCC\x87\xCC\xA3 \xED\x95\x9C\xEA\xB5\xAD <a><b> "
                           "123 déjà vu, elephantelephantelephantelephantelephantelephantelephantelephantelephant's\n";

static enum status encode_and_decode(void *payload) {
    struct token_ids ids = {0};
    char *back;
    enum status status = tokenizer_encode(payload, text, sizeof text - 1, true, &ids);
    if (status == STATUS_OK) status = tokenizer_decode(payload, ids.items, ids.count, true, &back, NULL);
    if (status == STATUS_OK) mem_free(back);
    vec_free(&ids);
    return status;
}

static void encoding_survives_faults(void **state) {
    (void)state;
    static const char *const paths[] = {
        FIXTURE("gpt2_prefix_space"),      FIXTURE("llama3"),        FIXTURE("flags"),  FIXTURE("nfkd"),
        FIXTURE("other_splits"),           FIXTURE("dropped_bytes"), FIXTURE("llama2"), FIXTURE("many_normalizers"),
        FIXTURE("metaspace_always_whole"), FIXTURE("byte_merges")};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        struct tokenizer *tokenizer;
        assert_int_equal(tokenizer_open(paths[i], &tokenizer), STATUS_OK);
        assert_true(fault_sweep(FAULT_ALLOCATE, false, encode_and_decode, tokenizer) > 5);
        assert_true(fault_sweep(FAULT_ALLOCATE, true, encode_and_decode, tokenizer) > 5);
        tokenizer_free(tokenizer);
    }
}

struct repeated {
    struct tokenizer_encoder *encoder;
    struct token_ids ids;
};

static enum status encode_again(void *payload) {
    struct repeated *repeated = payload;
    vec_free(&repeated->ids);
    return tokenizer_encoder_append(repeated->encoder, text, sizeof text - 1, false, true, &repeated->ids);
}

/* One encoder, failing again and again in the middle of a text, starts afresh each time. */
static void encoders_go_on_after_faults(void **state) {
    (void)state;
    struct tokenizer *tokenizer;
    struct token_ids want = {0};
    struct repeated repeated = {0};
    assert_int_equal(tokenizer_open(FIXTURE("flags"), &tokenizer), STATUS_OK);
    assert_int_equal(tokenizer_encode(tokenizer, text, sizeof text - 1, true, &want), STATUS_OK);
    assert_int_equal(tokenizer_encoder_create(tokenizer, &repeated.encoder), STATUS_OK);
    assert_true(fault_sweep(FAULT_ALLOCATE, false, encode_again, &repeated) > 5);
    assert_int_equal(repeated.ids.count, want.count);
    assert_memory_equal(repeated.ids.items, want.items, want.count * sizeof *want.items);
    tokenizer_encoder_free(repeated.encoder);
    vec_free(&repeated.ids);
    vec_free(&want);
    tokenizer_free(tokenizer);
}

static enum status train(void *payload) {
    static const char *const specials[] = {"<s>"};
    static const char words[] = "the cat and the hat and the bat sat and that was that; the cat sat \xff";
    return tokenizer_train(words, sizeof words - 1, 264, specials, 1, payload);
}

static void training_survives_faults(void **state) {
    static const enum fault_kind kinds[] = {FAULT_ALLOCATE, FAULT_OPEN, FAULT_WRITE, FAULT_SYNC, FAULT_RENAME};
    const char *path = temp_path(*state, "tokenizer.json");
    char *before, *after;
    size_t bytes, bytes_after;
    assert_int_equal(train((void *)path), STATUS_OK);
    assert_int_equal(file_read(path, 1 << 20, &before, &bytes), STATUS_OK);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        assert_true(fault_sweep(kinds[i], false, train, (void *)path) > 0);
    assert_int_equal(file_read(path, 1 << 20, &after, &bytes_after), STATUS_OK);
    assert_int_equal(bytes, bytes_after);
    assert_memory_equal(before, after, bytes);
    mem_free(before);
    mem_free(after);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opening_survives_faults),
        cmocka_unit_test(encoding_survives_faults),
        cmocka_unit_test(encoders_go_on_after_faults),
        cmocka_unit_test_setup_teardown(training_survives_faults, temp_folder_make, temp_folder_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
