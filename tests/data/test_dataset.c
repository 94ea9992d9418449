/* Datasets of token files: packing, shuffling, resuming, held-out and padded validation, and refusals. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* cmocka.h needs the headers above. */
#include <cmocka.h>

#include "base/folder.h"
#include "data/dataset.h"
#include "ir/ops/attributes.h"
#include "support/data_files.h"
#include "support/dataset_fill.h"
#include "support/fault_sweep.h"
#include "support/temp_folder.h"

enum { VOCAB = 5000, TOKENS_MAX = 4096 };

/* Token i of the whole data is i, so that what is read says where it came from. */
static void write_tokens(const char *path, int token_bytes, uint32_t first, size_t count) {
    static uint32_t ids[TOKENS_MAX];
    assert_true(count <= TOKENS_MAX);
    for (size_t i = 0; i < count; i++)
        ids[i] = first + (uint32_t)i;
    token_file_write(path, token_bytes, ids, count);
}

static struct dataset *open_paths(const char *const *paths, size_t count, int64_t length, double valid_fraction,
                                  uint64_t seed) {
    struct dataset_options options = {.paths = paths,
                                      .path_count = count,
                                      .valid_fraction = valid_fraction,
                                      .eos_token = -1,
                                      .vocab_size = VOCAB,
                                      .sequence_tokens = length,
                                      .seed = seed};
    struct dataset *dataset;
    if (dataset_open(&options, &dataset) != STATUS_OK) fail_msg("%s", status_message());
    return dataset;
}

static struct dataset *open_one(const char *path, int64_t length, double valid_fraction, uint64_t seed) {
    return open_paths(&path, 1, length, valid_fraction, seed);
}

static int64_t fill(const struct dataset *dataset, enum dataset_split split, int64_t step, int64_t batch,
                    int32_t *tokens, int32_t *targets) {
    int64_t counted;
    struct dataset_batch out = {.tokens = tokens, .targets = targets};
    if (dataset_fill(dataset, split, step, batch, &out, &counted) != STATUS_OK) fail_msg("%s", status_message());
    return counted;
}

/* A row of consecutive ids: returns the number of its sequence. */
static int64_t expect_row(const int32_t *tokens, const int32_t *targets, int64_t length) {
    assert_int_equal(tokens[0] % length, 0);
    for (int64_t i = 0; i < length; i++) {
        assert_int_equal(tokens[i], tokens[0] + i);
        assert_int_equal(targets[i], tokens[i] + 1);
    }
    return tokens[0] / length;
}

static void files_are_packed_in_order(void **state) {
    /* Files whose ends fall inside sequences, and widths that differ. */
    const char *paths[] = {temp_path(*state, "b.bin"), temp_path(*state, "a.bin"), temp_path(*state, "c.bin")};
    write_tokens(paths[0], 2, 0, 13);
    write_tokens(paths[1], 4, 13, 1);
    write_tokens(paths[2], 2, 14, 40);
    for (int64_t length = 1; length <= 53; length++) {
        struct dataset *dataset = open_paths(paths, 3, length, 0, 1);
        int64_t sequences = dataset_split_sequences(dataset, DATASET_TRAIN);
        assert_int_equal(dataset_tokens(dataset), 54);
        assert_int_equal(sequences, 53 / length);
        assert_int_equal(dataset_split_sequences(dataset, DATASET_VALID), 0);
        int32_t tokens[54], targets[54];
        int64_t sum = 0;
        for (int64_t step = 0; step < sequences; step++) {
            assert_int_equal(fill(dataset, DATASET_TRAIN, step, 1, tokens, targets), length);
            sum += expect_row(tokens, targets, length);
        }
        assert_int_equal(sum, sequences * (sequences - 1) / 2);
        dataset_close(dataset);
    }
}

