/* Marked ids of supervised texts: the ids equal those of the whole text, and the masks begin and end in the right
 * places. */
#include "support/unit.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/random.h"
#include "base/text.h"
#include "support/data_files.h"
#include "support/fault_sweep.h"
#include "support/temp_folder.h"
#include "support/tokenizer_text.h"
#include "text/chat/example.h"

static const char *const tokenizers[] = {"gpt2", "llama3", "qwen2", "gpt2_prefix_space", "nfkc"};
enum { TOKENIZERS = sizeof tokenizers / sizeof tokenizers[0] };

static void expect_whole(const struct tokenizer *tokenizer, const char *text, size_t bytes, bool special,
                         const struct token_ids *marked) {
    struct token_ids whole = {0};
    assert_int_equal(tokenizer_encode(tokenizer, text, bytes, special, &whole), STATUS_OK);
    assert_int_equal(marked->count, whole.count);
    for (size_t i = 0; i < whole.count; i++) {
        assert_int_equal(marked->items[i] & EXAMPLE_ID, whole.items[i]);
        assert_int_equal((marked->items[i] & EXAMPLE_FIRST) != 0, i == 0);
    }
    vec_free(&whole);
}

/* The text of the tokens of a range holds the range's own, and begins within a few characters of it. */
static void expect_text(const struct tokenizer *tokenizer, const struct token_ids *marked, const char *range,
                        size_t bytes) {
    struct token_ids trained = {0};
    for (size_t i = 0; i < marked->count; i++)
        if (marked->items[i] & EXAMPLE_TRAINED)
            assert_int_equal(vec_push(&trained, marked->items[i] & EXAMPLE_ID), STATUS_OK);
    char *text;
    size_t text_bytes;
    assert_int_equal(tokenizer_decode(tokenizer, trained.items, trained.count, false, &text, &text_bytes), STATUS_OK);
    if (text_bytes < bytes || memcmp(text + text_bytes - bytes, range, bytes) != 0)
        fail_msg("trained on \"%s\", not on \"%.*s\"", text, (int)bytes, range);
    assert_true(text_bytes - bytes <= 24);
    mem_free(text);
    vec_free(&trained);
}

/* Any split of a text: the ids are the whole's, and those after the border hold all that follows it. */
static void borders_are_found_in_any_text(void **state) {
    (void)state;
    for (int t = 0; t < TOKENIZERS; t++) {
        struct tokenizer *tokenizer = tokenizer_fixture(tokenizers[t]);
        struct example_encoder *encoder;
        assert_int_equal(example_encoder_create(tokenizer, &encoder), STATUS_OK);
        bool reversible = strcmp(tokenizers[t], "nfkc") != 0;
        for (uint64_t round = 0; round < 60; round++) {
            size_t bytes;
            char *text = random_text(40 + round, 30, &bytes);
            size_t border = random_u64(9, RANDOM_TEST, (uint32_t)t, round) % (bytes + 1);
            while (border < bytes && ((unsigned char)text[border] & 0xC0) == 0x80)
                border++;
            struct example_range range = {border, bytes, false};
            struct token_ids marked = {0};
            assert_int_equal(example_encode(encoder, text, bytes, &range, 1, false, -1, &marked), STATUS_OK);
            expect_whole(tokenizer, text, bytes, false, &marked);
            if (reversible) expect_text(tokenizer, &marked, text + border, bytes - border);
            vec_free(&marked);
            mem_free(text);
        }
        example_encoder_free(encoder);
        tokenizer_free(tokenizer);
    }
}

static void clean_borders_are_exact(void **state) {
    (void)state;
    static const char question[] = "Where does the river run?", answer[] = " Under a bridge.";
    struct tokenizer *tokenizer = tokenizer_fixture("gpt2");
    struct example_encoder *encoder;
    assert_int_equal(example_encoder_create(tokenizer, &encoder), STATUS_OK);
    char text[256];
    snprintf(text, sizeof text, "%s%s\n%s%s", question, answer, question, answer);
    size_t q = strlen(question), a = strlen(answer);
    struct example_range ranges[] = {{q, q + a, false}, {2 * q + a + 1, 2 * q + 2 * a + 1, false}};
    struct token_ids marked = {0}, ids = {0};
    assert_int_equal(example_encode(encoder, text, strlen(text), ranges, 2, false, 7, &marked), STATUS_OK);
    assert_int_equal(tokenizer_encode(tokenizer, question, q, false, &ids), STATUS_OK);
    size_t question_ids = ids.count, at = 0;
    ids.count = 0;
    assert_int_equal(tokenizer_encode(tokenizer, answer, a, false, &ids), STATUS_OK);
    size_t answer_ids = ids.count;
    for (int turn = 0; turn < 2; turn++) {
        for (size_t i = 0; i < question_ids; i++)
            assert_false(marked.items[at++] & EXAMPLE_TRAINED);
        for (size_t i = 0; i < answer_ids; i++)
            assert_true(marked.items[at++] & EXAMPLE_TRAINED);
        if (turn == 0) assert_false(marked.items[at++] & EXAMPLE_TRAINED); /* the newline */
    }
    assert_int_equal(marked.items[at++], 7 | EXAMPLE_TRAINED); /* the end */
    assert_int_equal(marked.count, at);
    vec_free(&ids);
    vec_free(&marked);
    example_encoder_free(encoder);
    tokenizer_free(tokenizer);
}

