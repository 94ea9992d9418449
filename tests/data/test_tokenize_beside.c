/* Text that is tokenized while it is read gives the same batches as from a cache, however far the tokens are. Errors
 * appear where they are reached, and no files are left behind. Without a working thread, each reader tokenizes what
 * it lacks, as with the slowest possible thread. */
/* ctest: PROCESSORS 2 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/file.h"
#include "base/terminal.h"
#include "data/component.h"
#include "data/corpus.h"
#include "data/dataset.h"
#include "support/data_files.h"
#include "support/data_place.h"
#include "support/dataset_fill.h"
#include "support/fault_sweep.h"
#include "support/temp_folder.h"
#include "support/unit.h"

enum { VOCAB = 300, LENGTH = 64, BATCH = 16, WORDS = 250000, STEPS = 900 };

struct place {
    struct data_place base;
    char text[4096], other[4096], lines[4096], weighted[2][4200];
};

/* Documents a line, and one that is none; 0: none is. */
static void write_lines(const char *path, int lines, int bad) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int i = 1; i <= lines; i++)
        fprintf(file, i == bad ? "{\"text\": %d}\n" : "{\"text\": \"document %d has a few words of its own\"}\n", i);
    assert_int_equal(fclose(file), 0);
}

static int make_place(void **state) {
    struct place *place = *state = data_place_make(sizeof *place, VOCAB, false);
    snprintf(place->text, sizeof place->text, "%s/text.txt", place->base.folder);
    snprintf(place->other, sizeof place->other, "%s/other.txt", place->base.folder);
    snprintf(place->lines, sizeof place->lines, "%s/lines.jsonl", place->base.folder);
    random_text_write(place->text, 2, WORDS);
    place->base.paths[0] = place->text;
    place->base.options.sequence_tokens = LENGTH;
    return 0;
}

static size_t count_files(const char *folder) { return file_exists(folder) ? temp_count(folder) : 0; }

enum how { CACHED, MADE_AS_READ, MADE_BESIDE };

/* CACHED must follow one that made the cache. */
static struct dataset *open_how(const struct place *place, enum how how) {
    struct dataset *dataset;
    if (how != CACHED) assert_int_equal(folder_remove(place->base.cache_folder), STATUS_OK);
    if (dataset_open(&place->base.options, &dataset) != STATUS_OK) fail_msg("%s", status_message());
    assert_true((dataset_tokens(dataset) >= 0) == (how == CACHED));
    if (how == MADE_BESIDE) dataset_tokenize_beside(dataset);
    return dataset;
}

static enum status fill(const struct dataset *dataset, enum dataset_split split, int64_t step, uint64_t *hash) {
    int32_t rows[4][BATCH * LENGTH];
    int64_t counted;
    struct dataset_batch batch = {rows[0], rows[1], rows[2], rows[3], NULL};
    TRY(dataset_fill(dataset, split, step, BATCH, &batch, &counted));
    *hash = XXH3_64bits_withSeed(rows, sizeof rows, (uint64_t)counted);
    return STATUS_OK;
}

static void expect_batch(const struct dataset *dataset, enum dataset_split split, int64_t step, uint64_t expected) {
    uint64_t hash;
    if (fill(dataset, split, step, &hash) != STATUS_OK) fail_msg("step %lld: %s", (long long)step, status_message());
    if (hash != expected) fail_msg("batch %lld is another", (long long)step);
}

/* Each way of tokenizing against the cache that the first one leaves. */
static void expect_same_batches(const struct place *place, int steps) {
    static uint64_t expected[STEPS];
    assert_true(steps <= STEPS);
    struct dataset *dataset = open_how(place, MADE_AS_READ);
    for (int step = 0; step < steps; step++)
        assert_int_equal(fill(dataset, DATASET_TRAIN, step, &expected[step]), STATUS_OK);
    assert_int_equal(dataset_settle(dataset, DATASET_TRAIN), STATUS_OK);
    dataset_close(dataset);
    for (enum how how = CACHED; how <= MADE_BESIDE; how++) {
        dataset = open_how(place, how);
        for (int step = 0; step < steps; step++)
            expect_batch(dataset, DATASET_TRAIN, step, expected[step]);
        dataset_close(dataset);
    }
}