static void epochs_see_each_sequence_once(void **state) {
    const char *path = temp_path(*state, "a.bin");
    uint64_t seed = 20240611;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int64_t sequences = 1; sequences < 300; sequences = sequences * 2 + 1) {
        enum { LENGTH = 3, BATCH = 5, EPOCHS = 7 };
        write_tokens(path, 2, 0, (size_t)(sequences * LENGTH + 2)); /* one token more than is needed */
        struct dataset *dataset = open_one(path, LENGTH, 0, seed);
        assert_int_equal(dataset_split_sequences(dataset, DATASET_TRAIN), sequences);
        static int64_t order[EPOCHS * 300 + BATCH];
        for (int64_t position = 0; position < EPOCHS * sequences; position += BATCH) {
            int32_t tokens[BATCH * LENGTH], targets[BATCH * LENGTH];
            assert_int_equal(fill(dataset, DATASET_TRAIN, position / BATCH, BATCH, tokens, targets), BATCH * LENGTH);
            for (int64_t row = 0; row < BATCH; row++)
                order[position + row] = expect_row(tokens + row * LENGTH, targets + row * LENGTH, LENGTH);
        }
        for (int64_t epoch = 0; epoch < EPOCHS; epoch++) {
            bool seen[300] = {false};
            for (int64_t i = 0; i < sequences; i++) {
                int64_t sequence = order[epoch * sequences + i];
                assert_in_range(sequence, 0, sequences - 1);
                assert_false(seen[sequence]);
                seen[sequence] = true;
            }
        }
        if (sequences >= 15) {
            size_t bytes = (size_t)sequences * sizeof order[0];
            assert_memory_not_equal(order, order + sequences, bytes);
        }
        dataset_close(dataset);
    }
}

static void order_depends_on_seed_and_step_only(void **state) {
    enum { LENGTH = 4, SEQUENCES = 50, BATCH = 6, STEPS = 40, ROW = BATCH * LENGTH };
    const char *path = temp_path(*state, "a.bin");
    write_tokens(path, 2, 0, SEQUENCES * LENGTH + 1);
    static int32_t all[STEPS][2][ROW];
    struct dataset *dataset = open_one(path, LENGTH, 0, 7);
    for (int step = 0; step < STEPS; step++)
        fill(dataset, DATASET_TRAIN, step, BATCH, all[step][0], all[step][1]);
    dataset_close(dataset);
    int differ = 0;
    struct dataset *resumed = open_one(path, LENGTH, 0, 7), *other = open_one(path, LENGTH, 0, 8);
    for (int step = STEPS - 1; step >= 0; step--) {
        int32_t tokens[ROW], targets[ROW];
        fill(resumed, DATASET_TRAIN, step, BATCH, tokens, targets);
        assert_memory_equal(tokens, all[step][0], sizeof tokens);
        assert_memory_equal(targets, all[step][1], sizeof targets);
        /* The same positions in batches of another size. */
        for (int row = 0; row < BATCH; row++) {
            fill(resumed, DATASET_TRAIN, step * BATCH + row, 1, tokens, targets);
            assert_memory_equal(tokens, all[step][0] + row * LENGTH, LENGTH * sizeof *tokens);
        }
        fill(other, DATASET_TRAIN, step, BATCH, tokens, targets);
        differ += memcmp(tokens, all[step][0], sizeof tokens) != 0;
    }
    assert_true(differ > STEPS / 2);
    dataset_close(resumed);
    dataset_close(other);
}

/* Two files under weights: their rows come in exact proportions, each file's in epochs of its own. */
static void weights_mix_files_exactly(void **state) {
    enum { LENGTH = 4, A = 10, B = 33, ROUND = 10, ROUNDS = 20 };
    const char *a = temp_path(*state, "a.bin"), *b = temp_path(*state, "b.bin");
    write_tokens(a, 2, 0, A * LENGTH + 1);
    write_tokens(b, 2, 1000, B * LENGTH + 1);
    char weighted[2][4096];
    snprintf(weighted[0], sizeof weighted[0], "%s:0.7", a);
    snprintf(weighted[1], sizeof weighted[1], "%s:.30", b);
    const char *paths[] = {weighted[0], weighted[1]};
    struct dataset *dataset = open_paths(paths, 2, LENGTH, 0, 11);
    assert_int_equal(dataset_split_sequences(dataset, DATASET_TRAIN), A + B);
    int seen_a[A] = {0}, seen_b[B] = {0}, draws[2] = {0};
    for (int64_t position = 0; position < ROUNDS * ROUND; position++) {
        int32_t tokens[LENGTH], targets[LENGTH];
        assert_int_equal(fill(dataset, DATASET_TRAIN, position, 1, tokens, targets), LENGTH);
        int64_t row = expect_row(tokens, targets, LENGTH);
        int from_b = row >= 250;
        int *seen = from_b ? &seen_b[row - 250] : &seen_a[row];
        int count = from_b ? B : A;
        assert_int_equal(*seen, draws[from_b] / count); /* no row again before all others */
        ++*seen;
        draws[from_b]++;
        if (position % ROUND == ROUND - 1) assert_int_equal(draws[0] * 3, draws[1] * 7);
    }
    struct dataset *plain = open_paths((const char *[]){a, b}, 2, LENGTH, 0, 11);
    assert_true(dataset_fingerprint(plain) != dataset_fingerprint(dataset));
    dataset_close(plain);
    dataset_close(dataset);
}

