/* Long words, long texts and several threads: the same ids however a text is cut. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "support/data_files.h"
#include "support/tokenizer_text.h"
#include "support/unit.h"
#include "text/tokenizer/tokenizer.h"

static const char *const names[] = {"gpt2",
                                    "llama3",
                                    "qwen2",
                                    "flags",
                                    "merged_with_next",
                                    "nfkd",
                                    "llama2",
                                    "llama2_spanning",
                                    "metaspace_first",
                                    "metaspace_always",
                                    "gemma",
                                    "many_normalizers",
                                    "some_bytes_fused",
                                    "tiktoken",
                                    "lines"};
enum { NAMES = sizeof names / sizeof *names, THREADS = 4 };

static void encode_in_parts(const struct tokenizer *tokenizer, const char *text, size_t bytes, size_t part,
                            struct token_ids *out) {
    struct text_chain *chain = encoding_chain(tokenizer, out);
    out->count = 0;
    for (size_t place = 0; place < bytes; place += part)
        assert_int_equal(text_chain_write(chain, text + place, part < bytes - place ? part : bytes - place, false),
                         STATUS_OK);
    assert_int_equal(text_chain_write(chain, "", 0, true), STATUS_OK);
    text_chain_free(chain);
}

static void assert_same_ids(const char *name, size_t part, const struct token_ids *a, const struct token_ids *b) {
    if (a->count != b->count || (a->count > 0 && memcmp(a->items, b->items, a->count * sizeof *a->items) != 0))
        fail_msg("%s: other ids in parts of %zu bytes (%zu for %zu)", name, part, b->count, a->count);
}

/* A text of words in which the tokens, blanks and broken bytes of all fixtures occur. */
static void text_make(struct text_buffer *out, size_t words) {
    static const char *const pieces[] = {"<|endoftext|>", " [1] [2]",  "tok0",     "\xff",         "\xE2\x82",
                                         "e\xCC\x81",     "   ",       "\n\n \t",  "<a><b><",      "\xED\x95\x9C",
                                         "12345678",      "'LL y'all", "\xF0\x9F", " spaced out  "};
    size_t bytes, place = 0;
    char *text = random_text(11, words, &bytes);
    for (size_t i = 0; place < bytes; i++) {
        size_t part = 40 + 13 * (i % 7);
        if (part > bytes - place) part = bytes - place;
        const char *piece = pieces[i % (sizeof pieces / sizeof *pieces)];
        assert_int_equal(text_append(out, text + place, part), STATUS_OK);
        assert_int_equal(text_append(out, piece, strlen(piece)), STATUS_OK);
        place += part;
    }
    mem_free(text);
}

static void long_texts_have_the_same_ids_in_parts(void **state) {
    (void)state;
    struct text_buffer text = {0};
    text_make(&text, 60000);
    for (size_t n = 0; n < NAMES; n++) {
        static const size_t parts[] = {13, 4096, 131073};
        struct tokenizer *tokenizer = tokenizer_fixture(names[n]);
        struct token_ids whole = {0}, ids = {0};
        assert_int_equal(tokenizer_encode(tokenizer, text.items, text.count, false, &whole), STATUS_OK);
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
            encode_in_parts(tokenizer, text.items, text.count, parts[i], &ids);
            assert_same_ids(names[n], parts[i], &whole, &ids);
        }
        vec_free(&whole);
        vec_free(&ids);
        tokenizer_free(tokenizer);
    }
    vec_free(&text);
}

/* A run of one character is one word, whatever its length: its ids are periodic, and decode to it. */
static void runs_of_one_character_are_one_word(void **state) {
    (void)state;
    static const char *const units[] = {"a", " ", "\n", "!", "7", "\xE6\xB2\xB3", "\xCC\xA3\xCC\x81", "[", "\xff"};
    for (size_t n = 0; n < NAMES; n++) {
        struct tokenizer *tokenizer = tokenizer_fixture(names[n]);
        for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
            struct text_buffer text = {0};
            struct token_ids whole = {0}, ids = {0};
            while (text.count < 150000)
                assert_int_equal(text_append(&text, units[u], strlen(units[u])), STATUS_OK);
            assert_int_equal(tokenizer_encode(tokenizer, text.items, text.count, false, &whole), STATUS_OK);
            encode_in_parts(tokenizer, text.items, text.count, 1000, &ids);
            assert_same_ids(names[n], 1000, &whole, &ids);
            assert_true(whole.count <= 3 * text.count + 16);
            assert_true(whole.count > 0 || strcmp(names[n], "many_normalizers") == 0); /* it strips white space */
            vec_free(&text);
            vec_free(&whole);
            vec_free(&ids);
        }
        tokenizer_free(tokenizer);
    }
}

/* "a" x 2^k with merges aa, aaaa, ... up to 16: each merge halves the run, so the ids are known. */
static void merges_of_a_run_go_from_the_left(void **state) {
    (void)state;
    static const char file[] =
        "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},\"model\":{\"vocab\":{\"a\":0,\"aa\":1,"
        "\"aaaa\":2,\"aaaaaaaa\":3},\"merges\":[\"a a\",\"aa aa\",\"aaaa aaaa\"]}}";
    enum { RUN = 8 * 50000 + 7 };
    static char text[RUN];
    struct tokenizer *tokenizer;
    struct token_ids ids = {0};
    memset(text, 'a', RUN);
    assert_int_equal(tokenizer_parse("run", file, strlen(file), &tokenizer), STATUS_OK);
    assert_int_equal(tokenizer_encode(tokenizer, text, RUN, false, &ids), STATUS_OK);
    assert_int_equal(ids.count, 50003);
    for (size_t i = 0; i < 50000; i++)
        assert_int_equal(ids.items[i], 3);
    assert_int_equal(ids.items[50000], 2);
    assert_int_equal(ids.items[50001], 1);
    assert_int_equal(ids.items[50002], 0);
    vec_free(&ids);
    tokenizer_free(tokenizer);
}

/* --- threads --- */

struct worker {
    pthread_t thread;
    const struct tokenizer *tokenizer;
    const struct text_buffer *text;
    struct token_ids ids;
    enum status status;
};

static void *work(void *payload) {
    struct worker *worker = payload;
    worker->status = tokenizer_encode(worker->tokenizer, worker->text->items, worker->text->count, true, &worker->ids);
    return NULL;
}

static void threads_share_a_tokenizer(void **state) {
    (void)state;
    struct tokenizer *tokenizer = tokenizer_fixture("qwen2");
    struct text_buffer text = {0};
    struct token_ids want = {0};
    struct worker workers[THREADS] = {0};
    text_make(&text, 10000);
    assert_int_equal(tokenizer_encode(tokenizer, text.items, text.count, true, &want), STATUS_OK);
    for (size_t i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.tokenizer = tokenizer, .text = &text};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
        assert_int_equal(workers[i].status, STATUS_OK);
        assert_same_ids("qwen2", i, &want, &workers[i].ids);
        vec_free(&workers[i].ids);
    }
    vec_free(&text);
    vec_free(&want);
    tokenizer_free(tokenizer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_texts_have_the_same_ids_in_parts),
        cmocka_unit_test(runs_of_one_character_are_one_word),
        cmocka_unit_test(merges_of_a_run_go_from_the_left),
        cmocka_unit_test(threads_share_a_tokenizer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