static void batches_are_those_of_a_cache(void **state) {
    struct place *place = *state;
    struct dataset *dataset = open_how(place, MADE_AS_READ);
    assert_int_equal(dataset_settle(dataset, DATASET_TRAIN), STATUS_OK);
    int64_t rows = dataset_split_sequences(dataset, DATASET_TRAIN);
    dataset_close(dataset);
    assert_in_range(rows, 64 * 31 * 4, STEPS * BATCH - 1); /* many shuffle buffers, and all of an epoch */
    expect_same_batches(place, STEPS);
    place->base.options.valid_fraction = 0.3;
    place->base.options.eos_token = 7;
    place->base.options.documents_apart = true;
    expect_same_batches(place, STEPS);
}

static void batches_of_weighted_texts_are_too(void **state) {
    struct place *place = *state;
    random_text_write(place->other, 3, WORDS / 2);
    snprintf(place->weighted[0], sizeof place->weighted[0], "%s:2", place->text);
    snprintf(place->weighted[1], sizeof place->weighted[1], "%s:5", place->other);
    place->base.paths[0] = place->weighted[0];
    place->base.paths[1] = place->weighted[1];
    place->base.options.path_count = 2;
    expect_same_batches(place, STEPS);
}

/* A step far on, as a resumed run asks for it first. */
static void any_step_may_be_the_first(void **state) {
    const struct place *place = *state;
    static const int steps[] = {0, 3, 4, 100, 499, 500, 700, STEPS};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        uint64_t made;
        struct dataset *dataset = open_how(place, i % 2 ? MADE_BESIDE : MADE_AS_READ);
        assert_int_equal(fill(dataset, DATASET_TRAIN, steps[i], &made), STATUS_OK);
        assert_int_equal(dataset_settle(dataset, DATASET_TRAIN), STATUS_OK);
        dataset_close(dataset);
        dataset = open_how(place, CACHED);
        expect_batch(dataset, DATASET_TRAIN, steps[i], made);
        dataset_close(dataset);
    }
}

/* As much is tokenized as the shuffle buffer takes, and not all of it. */
static void reading_waits_for_its_shuffle_buffer_only(void **state) {
    const struct place *place = *state;
    struct dataset *dataset = open_how(place, MADE_AS_READ);
    uint64_t hash;
    for (int step = 0; step < 100; step++)
        assert_int_equal(fill(dataset, DATASET_TRAIN, step, &hash), STATUS_OK);
    assert_int_equal(dataset_tokens(dataset), -1);
    assert_int_equal(dataset_split_sequences(dataset, DATASET_TRAIN), -1);
    assert_int_equal(count_files(place->base.cache_folder), 2); /* the unfinished cache, and its lock */
    dataset_close(dataset);
    assert_int_equal(count_files(place->base.cache_folder), 0);
}

static void held_out_rows_wait_for_all(void **state) {
    struct place *place = *state;
    place->base.options.valid_fraction = 0.1;
    uint64_t expected[3], hash;
    for (enum how how = MADE_AS_READ; how <= MADE_BESIDE; how++) {
        struct dataset *dataset = open_how(place, how);
        assert_true(dataset_has(dataset, DATASET_VALID));
        assert_int_equal(fill(dataset, DATASET_TRAIN, 0, &hash), STATUS_OK);
        assert_int_equal(dataset_settle(dataset, DATASET_VALID), STATUS_OK);
        for (int step = 0; step < 3; step++)
            assert_int_equal(fill(dataset, DATASET_VALID, step, &expected[step]), STATUS_OK);
        int64_t sequences = dataset_split_sequences(dataset, DATASET_VALID);
        dataset_close(dataset);
        dataset = open_how(place, CACHED);
        assert_int_equal(dataset_split_sequences(dataset, DATASET_VALID), sequences);
        for (int step = 0; step < 3; step++)
            expect_batch(dataset, DATASET_VALID, step, expected[step]);
        dataset_close(dataset);
    }
}

