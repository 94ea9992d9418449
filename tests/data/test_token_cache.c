/* The token cache: when it is reused and recreated. A failure leaves no files behind. */
/* ctest: LABELS long */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/folder.h"
#include "base/mem.h"
#include "base/terminal.h"
#include "data/dataset.h"
#include "data/token_file.h"
#include "data/tokenize.h"
#include "support/data_files.h"
#include "support/data_place.h"
#include "support/dataset_fill.h"
#include "support/fault_sweep.h"
#include "support/temp_folder.h"
#include "support/tokenizer_text.h"
#include "support/unit.h"

/* One directory with text.txt and tokenizer.json, and the directory of the cache below one that is not there either. */
struct place {
    struct data_place base;
    char text_path[4096];
    struct source source;
    struct dataset_options options;
};

static int make_place(void **state) {
    struct place *place = *state = data_place_make(sizeof *place, 300, true);
    snprintf(place->text_path, sizeof place->text_path, "%s/text.txt", place->base.folder);
    snprintf(place->base.cache_folder, sizeof place->base.cache_folder, "%s/a/cache", place->base.folder);
    place->source = (struct source){.path = place->text_path, .kind = SOURCE_TEXT};
    place->options = (struct dataset_options){.cache_folder = place->base.cache_folder,
                                              .tokenizer = place->base.tokenizer,
                                              .tokenizer_path = place->base.tokenizer_path,
                                              .vocab_size = 1 << 20};
    random_text_write(place->text_path, 2, 500);
    return 0;
}

static ino_t cache_identity(const struct place *place) {
    struct stat info;
    assert_int_equal(stat(temp_only(place->base.cache_folder), &info), 0);
    return info.st_ino;
}

/* Opens and makes what is missing, one chunk at a time. */
static enum status open_whole(const struct place *place, struct token_cache **out) {
    struct token_cache *cache;
    enum status status = STATUS_OK;
    TRY(token_cache_open(&place->options, &place->source, &cache));
    while (status == STATUS_OK && !token_cache_whole(cache))
        status = token_cache_advance(cache, (struct tokenize_effort){1, 1});
    if (status == STATUS_OK)
        *out = cache;
    else
        token_cache_close(cache);
    return status;
}

static enum status open_and_close(const struct place *place) {
    struct token_cache *cache;
    TRY(open_whole(place, &cache));
    token_cache_close(cache);
    return STATUS_OK;
}

/* Opens, compares with the ids of the text as it is now, closes. */
static void expect_right(const struct place *place, int token_bytes) {
    struct token_cache *cache;
    char *text;
    size_t bytes;
    struct token_ids ids = {0};
    if (open_whole(place, &cache) != STATUS_OK) fail_msg("%s", status_message());
    struct token_view view = token_cache_view(cache);
    assert_int_equal(file_read(place->text_path, 1 << 24, &text, &bytes), STATUS_OK);
    assert_int_equal(tokenizer_encode(place->base.tokenizer, text, bytes, false, &ids), STATUS_OK);
    if (place->options.eos_token >= 0) assert_int_equal(vec_push(&ids, (uint32_t)place->options.eos_token), STATUS_OK);
    assert_int_equal(view.count, ids.count);
    assert_int_equal(view.token_bytes, token_bytes);
    for (size_t i = 0; i < ids.count; i++) {
        int32_t token;
        assert_int_equal(token_view_read(&view, (int64_t)i, 1, &token), STATUS_OK);
        assert_int_equal(token, ids.items[i]);
        assert_true(token < view.id_limit);
    }
    vec_free(&ids);
    mem_free(text);
    token_cache_close(cache);
}

static void a_good_cache_is_used_again(void **state) {
    const struct place *place = *state;
    expect_right(place, 2);
    ino_t first = cache_identity(place);
    expect_right(place, 2);
    assert_true(cache_identity(place) == first);
    /* Written again with the same words: the content is what counts. */
    random_text_write(place->text_path, 2, 500);
    expect_right(place, 2);
    assert_true(cache_identity(place) == first);
}

