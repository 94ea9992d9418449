/* Packing of examples in rows: best fit, truncated and skipped examples, and the contents of a filled row. */
#include "support/unit.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/random.h"
#include "data/rows.h"
#include "ir/ops/attributes.h"
#include "support/data_files.h"
#include "support/fault_sweep.h"
#include "support/temp_folder.h"
#include "text/chat/example.h"

enum { ITEMS = 300 };

/* The rows that best fit decreasing takes, in the plain way. */
static int64_t count_rows(const int32_t *sizes, int64_t count, int64_t capacity) {
    int64_t left[ITEMS], rows = 0;
    for (int64_t size = capacity; size > 0; size--)
        for (int64_t i = 0; i < count; i++) {
            int64_t best = -1;
            if (sizes[i] != size) continue;
            for (int64_t r = 0; r < rows; r++)
                if (left[r] >= size && (best < 0 || left[r] < left[best])) best = r;
            if (best < 0) left[best = rows++] = capacity;
            left[best] -= size;
        }
    return rows;
}

static void best_fit_is_found(void **state) {
    (void)state;
    uint64_t seed = 20250302;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (uint32_t round = 0; round < 400; round++) {
        int64_t capacity = 1 + (int64_t)(random_u64(seed, RANDOM_TEST, 0, round) % 70);
        int64_t count = 1 + (int64_t)(random_u64(seed, RANDOM_TEST, 1, round) % ITEMS), rows;
        int32_t sizes[ITEMS];
        uint32_t row_of[ITEMS];
        for (int64_t i = 0; i < count; i++)
            sizes[i] = (int32_t)(random_u64(seed, RANDOM_TEST, 2 + round, (uint64_t)i) % (uint64_t)(capacity + 1));
        assert_int_equal(packing_fit(sizes, count, capacity, row_of, &rows), STATUS_OK);
        assert_int_equal(rows, count_rows(sizes, count, capacity));
        int64_t used[ITEMS] = {0};
        for (int64_t i = 0; i < count; i++) {
            assert_int_equal(row_of[i] == UINT32_MAX, sizes[i] == 0);
            if (sizes[i] == 0) continue;
            assert_true(row_of[i] < rows);
            used[row_of[i]] += sizes[i];
        }
        for (int64_t r = 0; r < rows; r++)
            assert_in_range(used[r], 1, capacity);
    }
}

/* Ids, and the corpus of a token file that holds them. */
struct examples {
    uint32_t ids[8192];
    struct corpus *corpus;
    int64_t count;
};

static void finish(const char *folder, struct examples *examples) {
    char path[512];
    snprintf(path, sizeof path, "%s/examples.bin", folder);
    token_file_write(path, 4, examples->ids, (size_t)examples->count);
    struct source source = {.path = path, .kind = SOURCE_TOKENS};
    struct sources sources = {.items = &source, .count = 1};
    struct dataset_options options = {.vocab_size = INT64_C(1) << 32};
    if (corpus_open(&sources, &options, &examples->corpus) != STATUS_OK) fail_msg("%s", status_message());
}

/* An example of `prompt` tokens and `completion` trained ones, whose ids are 1000 times its number and their places. */
static void add_example(struct examples *examples, uint32_t number, int prompt, int completion) {
    for (int i = 0; i < prompt + completion; i++)
        examples->ids[examples->count++] =
            (1000 * number + (uint32_t)i) | (i == 0 ? EXAMPLE_FIRST : 0) | (i >= prompt ? EXAMPLE_TRAINED : 0);
}