/* Validation files of their own wait for themselves alone. */
static void validation_does_not_wait_for_training_text(void **state) {
    struct place *place = *state;
    const char *valid = place->other;
    random_text_write(place->other, 3, 40000);
    place->base.options.valid_paths = &valid;
    place->base.options.valid_path_count = 1;
    struct dataset *dataset = open_how(place, MADE_AS_READ);
    assert_int_equal(dataset_settle(dataset, DATASET_VALID), STATUS_OK);
    assert_true(dataset_split_sequences(dataset, DATASET_VALID) > 100);
    assert_int_equal(dataset_split_sequences(dataset, DATASET_TRAIN), -1);
    dataset_close(dataset);
    assert_int_equal(count_files(place->base.cache_folder), 1);
}

/* The first step that cannot be filled, and that it cannot be filled again either. */
static int find_failure(const struct dataset *dataset, enum status expected, const char *message) {
    uint64_t hash;
    for (int step = 0; step < STEPS; step++) {
        if (fill(dataset, DATASET_TRAIN, step, &hash) == STATUS_OK) continue;
        for (int again = 0; again < 3; again++) {
            status_clear();
            assert_int_equal(fill(dataset, DATASET_TRAIN, step, &hash), expected);
            if (!strstr(status_message(), message)) fail_msg("not \"%s\": %s", message, status_message());
            if (step > 0) assert_int_equal(fill(dataset, DATASET_TRAIN, step - 1, &hash), STATUS_OK);
        }
        return step;
    }
    fail_msg("no step failed");
    return -1;
}

static void errors_come_at_their_step(void **state) {
    struct place *place = *state;
    int first = 0;
    write_lines(place->lines, 40000, 25000);
    place->base.paths[0] = place->lines;
    for (int round = 0; round < 4; round++) {
        struct dataset *dataset = open_how(place, round % 2 ? MADE_BESIDE : MADE_AS_READ);
        int step = find_failure(dataset, STATUS_BAD_INPUT, "lines.jsonl: line 25000: text: must be a string");
        if (round == 0) first = step;
        assert_in_range(step, 1, STEPS);
        assert_int_equal(step, first);
        assert_int_equal(dataset_settle(dataset, DATASET_TRAIN), STATUS_BAD_INPUT);
        dataset_close(dataset);
        assert_int_equal(count_files(place->base.cache_folder), 0);
    }
}

static void errors_at_the_beginning_come_at_once(void **state) {
    struct place *place = *state;
    struct dataset *dataset;
    write_lines(place->lines, 40000, 30);
    place->base.paths[0] = place->lines;
    assert_int_equal(dataset_open(&place->base.options, &dataset), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "lines.jsonl: line 30: text: "));
    assert_int_equal(count_files(place->base.cache_folder), 0);
}

static void a_full_disk_is_reported(void **state) {
    const struct place *place = *state;
    struct dataset *dataset = open_how(place, MADE_AS_READ);
    fault_arm(FAULT_WRITE, 1, true);
    int step = find_failure(dataset, STATUS_FAILED, "No space left");
    fault_arm(FAULT_WRITE, 0, false);
    assert_in_range(step, 1, STEPS);
    dataset_close(dataset);
    assert_int_equal(count_files(place->base.cache_folder), 0);
}

static void text_that_changes_is_noticed(void **state) {
    const struct place *place = *state;
    struct dataset *dataset = open_how(place, MADE_AS_READ);
    assert_int_equal(dataset_settle(dataset, DATASET_TRAIN), STATUS_OK);
    dataset_close(dataset);
    random_text_write(place->text, 4, WORDS); /* with an old cache there, its hash is known from the beginning */
    assert_int_equal(dataset_open(&place->base.options, &dataset), STATUS_OK);
    FILE *file = fopen(place->text, "r+");
    assert_non_null(file);
    assert_int_equal(fseek(file, -1000, SEEK_END), 0);
    fputs("other words", file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(dataset_settle(dataset, DATASET_TRAIN), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "text.txt: changed while it was tokenized"));
    dataset_close(dataset);
}