static char noted[1000];

static void keep_note(bool warning, const char *text) {
    (void)warning;
    if (strstr(text, "tokenizing again")) snprintf(noted, sizeof noted, "%s", text);
}

/* Makes the ids anew, with a note that says why. */
static void expect_again(const struct place *place, const char *why) {
    char expected[5000];
    noted[0] = '\0';
    log_listen(keep_note);
    expect_right(place, 2);
    log_listen(NULL);
    snprintf(expected, sizeof expected, "%s: %s; tokenizing again", place->text_path, why);
    assert_string_equal(noted, expected);
}

/* After any of these the old cache must not be taken. */
static void a_stale_cache_is_recreated(void **state) {
    struct place *place = *state;
    expect_right(place, 2);
    ino_t before = cache_identity(place);
    random_text_write(place->text_path, 3, 500);
    expect_again(place, "changed since it was tokenized");
    assert_true(cache_identity(place) != before);

    before = cache_identity(place);
    place->options.eos_token = -1;
    expect_again(place, "was tokenized with other settings");
    assert_true(cache_identity(place) != before);

    before = cache_identity(place);
    data_place_train(&place->base, 310, true);
    place->options.tokenizer = place->base.tokenizer;
    expect_again(place, "was tokenized by another tokenizer");
    assert_true(cache_identity(place) != before);

    place->options.eos_token = 70000; /* which takes more than 16 bits */
    expect_right(place, 4);
    expect_right(place, 4);
}

/* Its footer, with the key first, is whole. */
static void a_cache_of_another_version_is_recreated(void **state) {
    enum { FOOTER_BYTES = sizeof(struct token_cache_key) + sizeof(struct utf8_damage) + 4 * sizeof(uint64_t) };
    const struct place *place = *state;
    expect_right(place, 2);
    char *cache;
    size_t bytes;
    assert_int_equal(file_read(temp_only(place->base.cache_folder), 1 << 24, &cache, &bytes), STATUS_OK);
    char *footer = cache + bytes - FOOTER_BYTES;
    uint64_t version = TOKEN_CACHE_VERSION - 1;
    memcpy(footer + offsetof(struct token_cache_key, version), &version, sizeof version);
    uint64_t hash = XXH3_64bits(footer, FOOTER_BYTES - sizeof hash);
    memcpy(footer + FOOTER_BYTES - sizeof hash, &hash, sizeof hash);
    temp_write(temp_only(place->base.cache_folder), cache, bytes);
    expect_again(place, "was tokenized by another version of Ballast");
    mem_free(cache);
}

static void a_damaged_cache_is_recreated(void **state) {
    const struct place *place = *state;
    expect_right(place, 2);
    char *good;
    size_t bytes;
    assert_int_equal(file_read(temp_only(place->base.cache_folder), 1 << 24, &good, &bytes), STATUS_OK);
    for (size_t at = 0; at < bytes; at += at + 200 < bytes ? 97 : 1) {
        good[at] ^= 0x10;
        temp_write(temp_only(place->base.cache_folder), good, bytes);
        good[at] ^= 0x10;
        expect_again(place, "its tokens are damaged");
    }
    static const size_t cuts[] = {1, 2, 7, 100, 1000};
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        temp_write(temp_only(place->base.cache_folder), good, bytes - cuts[i]);
        expect_right(place, 2);
    }
    temp_write(temp_only(place->base.cache_folder), good, bytes + 1);
    expect_right(place, 2);
    temp_write(temp_only(place->base.cache_folder), good, 0);
    expect_right(place, 2);
    mem_free(good);
}

static enum status open_fresh(void *payload) {
    const struct place *place = payload;
    TRY(folder_remove(place->base.cache_folder));
    return open_and_close(place);
}

/* Whether a cache was made; there is nothing else. */
static bool expect_cache_or_nothing(const char *folder) {
    struct names names = {0};
    if (!file_exists(folder)) return false;
    assert_int_equal(folder_list(folder, &names), STATUS_OK);
    bool made = names.count == 1 && path_ends(names.items[0], ".tokens");
    if (names.count > 0 && !made) fail_msg("%s was left behind", names.items[0]);
    names_free(&names);
    return made;
}

