/* Options that `resume` changes apply from the next step on and to later resumes, and run.json keeps their history. */
/* ctest: PROCESSORS 2 LABELS long */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/folder.h"
#include "base/mem.h"
#include "support/run_program.h"
#include "support/temp_folder.h"
#include "support/tiny_run.h"
#include "support/unit.h"

static struct program_place place;

static int set_up(void **state) {
    (void)state;
    return program_place_make(&place, 20000);
}

static int tear_down(void **state) {
    (void)state;
    return program_place_drop(&place);
}
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

#define EXPECT(status, message, ...)                                                                                   \
    program_expect(place.folder, status, (const char *const[]){message, NULL}, (const char *const[]){__VA_ARGS__, NULL})
#define TRAIN_INTO(run, steps)                                                                                         \
    "train", place.model, place.text, "-o", run, "--steps", steps, "--batch", "2", "--seq", "16", "--dtype", "fp32",   \
        "--lr", "1e-3", "--warmup-steps", "4"
#define TRAIN(steps) TRAIN_INTO(place.run, steps)

/* The learning rate of a step in metrics.jsonl. */
static double rate_at(const char *run, int64_t step) {
    FILE *file = fopen(temp_path(run, "metrics.jsonl"), "r");
    char line[2000];
    double rate = NAN;
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        json_t *object = json_loads(line, 0, NULL);
        if (json_integer_value(json_object_get(object, "step")) == step && json_object_get(object, "lr"))
            rate = json_number_value(json_object_get(object, "lr"));
        json_decref(object);
    }
    assert_int_equal(fclose(file), 0);
    return rate;
}

static void expect_rate(const char *run, int64_t step, double expected) {
    double rate = rate_at(run, step);
    if (!(fabs(rate - expected) < 1e-9)) fail_msg("step %d of %s: lr %g, expected %g", (int)step, run, rate, expected);
}

/* "FIELD FROM TO after STEP" of each change, joined by "; ". */
static void expect_changes(const char *run, const char *expected) {
    json_t *settings = json_load_file(temp_path(run, "run.json"), 0, NULL), *change;
    char text[1000] = "";
    size_t i;
    json_array_foreach(json_object_get(settings, "changes"), i, change) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%s %s %s after %d", i ? "; " : "",
                 json_string_value(json_object_get(change, "field")),
                 json_string_value(json_object_get(change, "from")), json_string_value(json_object_get(change, "to")),
                 (int)json_integer_value(json_object_get(change, "step")));
    }
    json_decref(settings);
    assert_string_equal(text, expected);
}

static void expect_same_weights(const char *run, const char *other) {
    char paths[2][800];
    snprintf(paths[0], sizeof paths[0], "%s/model/model.safetensors", run);
    snprintf(paths[1], sizeof paths[1], "%s/model/model.safetensors", other);
    if (!files_equal(paths[0], paths[1])) fail_msg("%s and %s differ", paths[0], paths[1]);
}

/* Cosine from step 4 to 10, ending at a tenth of the peak. */
static double cosine(double peak, int64_t step, int64_t steps) {
    double progress = (double)(step - 1 - 4) / (double)(steps - 4);
    return peak * (0.1 + 0.9 * 0.5 * (1 + cos(3.14159265358979323846 * progress)));
}