static void rows_hold_each_example_once(void **state) {
    enum { EXAMPLES = 100, LENGTH = 24 };
    static struct examples examples;
    int prompts[EXAMPLES], completions[EXAMPLES];
    examples.count = 0;
    int64_t cut = 0, left_out = 0;
    for (uint32_t i = 0; i < EXAMPLES; i++) {
        prompts[i] = (int)(random_u64(3, RANDOM_TEST, 0, i) % (i % 9 == 0 ? 40 : 12));
        completions[i] = (int)(random_u64(3, RANDOM_TEST, 1, i) % 15) + (prompts[i] == 0);
        add_example(&examples, i, prompts[i], completions[i]);
        cut += prompts[i] + completions[i] - 1 > LENGTH;
        bool one = prompts[i] == 0 && completions[i] == 1;
        left_out += completions[i] == 0 || one || prompts[i] > LENGTH;
    }
    finish(*state, &examples);
    assert_true(cut > 0 && left_out > 0);
    for (int together = 0; together < 2; together++) {
        struct dataset_options options = {
            .sequence_tokens = LENGTH, .vocab_size = 1000 * EXAMPLES, .pack_examples = together};
        struct packing packing;
        assert_int_equal(packing_create(examples.corpus, &options, 0, "examples", &packing), STATUS_OK);
        assert_int_equal(packing.examples, EXAMPLES);
        assert_int_equal(packing.cut, cut);
        assert_int_equal(packing.left_out, left_out);
        if (!together) assert_int_equal(packing.rows, EXAMPLES - left_out);
        if (together) assert_true(packing.rows < (EXAMPLES - left_out) * 2 / 3);
        int seen[EXAMPLES] = {0};
        for (int64_t r = 0; r < packing.rows; r++) {
            int32_t tokens[LENGTH], targets[LENGTH], positions[LENGTH], segments[LENGTH];
            struct row row = {LENGTH, tokens, targets, positions, segments};
            int64_t counted, expected = 0;
            assert_int_equal(packing_fill_row(&packing, examples.corpus, r, false, &row, &counted), STATUS_OK);
            int number = -1, position = 0, segment = -1;
            for (int i = 0; i < LENGTH; i++) {
                if (positions[i] == 0) {
                    segment++;
                    position = 0;
                    /* padding has no targets, and begins with token 0, which is also the first of example 0 */
                    bool padding = true;
                    for (int k = i; k < LENGTH; k++)
                        padding &= tokens[k] == 0 && targets[k] == TARGET_PADDING && segments[k] == segments[i];
                    number = padding ? -1 : tokens[i] / 1000;
                    if (!padding) seen[number]++;
                }
                assert_int_equal(segments[i], segment);
                assert_int_equal(positions[i], position);
                if (number >= 0) {
                    assert_int_equal(tokens[i], 1000 * number + position);
                    bool trained = position + 1 >= prompts[number];
                    assert_int_equal(targets[i], trained ? tokens[i] + 1 : TARGET_IGNORE);
                    expected += trained;
                }
                position++;
            }
            assert_int_equal(counted, expected);
        }
        for (int i = 0; i < EXAMPLES; i++) {
            bool one = prompts[i] == 0 && completions[i] == 1;
            assert_int_equal(seen[i], !(completions[i] == 0 || one || prompts[i] > LENGTH));
        }
        packing_free(&packing);
    }
    corpus_close(examples.corpus);
}

/* The last fifth of the examples shares the last rows, whatever the lengths; the others never see them. */
static void the_last_examples_are_held_out(void **state) {
    enum { EXAMPLES = 60, LENGTH = 24, HELD = 12 };
    static struct examples examples;
    examples.count = 0;
    for (uint32_t i = 0; i < EXAMPLES; i++)
        add_example(&examples, i, 2, 1 + (int)(random_u64(3, RANDOM_TEST, 4, i) % 9));
    finish(*state, &examples);
    struct dataset_options options = {.sequence_tokens = LENGTH, .vocab_size = 1000 * EXAMPLES, .pack_examples = true};
    struct packing packing;
    assert_int_equal(packing_create(examples.corpus, &options, 0.2, "examples", &packing), STATUS_OK);
    assert_true(packing.held_rows > 0 && packing.held_rows < packing.rows / 3);
    for (int64_t row = 0; row < packing.rows; row++)
        for (int64_t i = packing.row_first[row]; i < packing.row_first[row + 1]; i++)
            assert_int_equal(packing.order[i] >= EXAMPLES - HELD, row >= packing.rows - packing.held_rows);
    packing_free(&packing);
    assert_int_equal(packing_create(examples.corpus, &options, 0.001, "examples", &packing), STATUS_OK);
    assert_int_equal(packing.held_rows, 1);
    assert_int_equal(packing.order[packing.row_first[packing.rows - 1]], EXAMPLES - 1);
    packing_free(&packing);
    corpus_close(examples.corpus);
}