/* Whatever came of it: nothing half made, and the next run has its ids. */
static void expect_usable(void *payload, enum status status) {
    const struct place *place = payload;
    (void)status;
    struct names names = {0};
    if (file_exists(place->base.cache_folder))
        assert_int_equal(folder_list(place->base.cache_folder, &names), STATUS_OK);
    for (size_t i = 0; i < names.count; i++)
        if (strstr(names.items[i], ".new")) fail_msg("%s was left behind", names.items[i]);
    names_free(&names);
    expect_right(place, 2);
}

static void failures_leave_nothing_behind(void **state) {
    const struct fault_subject subject = {open_fresh, expect_usable, *state};
    for (int sticky = 0; sticky < 2; sticky++) {
        assert_true(fault_sweep_bearable(FAULT_WRITE, sticky, FAULT_EVERY, &subject).hit >= 1);
        assert_true(fault_sweep_bearable(FAULT_ALLOCATE, sticky, FAULT_EVERY, &subject).reported >= 10);
        assert_true(fault_sweep_bearable(FAULT_OPEN, sticky, FAULT_EVERY, &subject).hit >= 5);
        assert_true(fault_sweep_bearable(FAULT_READ, sticky, FAULT_EVERY, &subject).hit >= 2);
    }
    assert_int_equal(fault_sweep_bearable(FAULT_RENAME, false, FAULT_EVERY, &subject).reported, 0);
    assert_int_equal(fault_sweep_bearable(FAULT_SYNC, false, FAULT_EVERY, &subject).reported, 0);
}

/* The ids of a text are the same wherever they have to be kept, and from whichever on. */
static void without_a_cache_it_goes_on(void **state) {
    const struct place *place = *state;
    enum { WORDS = 200000 };
    static const char *const spares[] = {NULL, "/nowhere"}; /* the second: in memory */
    random_text_write(place->text_path, 5, WORDS);
    for (size_t i = 0; i < sizeof spares / sizeof *spares; i++) {
        assert_int_equal(spares[i] ? setenv("TMPDIR", spares[i], 1) : unsetenv("TMPDIR"), 0);
        int64_t writes = fault_count(FAULT_WRITE);
        assert_int_equal(folder_remove(place->base.cache_folder), STATUS_OK);
        expect_right(place, 2);
        writes = fault_count(FAULT_WRITE) - writes;
        assert_true(writes >= 4);
        int64_t made = 0;
        for (int64_t nth = 1; nth <= writes; nth++) {
            assert_int_equal(folder_remove(place->base.cache_folder), STATUS_OK);
            fault_arm(FAULT_WRITE, nth, false);
            expect_right(place, 2);
            fault_arm(FAULT_WRITE, 0, false);
            made +=
                expect_cache_or_nothing(place->base.cache_folder); /* what could not be written was for other ranks */
        }
        assert_true(made < writes / 2 + 1);
    }
    unsetenv("TMPDIR");
}

/* Nobody holds what a process that is gone began. */
static void leftovers_of_dead_processes_go(void **state) {
    const struct place *place = *state;
    const char *dead = temp_path(place->base.cache_folder, "text.txt-0123.tokens.1.0.new");
    const char *living = temp_path(place->base.cache_folder, "text.txt-0123.tokens.99999999.0.new");
    assert_int_equal(folder_create(place->base.cache_folder), STATUS_OK);
    temp_write_text(dead, "half");
    temp_write_text(living, "half");
    temp_write_text(temp_path(place->base.cache_folder, "mine.new"), "not a cache");
    int held = open(living, O_RDONLY);
    assert_true(held >= 0 && flock(held, LOCK_EX) == 0);
    assert_int_equal(open_and_close(place), STATUS_OK);
    assert_false(file_exists(dead));
    assert_true(file_exists(living));
    assert_true(file_exists(temp_path(place->base.cache_folder, "mine.new")));
    close(held);
}

