/* Parallel tokenizing of text files gives the same ids as encoding in one piece, with any number of threads. */
/* ctest: LABELS long */
#include <jansson.h>
#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* cmocka.h needs the headers above. */
#include <cmocka.h>

#include "base/folder.h"
#include "base/mem.h"
#include "base/random.h"
#include "data/tokenize.h"
#include "support/data_files.h"
#include "support/temp_folder.h"
#include "support/tokenizer_text.h"

static struct tokenizer *tokenizer;
static uint32_t eos;
static const char spaced[] = "<|two words|>";

static int make_tokenizer(void **state) {
    if (temp_folder_make(state) != 0) return -1;
    static const char *const special[] = {"<|end|>", spaced};
    size_t bytes;
    char *text = random_text(1, 3000, &bytes);
    const char *path = temp_path(*state, "tokenizer.json");
    enum status status = tokenizer_train(text, bytes, 300, special, 2, path);
    mem_free(text);
    if (status == STATUS_OK) status = tokenizer_open(path, &tokenizer);
    if (status != STATUS_OK) print_error("%s\n", status_message());
    return status == STATUS_OK && tokenizer_find(tokenizer, "<|end|>", &eos) ? 0 : -1;
}

static int drop_tokenizer(void **state) {
    tokenizer_free(tokenizer);
    return temp_folder_drop(state);
}

/* All of a text, in waves of so many chunks. */
static enum status run_to_end(enum source_kind kind, int64_t eos_token, const char *text, size_t bytes, int chunks,
                              struct token_sink sink) {
    struct dataset_options options = {.tokenizer = tokenizer, .eos_token = eos_token};
    struct text_notes notes = {0};
    struct tokenizing *tokenizing;
    enum status status = STATUS_OK;
    struct file_input input = file_input_of_memory(text, bytes);
    TRY(tokenizing_create(&options, &(struct tokenizing_source){kind, NULL, "input", &input, &notes}, &tokenizing));
    while (status == STATUS_OK && tokenizing_done(tokenizing) < bytes) {
        size_t before = tokenizing_done(tokenizing);
        status = tokenizing_advance(tokenizing, (struct tokenize_effort){omp_get_max_threads(), chunks}, sink);
        assert_true(status != STATUS_OK || tokenizing_done(tokenizing) > before);
    }
    tokenizing_free(tokenizing);
    json_decref(notes.unread);
    return status;
}

static enum status run(enum source_kind kind, int64_t eos_token, const char *text, size_t bytes,
                       struct token_ids *out) {
    return run_to_end(kind, eos_token, text, bytes, TOKENIZE_CHUNKS_MAX, (struct token_sink){ids_collect, out});
}

static void expect_equal(const struct token_ids *a, const struct token_ids *b) {
    for (size_t i = 0; i < a->count && i < b->count; i++)
        if (a->items[i] != b->items[i]) fail_msg("id %zu: %u and %u", i, a->items[i], b->items[i]);
    assert_int_equal(a->count, b->count);
}

/* The ids of a .txt file are those of one call of tokenizer_encode, then EOS. */
static void expect_whole(const char *text, size_t bytes) {
    struct token_ids whole = {0};
    assert_int_equal(tokenizer_encode(tokenizer, text, bytes, true, &whole), STATUS_OK);
    assert_int_equal(vec_push(&whole, eos), STATUS_OK);
    int threads = omp_get_max_threads();
    for (int count = 1; count <= 3; count++) {
        struct token_ids ids = {0};
        omp_set_num_threads(count);
        if (run(SOURCE_TEXT, eos, text, bytes, &ids) != STATUS_OK) fail_msg("%s", status_message());
        expect_equal(&ids, &whole);
        vec_free(&ids);
    }
    omp_set_num_threads(threads);
    vec_free(&whole);
}

static void cut_text_has_the_ids_of_the_whole(void **state) {
    (void)state;
    for (uint64_t seed = 10; seed < 12; seed++) {
        size_t bytes;
        char *text = random_text(seed, 200000, &bytes);
        print_message("seed %llu: %zu bytes\n", (unsigned long long)seed, bytes);
        assert_true(bytes > 4 * 262144);
        expect_whole(text, bytes);
        mem_free(text);
    }
}

static struct utf8_damage damage_of(const char *text, size_t bytes, int chunks) {
    struct dataset_options options = {.tokenizer = tokenizer, .eos_token = -1};
    struct text_notes notes = {0};
    struct tokenize_effort effort = {omp_get_max_threads(), chunks};
    struct token_ids ids = {0};
    struct tokenizing *tokenizing;
    struct file_input input = file_input_of_memory(text, bytes);
    struct tokenizing_source source = {SOURCE_TEXT, NULL, "input", &input, &notes};
    assert_int_equal(tokenizing_create(&options, &source, &tokenizing), STATUS_OK);
    while (tokenizing_done(tokenizing) < bytes)
        assert_int_equal(tokenizing_advance(tokenizing, effort, (struct token_sink){ids_collect, &ids}), STATUS_OK);
    tokenizing_free(tokenizing);
    vec_free(&ids);
    return notes.damage;
}