static void each_weighted_file_is_held_out(void **state) {
    enum { LENGTH = 4 };
    const char *a = temp_path(*state, "a.bin"), *b = temp_path(*state, "b.bin");
    write_tokens(a, 2, 0, 10 * LENGTH + 1);
    write_tokens(b, 2, 1000, 20 * LENGTH + 1);
    char weighted[2][4096];
    snprintf(weighted[0], sizeof weighted[0], "%s:1", a);
    snprintf(weighted[1], sizeof weighted[1], "%s:2", b);
    struct dataset *dataset = open_paths((const char *[]){weighted[0], weighted[1]}, 2, LENGTH, 0.2, 11);
    assert_int_equal(dataset_split_sequences(dataset, DATASET_TRAIN), 24);
    assert_int_equal(dataset_split_sequences(dataset, DATASET_VALID), 6);
    static const int64_t expected[] = {8, 9, 266, 267, 268, 269};
    int32_t tokens[8 * LENGTH], targets[8 * LENGTH];
    assert_int_equal(fill(dataset, DATASET_VALID, 0, 8, tokens, targets), 6 * LENGTH);
    for (int i = 0; i < 6; i++)
        assert_int_equal(expect_row(tokens + i * LENGTH, targets + i * LENGTH, LENGTH), expected[i]);
    for (int64_t step = 0; step < 200; step++) {
        fill(dataset, DATASET_TRAIN, step, 1, tokens, targets);
        int64_t row = expect_row(tokens, targets, LENGTH);
        assert_true(row < 8 || (row >= 250 && row < 266));
    }
    dataset_close(dataset);
}

static void expect_refused(const struct dataset_options *options, const char *file, const char *message) {
    struct dataset *dataset;
    status_clear();
    assert_int_equal(dataset_open(options, &dataset), STATUS_BAD_INPUT);
    if (!strstr(status_message(), file) || !strstr(status_message(), message))
        fail_msg("\"%s\" does not say \"%s\" and \"%s\"", status_message(), file, message);
}

/* Segments, positions and masks, from the ids alone. */
/* Whatever share of a batch a rank has, its rows are those of the whole. */
static void rows_do_not_depend_on_who_fills_them(void **state) {
    enum { LENGTH = 3, BATCH = 7 };
    const char *path = temp_path(*state, "a.bin");
    write_tokens(path, 2, 0, 20 * LENGTH + 1);
    struct dataset *dataset = open_one(path, LENGTH, 0.2, 5);
    int32_t tokens[BATCH * LENGTH], targets[BATCH * LENGTH], part[BATCH * LENGTH], part_targets[BATCH * LENGTH];
    for (int split = DATASET_TRAIN; split <= DATASET_VALID; split++) {
        int64_t all = fill(dataset, (enum dataset_split)split, 0, BATCH, tokens, targets);
        for (int64_t cut = 0; cut <= BATCH; cut++) {
            int64_t counted[2];
            for (int half = 0; half < 2; half++) {
                struct dataset_rows rows = {.batch = BATCH, .first = half ? cut : 0, .count = half ? BATCH - cut : cut};
                struct dataset_batch out = {.tokens = part + rows.first * LENGTH,
                                            .targets = part_targets + rows.first * LENGTH};
                assert_int_equal(dataset_fill_rows(dataset, (enum dataset_split)split, &rows, &out, &counted[half]),
                                 STATUS_OK);
            }
            assert_int_equal(counted[0] + counted[1], all);
            assert_memory_equal(part, tokens, sizeof tokens);
            assert_memory_equal(part_targets, targets, sizeof targets);
        }
    }
    dataset_close(dataset);
}