static void an_end_is_not_put_twice(void **state) {
    (void)state;
    struct tokenizer *tokenizer = tokenizer_fixture("gpt2");
    struct example_encoder *encoder;
    struct token_ids marked = {0};
    uint32_t last;
    assert_int_equal(tokenizer_encode(tokenizer, "bridge", 6, false, &marked), STATUS_OK);
    last = marked.items[marked.count - 1];
    size_t count = marked.count;
    marked.count = 0;
    assert_int_equal(example_encoder_create(tokenizer, &encoder), STATUS_OK);
    assert_int_equal(
        example_encode(encoder, "bridge", 6, &(struct example_range){0, 6, false}, 1, false, last, &marked), STATUS_OK);
    assert_int_equal(marked.count, count);
    marked.count = 0;
    /* Nothing but the end. */
    assert_int_equal(example_encode(encoder, "", 0, &(struct example_range){0, 0, false}, 1, false, 5, &marked),
                     STATUS_OK);
    assert_int_equal(marked.count, 1);
    assert_int_equal(marked.items[0], 5 | EXAMPLE_FIRST | EXAMPLE_TRAINED);
    vec_free(&marked);
    example_encoder_free(encoder);
    tokenizer_free(tokenizer);
}

static void too_much_work_is_refused(void **state) {
    (void)state;
    enum { BYTES = 1 << 16, RANGES = 4000 };
    struct tokenizer *tokenizer = tokenizer_fixture("gpt2");
    struct example_encoder *encoder;
    struct token_ids marked = {0};
    char *text = mem_array(BYTES, 1);
    struct example_range *ranges = mem_array(RANGES, sizeof *ranges);
    memset(text, ' ', BYTES);
    for (size_t i = 0; i < RANGES; i++)
        ranges[i] = (struct example_range){BYTES - 2 * RANGES + 2 * i, BYTES - 2 * RANGES + 2 * i + 1, false};
    assert_int_equal(example_encoder_create(tokenizer, &encoder), STATUS_OK);
    assert_int_equal(example_encode(encoder, text, BYTES, ranges, RANGES, false, -1, &marked), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "4000 turns are too many"));
    vec_free(&marked);
    mem_free(ranges);
    mem_free(text);
    example_encoder_free(encoder);
    tokenizer_free(tokenizer);
}

/* So many ranges that texts are not encoded from the beginning: what they mark is what each marks by itself. */
static void many_ranges_are_those_of_each(void **state) {
    (void)state;
    static const char *const names[] = {"gpt2", "gpt2_prefix_space", "nfkc", "llama2", "metaspace_first", "lines"};
    enum { RANGES = 120 };
    struct example_range ranges[RANGES];
    size_t bytes;
    char *text = random_text(31, 16000, &bytes);
    for (size_t i = 0; i < RANGES; i++) {
        size_t from = utf8_floor(text, i * (bytes / RANGES) + random_u64(31, RANDOM_TEST, 0, i) % 300);
        ranges[i] = (struct example_range){from, utf8_floor(text, from + bytes / RANGES - 400), false};
    }
    assert_true(RANGES * bytes > (1 << 23));
    for (size_t t = 0; t < sizeof names / sizeof names[0]; t++) {
        struct tokenizer *tokenizer = tokenizer_fixture(names[t]);
        struct example_encoder *encoder;
        struct token_ids all = {0}, one = {0};
        assert_int_equal(example_encoder_create(tokenizer, &encoder), STATUS_OK);
        if (example_encode(encoder, text, bytes, ranges, RANGES, true, -1, &all) != STATUS_OK)
            fail_msg("%s: %s", names[t], status_message());
        size_t trained = 0;
        for (size_t i = 0; i < RANGES; i += 7) {
            one.count = 0;
            assert_int_equal(example_encode(encoder, text, bytes, &ranges[i], 1, true, -1, &one), STATUS_OK);
            assert_int_equal(one.count, all.count);
            for (size_t k = 0; k < one.count; k++) {
                bool marked = one.items[k] & EXAMPLE_TRAINED;
                if (marked && !(all.items[k] & EXAMPLE_TRAINED)) fail_msg("%s: id %zu", names[t], k);
                trained += marked;
            }
            size_t first = 0; /* the one before is not trained on, nor is the one behind */
            while (!(one.items[first] & EXAMPLE_TRAINED))
                first++;
            assert_true(first == 0 || !(all.items[first - 1] & EXAMPLE_TRAINED));
        }
        assert_true(trained > 1000);
        vec_free(&all);
        vec_free(&one);
        example_encoder_free(encoder);
        tokenizer_free(tokenizer);
    }
    mem_free(text);
}

static enum status encode_once(void *payload) {
    struct example_encoder *encoder;
    struct token_ids marked = {0};
    TRY(example_encoder_create(payload, &encoder));
    enum status status =
        example_encode(encoder, "a river, a bridge", 17, &(struct example_range){8, 17, false}, 1, true, 5, &marked);
    vec_free(&marked);
    example_encoder_free(encoder);
    return status;
}

static void faults_are_reported(void **state) {
    (void)state;
    struct tokenizer *tokenizer = tokenizer_fixture("gpt2");
    assert_true(fault_sweep(FAULT_ALLOCATE, false, encode_once, tokenizer) >= 4);
    tokenizer_free(tokenizer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(borders_are_found_in_any_text), cmocka_unit_test(clean_borders_are_exact),
        cmocka_unit_test(an_end_is_not_put_twice),       cmocka_unit_test(too_much_work_is_refused),
        cmocka_unit_test(many_ranges_are_those_of_each), cmocka_unit_test(faults_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
