/* Tokenizers against the `tokenizers` library: ids and decoded text that tests/reference/make_tokenizer_fixtures.py
 * recorded. The texts are in many scripts, contain awkward cases and random strings (texts.json has their seed). */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/random.h"
#include "base/text.h"
#include "support/packed_json.h"
#include "support/tokenizer_text.h"
#include "support/unit.h"
#include "text/tokenizer/tokenizer.h"

static const char *const names[] = {"gpt2",
                                    "gpt2_prefix_space",
                                    "llama3",
                                    "qwen2",
                                    "flags",
                                    "nfd",
                                    "nfkc",
                                    "nfkd",
                                    "removed",
                                    "removed_inverted",
                                    "contiguous",
                                    "merged_with_previous",
                                    "merged_with_next",
                                    "other_splits",
                                    "unknown",
                                    "unknown_fused",
                                    "dropped_bytes",
                                    "shuffled_merges",
                                    "llama2",
                                    "llama2_normalized",
                                    "llama2_spanning",
                                    "metaspace_always",
                                    "metaspace_always_whole",
                                    "metaspace_first",
                                    "metaspace_first_split",
                                    "metaspace_first_normalized",
                                    "metaspace_never",
                                    "gemma",
                                    "characters",
                                    "characters_fused",
                                    "some_bytes",
                                    "some_bytes_fused",
                                    "byte_merges",
                                    "many_normalizers",
                                    "strip_left",
                                    "strip_right",
                                    "words",
                                    "delimiter_first",
                                    "byte_level_fallback",
                                    "tiktoken",
                                    "lines"};
enum { NAMES = sizeof names / sizeof *names, LARGEST_FIXTURE = 1 << 22 };

static json_t *texts_file;
static const json_t *texts;

static json_t *expected_read(const char *name) {
    char file[512];
    snprintf(file, sizeof file, "tokenizers/%s.expected.json.gz", name);
    return packed_json_read(file);
}

/* A text of the fixtures: a string, or {"hex": ...}. */
static void text_read(const json_t *value, struct text_buffer *out) {
    out->count = 0;
    if (json_is_string(value)) {
        assert_int_equal(text_append(out, json_string_value(value), json_string_length(value)), STATUS_OK);
        return;
    }
    const char *hex = json_string_value(json_object_get(value, "hex"));
    assert_non_null(hex);
    for (unsigned byte; *hex; hex += 2) {
        assert_int_equal(sscanf(hex, "%2x", &byte), 1);
        assert_int_equal(text_append(out, &(char){(char)byte}, 1), STATUS_OK);
    }
}

static void ids_equal(const char *name, size_t index, const char *how, const struct token_ids *ids,
                      const json_t *want) {
    for (size_t i = 0; i < ids->count && i < json_array_size(want); i++)
        if (ids->items[i] != json_integer_value(json_array_get(want, i)))
            fail_msg("%s, text %zu, %s: id %zu is %u", name, index, how, i, ids->items[i]);
    if (ids->count != json_array_size(want))
        fail_msg("%s, text %zu, %s: %zu ids for %zu", name, index, how, ids->count, json_array_size(want));
}

static void decodes_to(const struct tokenizer *tokenizer, const char *name, size_t index, const struct token_ids *ids,
                       bool skip, const struct text_buffer *want) {
    char *text;
    size_t bytes;
    assert_int_equal(tokenizer_decode(tokenizer, ids->items, ids->count, skip, &text, &bytes), STATUS_OK);
    if (bytes != want->count || (bytes > 0 && memcmp(text, want->items, bytes) != 0))
        fail_msg("%s, text %zu: decoded to \"%s\"", name, index, text);
    assert_int_equal(text[bytes], '\0');
    mem_free(text);
}

struct streamed {
    struct text_buffer text;
    bool cut; /* within a character */
};

static enum status text_gather(void *payload, const char *text, size_t bytes) {
    struct streamed *streamed = payload;
    streamed->cut |= bytes == 0 || utf8_valid_bytes(text, bytes) != bytes;
    return text_append(&streamed->text, text, bytes);
}