static void documents_are_distinguished(void **state) {
    enum { TOKENS = 401, LENGTH = 16, ROWS = 25, BORDER = 7 };
    const char *path = temp_path(*state, "a.bin");
    uint32_t ids[TOKENS];
    for (int i = 0; i < TOKENS; i++)
        ids[i] = i % 11 == 3 || i % 50 == 5 || i == 400 ? BORDER : 100 + (uint32_t)i;
    token_file_write(path, 4, ids, TOKENS);
    struct dataset_options options = {.paths = &path,
                                      .path_count = 1,
                                      .vocab_size = VOCAB,
                                      .eos_token = BORDER,
                                      .documents_apart = true,
                                      .sequence_tokens = LENGTH};
    struct dataset *dataset;
    assert_int_equal(dataset_open(&options, &dataset), STATUS_OK);
    assert_int_equal(dataset_split_sequences(dataset, DATASET_TRAIN), ROWS);
    int32_t tokens[ROWS * LENGTH], targets[ROWS * LENGTH], positions[ROWS * LENGTH], segments[ROWS * LENGTH];
    struct dataset_batch batch = {tokens, targets, positions, segments, NULL};
    int64_t counted, expected = 0;
    assert_int_equal(dataset_fill(dataset, DATASET_TRAIN, 0, ROWS, &batch, &counted), STATUS_OK);
    for (int row = 0; row < ROWS; row++) {
        int first = -1, position = 0, segment = 0;
        for (int i = 0; i < TOKENS - 1 && first < 0; i += LENGTH)
            if (memcmp(&ids[i], tokens + row * LENGTH, LENGTH * sizeof *ids) == 0) first = i;
        assert_true(first >= 0);
        for (int i = 0; i < LENGTH; i++) {
            int at = row * LENGTH + i;
            assert_int_equal(positions[at], position++);
            assert_int_equal(segments[at], segment);
            bool ends = ids[first + i] == BORDER;
            assert_int_equal(targets[at], ends ? TARGET_IGNORE : (int)ids[first + i + 1]);
            expected += !ends;
            if (ends) position = 0, segment++;
        }
    }
    assert_int_equal(counted, expected);
    dataset_close(dataset);
    options.eos_token = -1;
    expect_refused(&options, "", "eos_token_id");
    options.eos_token = BORDER;
    options.documents_apart = false;
    assert_int_equal(dataset_open(&options, &dataset), STATUS_OK);
    assert_int_equal(dataset_fill(dataset, DATASET_TRAIN, 0, ROWS, &batch, &counted), STATUS_OK);
    assert_int_equal(counted, ROWS * LENGTH);
    for (int i = 0; i < ROWS * LENGTH; i++) {
        assert_int_equal(positions[i], i % LENGTH);
        assert_int_equal(segments[i], 0);
    }
    dataset_close(dataset);
}

static void last_validation_batch_is_padded(void **state) {
    enum { LENGTH = 5, SEQUENCES = 7, BATCH = 3, ROW = BATCH * LENGTH };
    const char *train = temp_path(*state, "train.bin"), *path = *state;
    write_tokens(train, 2, 0, 100);
    write_tokens(temp_path(*state, "valid.bin"), 4, 0, SEQUENCES * LENGTH + 1);
    struct dataset *dataset = open_one(path, LENGTH, 0.5, 1); /* a valid.* comes before the fraction */
    assert_int_equal(dataset_split_sequences(dataset, DATASET_TRAIN), 19);
    assert_int_equal(dataset_split_sequences(dataset, DATASET_VALID), SEQUENCES);
    assert_int_equal(dataset_tokens(dataset), 100 + SEQUENCES * LENGTH + 1);
    for (int step = 0; step < 4; step++) {
        int32_t tokens[ROW], targets[ROW];
        memset(tokens, 0xee, sizeof tokens);
        memset(targets, 0xee, sizeof targets);
        int64_t counted = fill(dataset, DATASET_VALID, step, BATCH, tokens, targets);
        int rows = step < 2 ? BATCH : step == 2 ? 1 : 0;
        assert_int_equal(counted, rows * LENGTH);
        for (int row = 0; row < rows; row++)
            assert_int_equal(expect_row(tokens + row * LENGTH, targets + row * LENGTH, LENGTH), step * BATCH + row);
        for (int i = rows * LENGTH; i < ROW; i++) {
            assert_int_equal(tokens[i], 0);
            assert_int_equal(targets[i], TARGET_PADDING);
        }
    }
    dataset_close(dataset);
}