static void a_new_peak_counts_from_the_next_step_on(void **state) {
    (void)state;
    EXPECT(0, NULL, TRAIN("10"), "--schedule-steps", "10", "--save-every", "2", "--keep", "0");
    assert_int_equal(folder_remove(temp_path(place.run, "checkpoints/step-00000010")), STATUS_OK);
    EXPECT(0, "learning_rate is 0.0001 from step 9 on, it was 0.001", "resume", place.run, "--lr", "1e-4");
    expect_rate(place.run, 8, cosine(1e-3, 8, 10));
    expect_rate(place.run, 9, cosine(1e-4, 9, 10));
    expect_changes(place.run, "learning_rate 0.001 0.0001 after 8");
    /* the run keeps it */
    EXPECT(0, NULL, "resume", place.run, "--steps", "12");
    expect_rate(place.run, 11, 1e-5);
    expect_changes(place.run, "learning_rate 0.001 0.0001 after 8; steps 10 12 after 10");
    /* the value that it has is no change */
    EXPECT(0, NULL, "resume", place.run, "--lr", "1e-4", "--steps", "13");
    expect_changes(place.run, "learning_rate 0.001 0.0001 after 8; steps 10 12 after 10; steps 12 13 after 12");
    struct program_run seen = PROGRAM(place.folder, "inspect", place.run);
    if (!strstr(seen.out, "changes (3)") || !strstr(seen.out, "learning_rate")) fail_msg("%s", seen.out);
    program_run_free(&seen);
}

/* In the warm-up the rate goes on towards the new peak. */
static void the_warm_up_keeps_its_steps(void **state) {
    (void)state;
    EXPECT(0, NULL, TRAIN("2"), "--schedule-steps", "10");
    EXPECT(0, NULL, "resume", place.run, "--lr", "2e-3", "--steps", "6");
    expect_rate(place.run, 2, 1e-3 * 2 / 4);
    expect_rate(place.run, 3, 2e-3 * 3 / 4);
    expect_rate(place.run, 4, 2e-3);
}

static void a_schedule_may_become_another(void **state) {
    (void)state;
    EXPECT(0, NULL, TRAIN("6"), "--schedule", "constant");
    EXPECT(0, NULL, "resume", place.run, "--schedule", "linear", "--steps", "14", "--min-lr-fraction", "0");
    expect_rate(place.run, 6, 1e-3);
    expect_rate(place.run, 10, 1e-3 * (1 - 5.0 / 10));
    expect_changes(place.run, "steps 6 14 after 6; schedule constant linear after 6; min_lr_fraction 0.1 0 after 6");
}

/* The steps after a checkpoint were made in vain where the run goes on from it again: so was a change for them. */
static void a_change_that_no_step_kept_is_replaced(void **state) {
    (void)state;
    EXPECT(0, NULL, TRAIN("6"), "--schedule-steps", "10", "--save-every", "2", "--keep", "0");
    EXPECT(0, NULL, "resume", place.run, "--lr", "5e-4", "--steps", "8");
    assert_int_equal(folder_remove(temp_path(place.run, "checkpoints/step-00000008")), STATUS_OK);
    EXPECT(0, "learning_rate is 0.0002 from step 7 on, it was 0.001", "resume", place.run, "--lr", "2e-4");
    expect_changes(place.run, "steps 6 8 after 6; learning_rate 0.001 0.0002 after 6");
    expect_rate(place.run, 8, cosine(2e-4, 8, 10));
}

static void intervals_change_no_bit(void **state) {
    (void)state;
    char plain[700];
    snprintf(plain, sizeof plain, "%s/plain", place.folder);
    EXPECT(0, NULL, TRAIN("4"), "--schedule-steps", "10", "--valid-fraction", "0.1", "--valid-every", "2");
    EXPECT(0, NULL, TRAIN_INTO(plain, "4"), "--schedule-steps", "10", "--valid-fraction", "0.1", "--valid-every", "2");
    EXPECT(0, NULL, "resume", plain, "--steps", "10");
    EXPECT(0, "valid_every is 3 from step 5 on, it was 2", "resume", place.run, "--steps", "10", "--valid-every", "3",
           "--save-every", "5", "--keep", "0", "--valid-batches", "2", "--sample-every", "4", "--sample-tokens", "3",
           "--sample-prompt", "the");
    expect_same_weights(place.run, plain);
    assert_true(file_is_folder(temp_path(place.run, "checkpoints/step-00000005")));
    assert_true(file_exists(temp_path(place.run, "samples.jsonl")));
    char *metrics;
    size_t bytes;
    assert_int_equal(file_read(temp_path(place.run, "metrics.jsonl"), 1 << 20, &metrics, &bytes), STATUS_OK);
    static const int validated[] = {2, 4, 6, 9, 10};
    for (int step = 1, at = 0; step <= 10; step++) {
        char line[40];
        snprintf(line, sizeof line, "{\"step\": %d, \"val_loss\"", step);
        bool expected = at < 5 && validated[at] == step;
        if ((strstr(metrics, line) != NULL) != expected) fail_msg("step %d: %s", step, metrics);
        at += expected;
    }
    mem_free(metrics);
}