/* The same id by id. Where nothing is broken it is the same text; nothing ever comes out in half characters. */
static void streams_to(const struct tokenizer *tokenizer, const char *name, size_t index, const struct token_ids *ids,
                       bool skip, const struct text_buffer *want) {
    struct tokenizer_decoder *decoder;
    assert_int_equal(tokenizer_decoder_create(tokenizer, skip, &decoder), STATUS_OK);
    bool broken = want->count > 0 && memmem(want->items, want->count, "\xEF\xBF\xBD", 3) != NULL;
    for (size_t again = 0; again < 2; again++) {
        struct streamed streamed = {0};
        const struct tokenizer_text_sink sink = {text_gather, &streamed};
        for (size_t i = 0; i < ids->count; i++)
            assert_int_equal(tokenizer_decoder_push(decoder, &ids->items[i], 1, sink), STATUS_OK);
        assert_int_equal(tokenizer_decoder_finish(decoder, sink), STATUS_OK);
        bool same = streamed.text.count == want->count &&
                    (want->count == 0 || memcmp(streamed.text.items, want->items, want->count) == 0);
        if (streamed.cut || !(same || broken))
            fail_msg("%s, text %zu: streamed as \"%.*s\"", name, index, (int)streamed.text.count, streamed.text.items);
        vec_free(&streamed.text);
    }
    tokenizer_decoder_free(decoder);
}

/* The same text in parts: single bytes, and cuts drawn from its number. */
static void encode_in_parts(const struct tokenizer *tokenizer, const struct text_buffer *text, uint64_t seed,
                            struct token_ids *out) {
    struct text_chain *chain = encoding_chain(tokenizer, out);
    out->count = 0;
    for (size_t place = 0, part; place < text->count; place += part) {
        part = seed % 3 == 0 ? 1 : 1 + random_u64(seed, RANDOM_TEST, 0, place) % 37;
        if (part > text->count - place) part = text->count - place;
        assert_int_equal(text_chain_write(chain, text->items + place, part, false), STATUS_OK);
    }
    assert_int_equal(text_chain_write(chain, "", 0, true), STATUS_OK);
    text_chain_free(chain);
}

/* Decoding should give a recorded text, else what `wanted` holds; null is recorded where the library panics. */
static void decoding_check(const struct tokenizer *tokenizer, const char *name, size_t index,
                           const struct token_ids *ids, bool skip, const json_t *recorded, struct text_buffer *wanted) {
    if (recorded && json_is_null(recorded)) return;
    if (recorded) text_read(recorded, wanted);
    decodes_to(tokenizer, name, index, ids, skip, wanted);
    streams_to(tokenizer, name, index, ids, skip, wanted);
}

static void text_check(const struct tokenizer *tokenizer, struct tokenizer_encoder *encoder, const char *name,
                       size_t index, const json_t *expected) {
    const json_t *want = json_array_get(json_object_get(expected, "ids"), index);
    struct text_buffer text = {0}, wanted = {0};
    struct token_ids ids = {0}, again = {0};
    if (json_is_null(want)) return;
    text_read(json_array_get(texts, index), &text);
    assert_int_equal(tokenizer_encode(tokenizer, text.items, text.count, false, &ids), STATUS_OK);
    ids_equal(name, index, "whole", &ids, want);
    assert_int_equal(tokenizer_encoder_append(encoder, text.items, text.count, false, false, &again), STATUS_OK);
    ids_equal(name, index, "by an encoder of several texts", &again, want);
    encode_in_parts(tokenizer, &text, index, &again);
    ids_equal(name, index, "in parts", &again, want);
    assert_int_equal(text_append_repaired(&wanted, text.items, text.count), STATUS_OK);
    char key[24];
    snprintf(key, sizeof key, "%zu", index);
    for (size_t skip = 0; skip < 2; skip++)
        decoding_check(tokenizer, name, index, &ids, skip == 1,
                       json_object_get(json_object_get(expected, skip ? "skipped" : "decoded"), key), &wanted);
    vec_free(&text);
    vec_free(&wanted);
    vec_free(&ids);
    vec_free(&again);
}