static void the_last_part_is_held_out(void **state) {
    static const struct {
        double fraction;
        int64_t held;
    } cases[] = {{0.001, 1}, {0.1, 2}, {0.5, 10}, {0.999, 19}};
    enum { LENGTH = 4, SEQUENCES = 20 };
    const char *path = temp_path(*state, "a.bin");
    write_tokens(path, 2, 0, SEQUENCES * LENGTH + 1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dataset *dataset = open_one(path, LENGTH, cases[i].fraction, 3);
        int64_t train = dataset_split_sequences(dataset, DATASET_TRAIN),
                held = dataset_split_sequences(dataset, DATASET_VALID);
        assert_int_equal(held, cases[i].held);
        assert_int_equal(train, SEQUENCES - held);
        int32_t tokens[LENGTH], targets[LENGTH];
        for (int64_t step = 0; step < held; step++) {
            assert_int_equal(fill(dataset, DATASET_VALID, step, 1, tokens, targets), LENGTH);
            assert_int_equal(expect_row(tokens, targets, LENGTH), train + step);
        }
        for (int64_t step = 0; step < 3 * train; step++) {
            fill(dataset, DATASET_TRAIN, step, 1, tokens, targets);
            assert_true(expect_row(tokens, targets, LENGTH) < train);
        }
        dataset_close(dataset);
    }
}

static void validation_alone_can_be_opened(void **state) {
    const char *path = temp_path(*state, "a.bin");
    write_tokens(path, 2, 0, 21);
    struct dataset_options options = {
        .valid_paths = &path, .valid_path_count = 1, .vocab_size = VOCAB, .sequence_tokens = 10};
    struct dataset *dataset;
    assert_int_equal(dataset_open(&options, &dataset), STATUS_OK);
    assert_int_equal(dataset_split_sequences(dataset, DATASET_TRAIN), 0);
    assert_int_equal(dataset_split_sequences(dataset, DATASET_VALID), 2);
    dataset_close(dataset);
}

static void fingerprints_distinguish_data(void **state) {
    const char *path = temp_path(*state, "a.bin"), *again = temp_path(*state, "b.bin");
    write_tokens(path, 2, 0, 100);
    write_tokens(again, 2, 0, 100);
    struct dataset *a = open_one(path, 8, 0, 1), *b = open_one(again, 8, 0, 2);
    assert_true(dataset_fingerprint(a) == dataset_fingerprint(b));
    struct dataset *longer = open_one(path, 9, 0, 1), *held = open_one(path, 8, 0.2, 1);
    assert_true(dataset_fingerprint(a) != dataset_fingerprint(longer));
    assert_true(dataset_fingerprint(a) != dataset_fingerprint(held));
    write_tokens(temp_path(*state, "c.bin"), 2, 1, 100);
    struct dataset *other = open_one(temp_path(*state, "c.bin"), 8, 0, 1);
    assert_true(dataset_fingerprint(a) != dataset_fingerprint(other));
    struct dataset *all[] = {a, b, longer, held, other};
    for (int i = 0; i < 5; i++)
        dataset_close(all[i]);
}

