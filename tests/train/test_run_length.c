/* Runs with a length in epochs: the number of steps for any data, the bits of a run with as many steps, and
 * refusals. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "session/checkpoint/run_folder.h"
#include "support/data_files.h"
#include "support/temp_folder.h"
#include "support/text_model.h"
#include "support/tiny_run.h"
#include "support/unit.h"

/* Of the 400 tokens of a tiny run: 24 sequences of 16 and a successor, 8 steps of 3. */
enum { EPOCH_STEPS = 8 };

struct seen {
    int64_t steps, tokens, last;
    double epoch, epochs;
};

static void see_begin(void *payload, const struct session_plan *plan, const char *run_folder, int64_t first_step,
                      int64_t steps, int64_t data_tokens) {
    (void)plan, (void)run_folder, (void)first_step;
    *(struct seen *)payload = (struct seen){.steps = steps, .tokens = data_tokens};
}

static void see_step(void *payload, const struct train_step *step) {
    struct seen *seen = payload;
    seen->last = step->step;
    seen->epoch = step->epoch;
    seen->epochs = step->epochs;
}

static struct train_events events_of(struct seen *seen) {
    return (struct train_events){.begin = see_begin, .step = see_step, .payload = seen};
}

/* With one thread: steps this small would only wait for a second. */
static void make_run(const char *folder, struct tiny_run *out) {
    tiny_run_make(folder, "llama", out);
    SETTINGS_GIVE(&out->plan, threads, 1);
    out->options.valid_every = 0;
}

static enum status resume(const char *folder, int64_t steps, double epochs, struct seen *seen) {
    struct plan_options plan;
    const struct train_events events = events_of(seen);
    plan_options_init(&plan);
    SETTINGS_GIVE(&plan.memory, device_bytes, 256 << 20);
    struct train_options resume = {0};
    if (steps > 0) SETTINGS_GIVE(&resume, steps, steps);
    if (epochs > 0) SETTINGS_GIVE(&resume, epochs, epochs);
    return train_resume(folder, &plan, &resume, &events);
}

/* A fresh run of so many epochs in the directory. */
static struct seen begin(struct tiny_run *run, const char *folder, double epochs) {
    struct seen seen;
    const struct train_events events = events_of(&seen);
    SETTINGS_DROP(&run->options, epochs);
    if (epochs > 0) SETTINGS_GIVE(&run->options, epochs, epochs);
    assert_int_equal(folder_remove(folder), STATUS_OK);
    expect_status(tiny_run_begin(run, folder, &events), STATUS_OK, NULL);
    assert_int_equal(seen.last, seen.steps);
    return seen;
}

static void steps_follow_from_the_data(void **state) {
    static const struct {
        double epochs;
        int64_t steps;
    } cases[] = {{1, 8}, {2, 16}, {0.5, 4}, {0.7, 6}, {0.01, 1}, {1.001, 9}, {0.125, 1}, {0.375, 3}};
    struct tiny_run run;
    char folder[512];
    make_run(*state, &run);
    run.options.save_every = 0;
    snprintf(folder, sizeof folder, "%s/run", (const char *)*state);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct seen seen = begin(&run, folder, cases[i].epochs);
        assert_int_equal(seen.steps, cases[i].steps);
        assert_float_equal(seen.epochs, cases[i].epochs, 0);
        assert_float_equal(seen.epoch, (double)cases[i].steps / EPOCH_STEPS, 1e-9);
    }
    assert_float_equal(begin(&run, folder, 0).epochs, 0, 0); /* 6 steps, as the tiny run says */
}

/* Held-out rows are no part of an epoch. */
static void held_out_rows_do_not_count(void **state) {
    struct tiny_run run;
    make_run(*state, &run);
    run.options.valid_path_count = 0;
    run.options.valid_fraction = 0.5;
    assert_int_equal(begin(&run, temp_path(*state, "run"), 1).steps, EPOCH_STEPS / 2);
}