static void lengths_and_rows_are_counted(void **state) {
    enum { EXAMPLES = 40, LENGTH = 12 };
    static struct examples examples;
    examples.count = 0;
    int64_t places = 0;
    for (uint32_t i = 0; i < EXAMPLES; i++) {
        int64_t size = i < 37 ? 3 : 10 * ((int64_t)i - 35);
        add_example(&examples, i, 1, (int)size);
        places += size < LENGTH ? size : LENGTH;
    }
    finish(*state, &examples);
    struct dataset_options options = {.sequence_tokens = LENGTH, .vocab_size = 1000 * EXAMPLES};
    struct packing packing;
    for (int together = 0; together < 2; together++) {
        options.pack_examples = together;
        assert_int_equal(packing_create(examples.corpus, &options, 0, "examples", &packing), STATUS_OK);
        assert_int_equal(packing.cut, 3);
        assert_int_equal(packing.longest, 40);
        assert_int_equal(packing.percentile_95, 20);
        assert_int_equal(packing.places, places);
        assert_int_equal(packing.packed_rows, 3 + (37 + 3) / 4);
        assert_int_equal(packing.rows, together ? packing.packed_rows : EXAMPLES);
        packing_free(&packing);
    }
    corpus_close(examples.corpus);
}

static void loss_on_all_counts_every_successor(void **state) {
    enum { LENGTH = 8 };
    static struct examples examples;
    examples.count = 0;
    add_example(&examples, 1, 5, 0);
    add_example(&examples, 2, 1, 0);
    add_example(&examples, 3, 20, 2);
    finish(*state, &examples);
    struct dataset_options options = {.sequence_tokens = LENGTH, .vocab_size = 5000, .loss_on_all = true};
    struct packing packing;
    assert_int_equal(packing_create(examples.corpus, &options, 0, "examples", &packing), STATUS_OK);
    assert_int_equal(packing.rows, 2);
    int32_t tokens[LENGTH], targets[LENGTH];
    struct row row = {.length = LENGTH, .tokens = tokens, .targets = targets};
    int64_t counted;
    assert_int_equal(packing_fill_row(&packing, examples.corpus, 0, true, &row, &counted), STATUS_OK);
    assert_int_equal(counted, 4);
    assert_int_equal(targets[3], 1004);
    assert_int_equal(targets[4], TARGET_PADDING);
    assert_int_equal(packing_fill_row(&packing, examples.corpus, 1, true, &row, &counted), STATUS_OK);
    assert_int_equal(counted, 8);
    assert_int_equal(targets[7], 3008);
    packing_free(&packing);
    corpus_close(examples.corpus);
}

static void what_is_no_example_is_refused(void **state) {
    static struct examples examples;
    struct dataset_options options = {.sequence_tokens = 8, .vocab_size = 3001};
    struct packing packing;
    examples.count = 0;
    add_example(&examples, 3, 1, 2);
    finish(*state, &examples);
    assert_int_equal(packing_create(examples.corpus, &options, 0, "examples", &packing), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "examples: has id 3001, but the model's vocabulary has 3001"));
    options.vocab_size = 4000;
    examples.ids[0] &= ~EXAMPLE_FIRST;
    corpus_close(examples.corpus);
    finish(*state, &examples);
    assert_int_equal(packing_create(examples.corpus, &options, 0, "examples", &packing), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "does not begin"));
    corpus_close(examples.corpus);
}

static enum status pack_once(void *payload) {
    struct examples *examples = payload;
    struct dataset_options options = {.sequence_tokens = 8, .vocab_size = 5000, .pack_examples = true};
    struct packing packing;
    TRY(packing_create(examples->corpus, &options, 0, "examples", &packing));
    packing_free(&packing);
    return STATUS_OK;
}

static void faults_are_reported(void **state) {
    static struct examples examples;
    examples.count = 0;
    for (uint32_t i = 0; i < 4; i++)
        add_example(&examples, i, 2, 3);
    finish(*state, &examples);
    assert_true(fault_sweep(FAULT_ALLOCATE, false, pack_once, &examples) >= 8);
    corpus_close(examples.corpus);
}

int main(void) {
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, temp_folder_make, temp_folder_drop)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(best_fit_is_found),
        IN_FOLDER(rows_hold_each_example_once),
        IN_FOLDER(the_last_examples_are_held_out),
        IN_FOLDER(lengths_and_rows_are_counted),
        IN_FOLDER(loss_on_all_counts_every_successor),
        IN_FOLDER(what_is_no_example_is_refused),
        IN_FOLDER(faults_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