static void a_failed_build_keeps_the_old_cache(void **state) {
    struct place *place = *state;
    expect_right(place, 2);
    ino_t before = cache_identity(place);
    random_text_write(place->text_path, 9, 500);
    fault_arm(FAULT_WRITE, 1, true);
    assert_int_equal(open_and_close(place), STATUS_FAILED);
    fault_arm(FAULT_WRITE, 0, false);
    assert_non_null(strstr(status_message(), "No space left"));
    assert_true(cache_identity(place) == before);
    expect_right(place, 2);
}

static void what_cannot_be_is_refused(void **state) {
    struct place *place = *state;
    temp_write_text(temp_path(place->base.folder, "a"), "a file where the directory should be");
    expect_right(place, 2); /* without a cache */
    assert_int_equal(unlink(temp_path(place->base.folder, "a")), 0);
    temp_write_text(place->text_path, "");
    assert_int_equal(open_and_close(place), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "text.txt: is empty"));
    place->source.kind = SOURCE_JSONL;
    temp_write_text(place->text_path, "{\"text\": \"good\"}\n{\"text\": 3}\n");
    assert_int_equal(open_and_close(place), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "text.txt: line 2: text: "));
    assert_false(file_exists(place->base.cache_folder) && rmdir(place->base.cache_folder) != 0);
}

static void texts_make_datasets(void **state) {
    struct place *place = *state;
    const char *lines = temp_path(place->base.folder, "lines.jsonl");
    const char *paths[] = {place->text_path, lines};
    temp_write_text(place->text_path, "x");
    temp_write_text(lines, "{\"text\": \"yy\"}\n\n{\"text\": \"\"}\n{\"text\": \"z\"}\n");
    struct dataset_options options = place->base.options;
    options.paths = paths;
    options.path_count = 2;
    options.sequence_tokens = 6;
    struct dataset *dataset;
    if (dataset_open(&options, &dataset) != STATUS_OK) fail_msg("%s", status_message());
    uint32_t x = 0, y = 0, z = 0;
    assert_true(tokenizer_find(place->base.tokenizer, "x", &x));
    assert_true(tokenizer_find(place->base.tokenizer, "y", &y));
    assert_true(tokenizer_find(place->base.tokenizer, "z", &z));
    int32_t expected[7] = {(int32_t)x, 0, (int32_t)y, (int32_t)y, 0, (int32_t)z, 0}, tokens[6], targets[6];
    assert_int_equal(dataset_tokens(dataset), 7);
    int64_t counted;
    struct dataset_batch batch = {.tokens = tokens, .targets = targets};
    assert_int_equal(dataset_fill(dataset, DATASET_TRAIN, 0, 1, &batch, &counted), STATUS_OK);
    assert_int_equal(counted, 6);
    assert_memory_equal(tokens, expected, sizeof tokens);
    assert_memory_equal(targets, expected + 1, sizeof targets);
    dataset_close(dataset);

    options.vocab_size = x; /* one too few */
    assert_int_equal(dataset_open(&options, &dataset), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "text.txt: token 0 has id"));
    temp_write_text(lines, "\n\n");
    options.vocab_size = 300;
    assert_int_equal(dataset_open(&options, &dataset), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "lines.jsonl: holds no tokens"));
}

int main(void) {
#define IN_PLACE(test) cmocka_unit_test_setup_teardown(test, make_place, data_place_drop)
    const struct CMUnitTest tests[] = {
        IN_PLACE(a_good_cache_is_used_again),
        IN_PLACE(a_stale_cache_is_recreated),
        IN_PLACE(a_cache_of_another_version_is_recreated),
        IN_PLACE(a_damaged_cache_is_recreated),
        IN_PLACE(failures_leave_nothing_behind),
        IN_PLACE(without_a_cache_it_goes_on),
        IN_PLACE(leftovers_of_dead_processes_go),
        IN_PLACE(a_failed_build_keeps_the_old_cache),
        IN_PLACE(what_cannot_be_is_refused),
        IN_PLACE(texts_make_datasets),
    };
    log_set_quiet(true);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