/* However far it has come. */
static void stopping_leaves_nothing(void **state) {
    const struct place *place = *state;
    for (int steps = 0; steps < 60; steps += 12) {
        struct dataset *dataset = open_how(place, MADE_BESIDE);
        uint64_t hash;
        for (int step = 0; step < steps; step++)
            assert_int_equal(fill(dataset, DATASET_TRAIN, step, &hash), STATUS_OK);
        dataset_close(dataset);
        struct names names = {0};
        assert_int_equal(folder_list(place->base.cache_folder, &names), STATUS_OK);
        for (size_t i = 0; i < names.count; i++)
            assert_null(strstr(names.items[i], ".new"));
        names_free(&names);
    }
}

static void without_a_thread_it_goes_on(void **state) {
    const struct place *place = *state;
    struct dataset *dataset = open_how(place, MADE_AS_READ);
    uint64_t hash;
    fault_arm(FAULT_SUBMIT, 1, true);
    dataset_tokenize_beside(dataset);
    fault_arm(FAULT_SUBMIT, 0, false);
    assert_int_equal(fill(dataset, DATASET_TRAIN, STEPS, &hash), STATUS_OK);
    dataset_close(dataset);
}

static void fingerprints_do_not_wait(void **state) {
    const struct place *place = *state;
    struct dataset *dataset = open_how(place, MADE_AS_READ);
    uint64_t fingerprint = dataset_fingerprint(dataset);
    assert_int_equal(dataset_tokens(dataset), -1);
    assert_int_equal(dataset_settle(dataset, DATASET_TRAIN), STATUS_OK);
    assert_true(dataset_fingerprint(dataset) == fingerprint);
    dataset_close(dataset);
    dataset = open_how(place, CACHED);
    assert_true(dataset_fingerprint(dataset) == fingerprint);
    dataset_close(dataset);
    size_t bytes;
    char *text = random_text(2, WORDS, &bytes);
    text[bytes - 1] ^= 1;
    temp_write(place->text, text, bytes);
    mem_free(text);
    assert_int_equal(dataset_open(&place->base.options, &dataset), STATUS_OK);
    assert_true(dataset_fingerprint(dataset) != fingerprint);
    dataset_close(dataset);
}

/* One text in two arguments is made twice at once. */
static void one_text_may_be_two_sources(void **state) {
    struct place *place = *state;
    snprintf(place->weighted[0], sizeof place->weighted[0], "%s:2", place->text);
    place->base.paths[0] = place->base.paths[1] = place->weighted[0];
    place->base.options.path_count = 2;
    expect_same_batches(place, 200);
}

/* Several who read at once, at different places, next to the thread. */
struct reader {
    pthread_t thread;
    const struct dataset *dataset;
    const uint64_t *expected;
    int first, bad;
};

static void *read_batches(void *payload) {
    struct reader *reader = payload;
    for (int step = reader->first; step < STEPS; step += 61) {
        uint64_t hash = 0;
        reader->bad += fill(reader->dataset, DATASET_TRAIN, step, &hash) != STATUS_OK || hash != reader->expected[step];
    }
    return NULL;
}