/* Given in steps, then in epochs, and back. */
static void a_length_may_become_one_of_epochs(void **state) {
    (void)state;
    EXPECT(0, NULL, TRAIN("3"));
    EXPECT(0, "epochs is 0.01 from step 4 on, it was not given", "resume", place.run, "--epochs", "0.01");
    EXPECT(2, "hint: --steps is the length of the whole run", "resume", place.run, "--steps", "2");
    EXPECT(2, "fewer than the", "resume", place.run, "--epochs", "0.001");
    EXPECT(0, "epochs is not given from step ", "resume", place.run, "--steps", "40");
    EXPECT(2, "--epochs", "resume", place.run, "--steps", "50", "--epochs", "2");
}

static void options_that_cannot_change_are_refused(void **state) {
    (void)state;
    EXPECT(0, NULL, TRAIN("3"));
    EXPECT(2, "--save-every: 0: a resumed run needs checkpoints", "resume", place.run, "--save-every", "0");
    EXPECT(2, "--weight-decay", "resume", place.run, "--weight-decay", "0.5");
    EXPECT(2, "--lr", "resume", place.run, "--lr", "-1");
    EXPECT(0, "--lr has no effect: all steps are done", "resume", place.run, "--lr", "1e-5");
    EXPECT(2, "hint: `ballast resume ", "train", place.model, place.text, "-o", place.run, "--continue", "--lr",
           "3e-5");
    EXPECT(2, "--sample-prompt 'red and blue'` changes it", "train", place.model, place.text, "-o", place.run,
           "--continue", "--sample-prompt", "red and blue");
}

static bool has_checkpoint(int step) {
    char name[64];
    snprintf(name, sizeof name, "checkpoints/step-%08d", step);
    return file_is_folder(temp_path(place.run, name));
}

static void a_refused_resume_removes_no_checkpoint(void **state) {
    (void)state;
    EXPECT(0, NULL, TRAIN("4"), "--save-every", "1", "--keep", "0");
    EXPECT(2, "seq: 999 differs from", "resume", place.run, "--keep", "1", "--seq", "999");
    for (int step = 1; step <= 4; step++)
        assert_true(has_checkpoint(step));
    EXPECT(0, NULL, "resume", place.run, "--keep", "1");
    for (int step = 1; step <= 4; step++)
        assert_true(has_checkpoint(step) == (step == 4));
}

static void adapters_take_new_rates(void **state) {
    (void)state;
    EXPECT(0, NULL, TRAIN("4"), "--schedule-steps", "10", "--lora", "2,4,all-linear");
    EXPECT(0, NULL, "resume", place.run, "--steps", "8", "--lr", "1e-2");
    expect_changes(place.run, "steps 4 8 after 4; learning_rate 0.001 0.01 after 4");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(a_new_peak_counts_from_the_next_step_on),
        CASE(the_warm_up_keeps_its_steps),
        CASE(a_schedule_may_become_another),
        CASE(a_change_that_no_step_kept_is_replaced),
        CASE(intervals_change_no_bit),
        CASE(a_length_may_become_one_of_epochs),
        CASE(options_that_cannot_change_are_refused),
        CASE(a_refused_resume_removes_no_checkpoint),
        CASE(adapters_take_new_rates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