static void bad_data_are_refused_by_name(void **state) {
    const char *path = temp_path(*state, "a.bin"), *text = temp_path(*state, "a.txt");
    struct dataset_options options = {.paths = &path, .path_count = 1, .vocab_size = VOCAB, .sequence_tokens = 64};
    write_tokens(path, 2, 0, 37);
    expect_refused(&options, "a.bin", "37 tokens");
    assert_non_null(strstr(status_hint_text(), "at most 36"));
    write_tokens(path, 2, 0, 64);
    expect_refused(&options, "a.bin", "64 tokens");
    write_tokens(path, 2, 0, 65);
    options.valid_fraction = 0.5;
    expect_refused(&options, "a.bin", "hold out");
    options.valid_fraction = 0;
    write_tokens(path, 4, 0, 0);
    expect_refused(&options, "a.bin", "no tokens");
    write_tokens(path, 4, VOCAB - 70, 100);
    expect_refused(&options, "a.bin", "token 70 has id 5000");
    path = text;
    temp_write_text(text, "text without a tokenizer");
    expect_refused(&options, "a.txt", "tokenizer");
    path = temp_path(*state, "none.bin");
    expect_refused(&options, "none.bin", "No such file");
    const char *mixed[] = {temp_path(*state, "c.bin"), temp_path(*state, "d.bin:2")};
    write_tokens(mixed[0], 2, 0, 100);
    write_tokens(temp_path(*state, "d.bin"), 2, 0, 100);
    options.paths = mixed;
    options.path_count = 2;
    expect_refused(&options, "c.bin", "has no weight");
    options.paths = &path;
    options.path_count = 1;
    path = "/dev/zero";
    expect_refused(&options, "/dev/zero", "kind");
    options.path_count = 0;
    expect_refused(&options, "", "no data files");
}

static void settings_out_of_range_are_refused(void **state) {
    const char *path = temp_path(*state, "a.bin");
    write_tokens(path, 2, 0, 100);
    static const struct {
        int64_t length;
        double fraction;
        const char *message;
    } cases[] = {{0, 0, "sequence length 0"}, {-3, 0, "sequence length -3"}, {8, -0.1, "fraction -0.1"},
                 {8, 1, "fraction 1"},        {8, (double)NAN, "fraction"},  {INT64_MAX, 0, "100 tokens"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dataset_options options = {.paths = &path,
                                          .path_count = 1,
                                          .vocab_size = VOCAB,
                                          .sequence_tokens = cases[i].length,
                                          .valid_fraction = cases[i].fraction};
        expect_refused(&options, "", cases[i].message);
    }
}

static enum status open_and_close(void *folder) {
    const char *path = folder;
    struct dataset_options options = {.paths = &path, .path_count = 1, .vocab_size = VOCAB, .sequence_tokens = 8};
    struct dataset *dataset;
    TRY(dataset_open(&options, &dataset));
    dataset_close(dataset);
    return STATUS_OK;
}

static void faults_are_reported(void **state) {
    write_tokens(temp_path(*state, "train.0.bin"), 2, 0, 100);
    write_tokens(temp_path(*state, "train.1.bin"), 4, 0, 100);
    write_tokens(temp_path(*state, "valid.bin"), 2, 0, 100);
    for (int sticky = 0; sticky < 2; sticky++) {
        assert_true(fault_sweep(FAULT_ALLOCATE, sticky, open_and_close, *state) >= 10);
        assert_int_equal(fault_sweep(FAULT_OPEN, sticky, open_and_close, *state), 4);
        assert_true(fault_sweep(FAULT_READ, sticky, open_and_close, *state) >= 3);
    }
}

int main(void) {
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, temp_folder_make, temp_folder_drop)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(files_are_packed_in_order),
        IN_FOLDER(epochs_see_each_sequence_once),
        IN_FOLDER(order_depends_on_seed_and_step_only),
        IN_FOLDER(weights_mix_files_exactly),
        IN_FOLDER(rows_do_not_depend_on_who_fills_them),
        IN_FOLDER(documents_are_distinguished),
        IN_FOLDER(each_weighted_file_is_held_out),
        IN_FOLDER(last_validation_batch_is_padded),
        IN_FOLDER(the_last_part_is_held_out),
        IN_FOLDER(validation_alone_can_be_opened),
        IN_FOLDER(fingerprints_distinguish_data),
        IN_FOLDER(bad_data_are_refused_by_name),
        IN_FOLDER(settings_out_of_range_are_refused),
        IN_FOLDER(faults_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