/* What is repaired is counted over all chunks, as one sees it in the whole. */
static void what_is_not_utf8_is_counted(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int64_t bytes, parts, first;
    } cases[] = {
        {"Gr\xc3\xb6\xc3\x9f"
         "e \xf0\x9f\x99\x82",
         0, 0, 0},
        {"a\xe9 b\xff\xfe", 3, 3, 1},
        {"\xe6\x97", 2, 1, 0},
        {"ab\xe6\x97 \xed\xa0\x80", 5, 4, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct utf8_damage damage = damage_of(cases[i].text, strlen(cases[i].text), 1);
        assert_int_equal(damage.bytes, cases[i].bytes);
        assert_int_equal(damage.parts, cases[i].parts);
        assert_int_equal(damage.first, cases[i].first);
    }
    size_t bytes;
    char *text = random_text(21, 100000, &bytes);
    for (size_t i = 300000; i < bytes; i += 1000)
        text[i] = '\xe9';
    struct utf8_damage whole = {0};
    utf8_add_damage(&whole, text, bytes, 0);
    assert_true(whole.parts >= 100);
    for (int chunks = 1; chunks < 4; chunks++) {
        struct utf8_damage damage = damage_of(text, bytes, chunks);
        assert_memory_equal(&damage, &whole, sizeof whole);
    }
    mem_free(text);
}