static void texts_have_the_ids_of_the_library(void **state) {
    (void)state;
    for (size_t n = 0; n < NAMES; n++) {
        json_t *expected = expected_read(names[n]);
        struct tokenizer *tokenizer = tokenizer_fixture(names[n]);
        struct tokenizer_encoder *encoder;
        assert_int_equal(tokenizer_encoder_create(tokenizer, &encoder), STATUS_OK);
        assert_int_equal(json_array_size(json_object_get(expected, "ids")), json_array_size(texts));
        for (size_t i = 0; i < json_array_size(texts); i++)
            text_check(tokenizer, encoder, names[n], i, expected);
        tokenizer_encoder_free(encoder);
        tokenizer_free(tokenizer);
        json_decref(expected);
    }
}

static void templates_put_special_tokens_around(void **state) {
    (void)state;
    for (size_t n = 0; n < NAMES; n++) {
        json_t *expected = expected_read(names[n]);
        struct tokenizer *tokenizer = tokenizer_fixture(names[n]);
        const json_t *want = json_object_get(expected, "template");
        assert_true(json_array_size(want) >= 4);
        for (size_t i = 0; i < json_array_size(want); i++) {
            struct text_buffer text = {0};
            struct token_ids ids = {0};
            text_read(json_array_get(texts, i), &text);
            assert_int_equal(tokenizer_encode(tokenizer, text.items, text.count, true, &ids), STATUS_OK);
            ids_equal(names[n], i, "with special tokens", &ids, json_array_get(want, i));
            vec_free(&text);
            vec_free(&ids);
        }
        tokenizer_free(tokenizer);
        json_decref(expected);
    }
}

/* Ids drawn at random, some past the vocabulary: most do not decode to UTF-8. */
static void any_ids_decode_as_in_the_library(void **state) {
    (void)state;
    for (size_t n = 0; n < NAMES; n++) {
        json_t *expected = expected_read(names[n]);
        struct tokenizer *tokenizer = tokenizer_fixture(names[n]);
        const json_t *cases = json_object_get(expected, "decode");
        assert_true(json_array_size(cases) > 0);
        for (size_t i = 0; i < json_array_size(cases); i++) {
            const json_t *one = json_array_get(cases, i), *list = json_array_get(one, 0);
            struct token_ids ids = {0};
            struct text_buffer want = {0};
            for (size_t k = 0; k < json_array_size(list); k++)
                assert_int_equal(vec_push(&ids, (uint32_t)json_integer_value(json_array_get(list, k))), STATUS_OK);
            for (size_t skip = 0; skip < 2; skip++)
                decoding_check(tokenizer, names[n], i, &ids, skip == 1, json_array_get(one, 1 + skip), &want);
            vec_free(&ids);
            vec_free(&want);
        }
        tokenizer_free(tokenizer);
        json_decref(expected);
    }
}

static void tokens_are_found_by_content(void **state) {
    (void)state;
    struct tokenizer *tokenizer = tokenizer_fixture("llama3");
    uint32_t begin, other;
    assert_true(tokenizer_find(tokenizer, "<|begin_of_text|>", &begin));
    assert_true(tokenizer_is_special(tokenizer, begin));
    assert_true(tokenizer_find(tokenizer, "<|reserved_special_token_11|>", &other));
    assert_int_equal(tokenizer_vocab_size(tokenizer), (int64_t)other + 1);
    assert_true(tokenizer_find(tokenizer, "Ġelephant", &other));
    assert_false(tokenizer_is_special(tokenizer, other));
    assert_false(tokenizer_is_special(tokenizer, UINT32_MAX));
    assert_false(tokenizer_find(tokenizer, "<|begin_of_text", &other));
    assert_false(tokenizer_find(tokenizer, "", &other));
    tokenizer_free(tokenizer);
    tokenizer_free(NULL);
}

static int texts_open(void **state) {
    (void)state;
    if (json_read_object(BALLAST_FIXTURES "/tokenizers/texts.json", LARGEST_FIXTURE, &texts_file) != STATUS_OK)
        return -1;
    texts = json_object_get(texts_file, "texts");
    print_message("random texts: seed %lld\n", json_integer_value(json_object_get(texts_file, "seed")));
    return 0;
}

static int texts_close(void **state) {
    (void)state;
    json_decref(texts_file);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_have_the_ids_of_the_library),
        cmocka_unit_test(templates_put_special_tokens_around),
        cmocka_unit_test(any_ids_decode_as_in_the_library),
        cmocka_unit_test(tokens_are_found_by_content),
    };
    return cmocka_run_group_tests(tests, texts_open, texts_close);
}