static void many_may_read_at_once(void **state) {
    static uint64_t expected[STEPS];
    const struct place *place = *state;
    struct dataset *dataset = open_how(place, MADE_AS_READ);
    for (int step = 0; step < STEPS; step++)
        assert_int_equal(fill(dataset, DATASET_TRAIN, step, &expected[step]), STATUS_OK);
    dataset_close(dataset);
    dataset = open_how(place, MADE_BESIDE);
    struct reader readers[4];
    for (int i = 0; i < 4; i++) {
        readers[i] = (struct reader){.dataset = dataset, .expected = expected, .first = 15 * i};
        assert_int_equal(pthread_create(&readers[i].thread, NULL, read_batches, &readers[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(readers[i].thread, NULL), 0);
        assert_int_equal(readers[i].bad, 0);
    }
    dataset_close(dataset);
}

/* Files of all kinds, chunk by chunk between reads: what is there is right from the first token on. */
static void tokens_are_there_chunk_by_chunk(void **state) {
    struct place *place = *state;
    const char *ids_path = temp_path(place->base.folder, "ids.bin");
    char ids[4096];
    snprintf(ids, sizeof ids, "%s", ids_path);
    token_file_write(ids, 2, (const uint32_t[]){1, 2, 3, 4, 5}, 5);
    write_lines(place->lines, 20000, 0);
    struct source items[] = {{.path = place->lines, .kind = SOURCE_JSONL},
                             {.path = ids, .kind = SOURCE_TOKENS},
                             {.path = place->text, .kind = SOURCE_TEXT}};
    struct sources sources = {.items = items, .count = 3};
    struct dataset_options options = {.cache_folder = place->base.cache_folder,
                                      .tokenizer = place->base.tokenizer,
                                      .tokenizer_path = place->base.tokenizer_path,
                                      .eos_token = -1,
                                      .vocab_size = VOCAB};
    struct corpus *growing, *whole;
    struct corpus_extent all, extent;
    assert_int_equal(corpus_open(&sources, &options, &whole), STATUS_OK);
    assert_int_equal(corpus_require(whole, INT64_MAX, (struct tokenize_effort){2, 64}, &all), STATUS_OK);
    assert_int_equal(folder_remove(place->base.cache_folder), STATUS_OK);
    assert_int_equal(corpus_open(&sources, &options, &growing), STATUS_OK);
    assert_int_equal(corpus_extent(growing).tokens, 0);
    int32_t *expected = mem_array((size_t)all.tokens, sizeof *expected);
    int32_t *tokens = mem_array((size_t)all.tokens, sizeof *tokens);
    assert_int_equal(corpus_read(whole, 0, all.tokens, expected), STATUS_OK);
    int chunks = 0;
    for (bool more = true; more; chunks++) {
        more = corpus_advance(growing);
        if (chunks % 3 == 1) corpus_rest(growing);
        extent = corpus_extent(growing);
        assert_true(extent.whole == !more);
        assert_int_equal(corpus_read(growing, 0, extent.tokens, tokens), STATUS_OK);
        assert_memory_equal(tokens, expected, (size_t)extent.tokens * sizeof *tokens);
        if (extent.tokens > 700) assert_int_equal(corpus_read(growing, extent.tokens - 700, 700, tokens), STATUS_OK);
        if (extent.tokens > 700) assert_memory_equal(tokens, expected + extent.tokens - 700, 700 * sizeof *tokens);
    }
    assert_in_range(chunks, 6, 100);
    assert_int_equal(extent.tokens, all.tokens);
    mem_free(expected);
    mem_free(tokens);
    corpus_close(whole);
    corpus_close(growing);
}

int main(void) {
#define IN_PLACE(test) cmocka_unit_test_setup_teardown(test, make_place, data_place_drop)
    const struct CMUnitTest tests[] = {
        IN_PLACE(batches_are_those_of_a_cache), IN_PLACE(batches_of_weighted_texts_are_too),
        IN_PLACE(any_step_may_be_the_first),    IN_PLACE(reading_waits_for_its_shuffle_buffer_only),
        IN_PLACE(held_out_rows_wait_for_all),   IN_PLACE(validation_does_not_wait_for_training_text),
        IN_PLACE(errors_come_at_their_step),    IN_PLACE(errors_at_the_beginning_come_at_once),
        IN_PLACE(a_full_disk_is_reported),      IN_PLACE(text_that_changes_is_noticed),
        IN_PLACE(stopping_leaves_nothing),      IN_PLACE(without_a_thread_it_goes_on),
        IN_PLACE(fingerprints_do_not_wait),     IN_PLACE(one_text_may_be_two_sources),
        IN_PLACE(many_may_read_at_once),        IN_PLACE(tokens_are_there_chunk_by_chunk),
    };
    log_set_quiet(true);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