static void small_texts_are_not_cut(void **state) {
    (void)state;
    static const char *const texts[] = {"x", " ", "\n", "one two", "\xff\xfe broken \xe6\x97"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        expect_whole(texts[i], strlen(texts[i]));
    struct token_ids ids = {0};
    assert_int_equal(run(SOURCE_TEXT, -1, "x", 1, &ids), STATUS_OK);
    assert_int_equal(ids.count, 1);
    vec_free(&ids);
}

/* Of every kind of split, normalizer and added token that the fixtures hold. */
static void cuts_suit_every_tokenizer(void **state) {
    (void)state;
    struct names names;
    size_t bytes;
    char *text = random_text(21, 120000, &bytes);
    assert_true(bytes > 2 * 262144);
    assert_int_equal(folder_list(BALLAST_FIXTURES "/tokenizers", &names), STATUS_OK);
    struct tokenizer *trained = tokenizer;
    int opened = 0;
    for (size_t i = 0; i < names.count; i++) {
        const char *ending = strstr(names.items[i], ".expected.json");
        if (!ending) continue;
        char name[256];
        snprintf(name, sizeof name, "%.*s.json", (int)(ending - names.items[i]), names.items[i]);
        print_message("%s\n", name);
        if (tokenizer_open(temp_path(BALLAST_FIXTURES "/tokenizers", name), &tokenizer) != STATUS_OK)
            fail_msg("%s", status_message());
        expect_whole(text, bytes);
        tokenizer_free(tokenizer);
        opened++;
    }
    tokenizer = trained;
    assert_true(opened >= 4);
    names_free(&names);
    mem_free(text);
}

/* Most blanks stand within an added token, where no cut may be. */
static void added_tokens_are_not_cut(void **state) {
    (void)state;
    enum { BYTES = 1 << 20 };
    char *text = mem_array(BYTES + 64, 1), *at = text;
    for (uint64_t i = 0; at < text + BYTES; i++)
        at = stpcpy(at, random_u64(3, RANDOM_TEST, 2, i) % 8 == 0 ? " river" : spaced);
    expect_whole(text, (size_t)(at - text));
    mem_free(text);
}

static void invalid_text_is_cut_like_any(void **state) {
    (void)state;
    size_t bytes;
    char *text = random_text(5, 100000, &bytes);
    for (size_t i = 0; i < bytes; i++) {
        uint64_t draw = random_u64(5, RANDOM_TEST, 3, i);
        if (draw % 5 == 0) text[i] = (char)(draw >> 8);
    }
    expect_whole(text, bytes);
    mem_free(text);
}

/* Without a place to cut, ids may differ from the whole's, but no text is lost. */
static void text_without_blanks_is_kept(void **state) {
    (void)state;
    enum { BYTES = 700000 };
    char *text = mem_array(BYTES + 8, 1), *at = text, *decoded;
    while (at < text + BYTES)
        at = stpcpy(at, "本x");
    size_t bytes;
    struct token_ids ids = {0};
    assert_int_equal(run(SOURCE_TEXT, -1, text, (size_t)(at - text), &ids), STATUS_OK);
    assert_int_equal(tokenizer_decode(tokenizer, ids.items, ids.count, true, &decoded, &bytes), STATUS_OK);
    assert_int_equal(bytes, at - text);
    assert_true(memcmp(decoded, text, bytes) == 0);
    mem_free(decoded);
    vec_free(&ids);
    mem_free(text);
}

enum { LINES = 6000, LINE_BYTES = 4096 };

/* JSON lines of random documents, blank and empty ones among them; ids of what they hold into `expected`. */
static char *make_lines(size_t *bytes, struct token_ids *expected) {
    char *lines = mem_array(LINES, LINE_BYTES), *at = lines;
    for (uint32_t i = 0; i < LINES; i++) {
        size_t text_bytes;
        char *text = random_text(100 + i, i % 7 == 3 ? 0 : i % 50, &text_bytes);
        json_t *value = json_pack("{s:i, s:s}", "id", i, "text", text);
        char *json = i % 11 == 5 ? NULL : json_dumps(value, i % 2 ? JSON_COMPACT : JSON_ENSURE_ASCII);
        if (json) {
            at = stpcpy(at, json);
            free(json);
            if (text_bytes > 0) {
                assert_int_equal(tokenizer_encode(tokenizer, text, text_bytes, true, expected), STATUS_OK);
                assert_int_equal(vec_push(expected, eos), STATUS_OK);
            }
        }
        *at++ = '\n';
        json_decref(value);
        mem_free(text);
    }
    *bytes = (size_t)(at - lines);
    return lines;
}

static void each_line_is_a_document(void **state) {
    (void)state;
    struct token_ids expected = {0};
    size_t bytes;
    char *lines = make_lines(&bytes, &expected);
    assert_true(bytes > 3 * 262144);
    int threads = omp_get_max_threads();
    for (int count = 1; count <= 3; count++) {
        struct token_ids ids = {0};
        omp_set_num_threads(count);
        if (run(SOURCE_JSONL, eos, lines, bytes, &ids) != STATUS_OK) fail_msg("%s", status_message());
        expect_equal(&ids, &expected);
        vec_free(&ids);
    }
    omp_set_num_threads(threads);
    vec_free(&expected);
    mem_free(lines);
}

/* The first bad line in the file's order is named, though later ones may be met first. */
static void bad_lines_are_named_by_number(void **state) {
    (void)state;
    struct token_ids expected = {0}, ids = {0};
    size_t bytes;
    char *lines = make_lines(&bytes, &expected);
    int line = 1, bad = 0;
    for (char *at = lines; at < lines + bytes; at++) {
        if (*at != '\n') continue;
        line++;
        if (line < 4000 || at[1] != '{') continue;
        at[1] = '!';
        if (bad == 0) bad = line;
    }
    char message[64];
    snprintf(message, sizeof message, "input: line %d: not valid JSON", bad);
    assert_int_equal(run(SOURCE_JSONL, eos, lines, bytes, &ids), STATUS_BAD_INPUT);
    if (!strstr(status_message(), message)) fail_msg("\"%s\" does not say \"%s\"", status_message(), message);
    vec_free(&ids);
    vec_free(&expected);
    mem_free(lines);
}

/* As a thread during training makes them, and as one who waits does. */
static void waves_of_any_size_give_the_same(void **state) {
    (void)state;
    size_t bytes;
    char *text = random_text(11, 120000, &bytes);
    struct token_ids expected = {0};
    assert_int_equal(run(SOURCE_TEXT, eos, text, bytes, &expected), STATUS_OK);
    for (int chunks = 1; chunks <= 3; chunks++) {
        struct token_ids ids = {0};
        assert_int_equal(run_to_end(SOURCE_TEXT, eos, text, bytes, chunks, (struct token_sink){ids_collect, &ids}),
                         STATUS_OK);
        expect_equal(&ids, &expected);
        vec_free(&ids);
    }
    vec_free(&expected);
    mem_free(text);
}

static enum status refuse(void *payload, const uint32_t *ids, size_t count) {
    (void)ids;
    (void)count;
    ++*(int *)payload;
    return status_set(STATUS_FAILED, "no space");
}

static void the_sink_can_stop_it(void **state) {
    (void)state;
    int calls = 0;
    enum status status = run_to_end(SOURCE_TEXT, -1, "some text", 9, 1, (struct token_sink){refuse, &calls});
    assert_int_equal(status, STATUS_FAILED);
    assert_string_equal(status_message(), "no space");
    assert_int_equal(calls, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cut_text_has_the_ids_of_the_whole),
        cmocka_unit_test(waves_of_any_size_give_the_same),
        cmocka_unit_test(what_is_not_utf8_is_counted),
        cmocka_unit_test(small_texts_are_not_cut),
        cmocka_unit_test(cuts_suit_every_tokenizer),
        cmocka_unit_test(added_tokens_are_not_cut),
        cmocka_unit_test(invalid_text_is_cut_like_any),
        cmocka_unit_test(text_without_blanks_is_kept),
        cmocka_unit_test(each_line_is_a_document),
        cmocka_unit_test(bad_lines_are_named_by_number),
        cmocka_unit_test(the_sink_can_stop_it),
    };
    return cmocka_run_group_tests(tests, make_tokenizer, drop_tokenizer);
}