/* The schedule and the warm-up follow the length, however it is given, and a resumed run finds the same. */
static void bits_are_those_of_so_many_steps(void **state) {
    struct tiny_run run;
    char by_steps[512], by_epochs[512];
    make_run(*state, &run);
    SETTINGS_DROP(&run.options, warmup_steps);
    snprintf(by_steps, sizeof by_steps, "%s/steps", (const char *)*state);
    snprintf(by_epochs, sizeof by_epochs, "%s/epochs", (const char *)*state);
    run.options.steps = 2 * EPOCH_STEPS;
    expect_status(tiny_run_begin(&run, by_steps, NULL), STATUS_OK, NULL);
    run.options.steps = 1000;
    begin(&run, by_epochs, 2);
    char *a = tiny_run_metrics(by_steps), *b = tiny_run_metrics(by_epochs);
    assert_string_equal(a, b);
    mem_free(a);
    mem_free(b);

    struct seen seen;
    expect_status(resume(by_epochs, 0, 0, &seen), STATUS_OK, NULL);
    assert_int_equal(seen.steps, 2 * EPOCH_STEPS);
    expect_status(resume(by_epochs, 0, 3, &seen), STATUS_OK, NULL);
    expect_status(resume(by_steps, 3 * EPOCH_STEPS, 0, &seen), STATUS_OK, NULL);
    assert_int_equal(seen.steps, 3 * EPOCH_STEPS);
    a = tiny_run_metrics(by_steps), b = tiny_run_metrics(by_epochs);
    assert_string_equal(a, b);
    mem_free(a);
    mem_free(b);

    expect_status(resume(by_epochs, 0, 1, &seen), STATUS_BAD_INPUT, "fewer than the 24 that are done");
    expect_status(resume(by_epochs, 25, 0, &seen), STATUS_OK, NULL);
    assert_int_equal(seen.steps, 25); /* now of so many steps */
    assert_float_equal(seen.epochs, 0, 0);
}

/* What the run's directory keeps of a warm-up that was not given: a tenth of the steps. */
static void the_default_warmup_is_kept(void **state) {
    struct tiny_run run;
    struct run_settings settings;
    make_run(*state, &run);
    run.options.steps = 30;
    SETTINGS_DROP(&run.options, warmup_steps);
    const char *folder = temp_path(*state, "run");
    begin(&run, folder, 0);
    expect_status(run_folder_read(folder, &settings), STATUS_OK, NULL);
    assert_int_equal(settings.options.warmup_steps, 3);
    run_settings_free(&settings);
}

static void sources_with_weights_are_refused(void **state) {
    struct tiny_run run;
    char first[600], second[600];
    make_run(*state, &run);
    snprintf(first, sizeof first, "%s:0.7", run.data);
    snprintf(second, sizeof second, "%s:0.3", run.valid);
    const char *const paths[] = {first, second}, *const plain[] = {run.data, run.valid};
    run.options.data_paths = paths;
    run.options.data_path_count = 2;
    SETTINGS_GIVE(&run.options, epochs, 1);
    const char *folder = temp_path(*state, "run");
    expect_status(tiny_run_begin(&run, folder, NULL), STATUS_BAD_INPUT, "epochs: the data have weights");
    assert_false(file_exists(folder));
    run.options.data_path_count = 1; /* one by itself has epochs */
    assert_int_equal(begin(&run, folder, 1).steps, EPOCH_STEPS);
    run.options.data_paths = plain;
    run.options.data_path_count = 2; /* 481 tokens in one: 30 sequences */
    assert_int_equal(begin(&run, folder, 1).steps, 10);
}

/* Text that was not tokenized before is counted in full before step 1. */
static void text_is_waited_for(void **state) {
    enum { WORDS = 150000, TOKENS = 40, BATCH = 64 };
    char model[512], text[512], cache[512], folder[512];
    snprintf(model, sizeof model, "%s/model", (const char *)*state);
    snprintf(text, sizeof text, "%s/text.txt", (const char *)*state);
    snprintf(cache, sizeof cache, "%s/cache", (const char *)*state);
    snprintf(folder, sizeof folder, "%s/run", (const char *)*state);
    assert_int_equal(setenv("XDG_CACHE_HOME", cache, 1), 0);
    size_t bytes;
    char *words = random_text(1, 2000, &bytes);
    text_model_make(model, words, 300, 300, false);
    mem_free(words);
    random_text_write(text, 2, WORDS);
    const char *const paths[] = {text};
    struct plan_options plan;
    struct train_options options;
    plan_options_init(&plan);
    train_options_init(&options);
    SETTINGS_GIVE(&plan, batch, BATCH);
    SETTINGS_GIVE(&plan, sequence_length, TOKENS);
    SETTINGS_GIVE(&plan, threads, 1);
    SETTINGS_GIVE(&plan.memory, device_bytes, 256 << 20);
    SETTINGS_GIVE(&options, epochs, 0.02);
    options.data_paths = paths;
    options.data_path_count = 1;
    struct seen seen;
    const struct train_events events = events_of(&seen);
    expect_status(train_begin(model, folder, &plan, &options, &events), STATUS_OK, NULL);
    assert_true(seen.tokens > WORDS);
    double rows = 0.02 * (double)((seen.tokens - 1) / TOKENS) / BATCH;
    assert_true((double)seen.steps >= rows && (double)seen.steps < rows + 1);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, temp_folder_make, temp_folder_drop)
int main(void) {
    const struct CMUnitTest tests[] = {CASE(steps_follow_from_the_data),       CASE(held_out_rows_do_not_count),
                                       CASE(bits_are_those_of_so_many_steps),  CASE(the_default_warmup_is_kept),
                                       CASE(sources_with_weights_are_refused), CASE(text_is_waited_for)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
