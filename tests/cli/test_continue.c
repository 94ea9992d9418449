/* `train --continue`: a command line that a scheduler starts repeatedly. */
/* ctest: PROCESSORS 2 */
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

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

/* Steps that do not depend on how many there will be. */
#define COMMAND(run, steps)                                                                                            \
    "train", place.model, place.text, "-o", run, "--steps", steps, "--continue", "--batch", "3", "--seq", "16",        \
        "--micro-batch", "2", "--schedule-steps", "40", "--lr", "1e-2", "--dtype", "fp32", "--save-every", "4"
#define EXPECT(status, message, ...)                                                                                   \
    program_expect(place.folder, status, (const char *const[]){message, NULL}, (const char *const[]){__VA_ARGS__, NULL})

static size_t count_lines(const char *path) {
    FILE *file = fopen(path, "r");
    size_t lines = 0;
    for (int c; file && (c = fgetc(file)) != EOF;)
        lines += c == '\n';
    if (file) fclose(file);
    return lines;
}

/* Until the run has made more steps. */
static void wait_for_steps(pid_t process, size_t before) {
    for (; count_lines(temp_path(place.run, "metrics.jsonl")) < before + 5; usleep(5000))
        program_expect_running(place.folder, process);
}

static void expect_same(const char *run, const char *whole) {
    char weights[2][800];
    snprintf(weights[0], sizeof weights[0], "%s/model/model.safetensors", run);
    snprintf(weights[1], sizeof weights[1], "%s/model/model.safetensors", whole);
    if (!files_equal(weights[0], weights[1])) fail_msg("%s and %s differ", weights[0], weights[1]);
    char *metrics = tiny_run_metrics(run), *expected = tiny_run_metrics(whole);
    assert_string_equal(metrics, expected);
    mem_free(metrics);
    mem_free(expected);
}

/* Killed twice, once by a signal that saves and once by one that does not. */
static void one_command_line_begins_goes_on_and_rests(void **state) {
    (void)state;
    static const int signals[] = {SIGUSR1, SIGKILL}, statuses[] = {143, 128 + SIGKILL};
    const char *const arguments[] = {COMMAND(place.run, "1000000"), NULL};
    for (int i = 0; i < 2; i++) {
        size_t before = count_lines(temp_path(place.run, "metrics.jsonl"));
        pid_t process = program_start(place.folder, arguments);
        wait_for_steps(process, before);
        assert_int_equal(kill(process, signals[i]), 0);
        struct program_run done = program_finish(place.folder, process);
        if (done.status != statuses[i]) fail_msg("signal %d: status %d: %s", signals[i], done.status, done.err);
        program_run_free(&done);
    }
    EXPECT(2, "--steps: is 40, and the run in", COMMAND(place.run, "40"));
}

static void a_run_in_parts_has_the_bits_of_a_whole_one(void **state) {
    (void)state;
    char whole[700], newest[700];
    snprintf(whole, sizeof whole, "%s/whole", place.folder);
    EXPECT(0, "steps 1 to 6", COMMAND(place.run, "6"));
    EXPECT(0, "complete: all 6 steps are done", COMMAND(place.run, "6"));
    EXPECT(0, "steps 7 to 12", COMMAND(place.run, "12"));
    snprintf(newest, sizeof newest, "%s/checkpoints/step-00000012", place.run);
    assert_int_equal(folder_remove(newest), STATUS_OK);
    snprintf(newest, sizeof newest, "%s/end.json", place.run);
    assert_int_equal(remove(newest), 0);
    EXPECT(0, "steps 9 to 12", COMMAND(place.run, "12"));
    EXPECT(0, "steps 1 to 12", COMMAND(whole, "12"));
    expect_same(place.run, whole);
}

static void a_complete_run_is_reported_as_json_too(void **state) {
    (void)state;
    EXPECT(0, "steps 1 to 4", COMMAND(place.run, "4"));
    struct program_run run = PROGRAM(place.folder, COMMAND(place.run, "4"), "--json", "--quiet");
    assert_int_equal(run.status, 0);
    assert_non_null(strstr(run.out, "\"how\": \"finished\""));
    assert_non_null(strstr(run.out, "\"run_steps\": 4"));
    assert_string_equal(run.err, "");
    program_run_free(&run);
}

#define BASE "train", place.model, place.text, "-o", place.run, "--continue"
static void settings_of_another_run_are_refused_by_name(void **state) {
    (void)state;
    char other[700];
    snprintf(other, sizeof other, "%s/other", place.folder);
    EXPECT(0, "steps 1 to 4", COMMAND(place.run, "4"), "--lora", "4,8,all-linear", "--valid-fraction", "0.1");
    EXPECT(0, "complete", BASE);
    EXPECT(0, "complete", BASE, "--lora", "4,8,all-linear", "--steps", "4", "--replan", "off");
    EXPECT(2, "--lr: is 0.001, and the run in", BASE, "--lr", "1e-3");
    EXPECT(2, "--schedule: is \"linear\", and the run in", BASE, "--schedule", "linear");
    EXPECT(2, "--save-every: is 5, and the run in", BASE, "--save-every", "5");
    EXPECT(2, "--valid-fraction: is 0.2, and the run in", BASE, "--valid-fraction", "0.2");
    EXPECT(2, "--valid: is [", BASE, "--valid", place.text);
    EXPECT(2, "--steps: is 3, and the run in", BASE, "--steps", "3");
    EXPECT(2, "--epochs: is given, and the length of the run in", BASE, "--epochs", "3");
    EXPECT(2, "batch: 2 differs from the 3 of", BASE, "--batch", "2");
    EXPECT(2, "beta1: 0.8 differs from the 0.9 of", BASE, "--beta1", "0.8");
    EXPECT(2, "lora: '8,8,", BASE, "--lora", "8,8,all-linear");
    EXPECT(2, "data: is [", "train", place.model, place.text, place.text, "-o", place.run, "--continue");
    make_tiny_model(place.folder, other, place.text);
    EXPECT(2, "the model: is \"", "train", other, place.text, "-o", place.run, "--continue");
}

static void plan_files_are_of_the_runs_recipe(void **state) {
    (void)state;
    char plan[700], wrong[700];
    snprintf(plan, sizeof plan, "%s/plan.json", place.folder);
    snprintf(wrong, sizeof wrong, "%s/wrong.json", place.folder);
    EXPECT(0, NULL, "plan", place.model, "--batch", "2", "--seq", "16", "-o", plan);
    EXPECT(0, NULL, "plan", place.model, "--batch", "2", "--seq", "8", "-o", wrong);
    EXPECT(0, "steps 1 to 4", BASE, "--plan", plan, "--steps", "4");
    EXPECT(0, "complete", BASE, "--plan", plan, "--steps", "4");
    EXPECT(0, "steps 5 to 6", BASE, "--plan", plan, "--steps", "6");
    EXPECT(2, "--plan: recipe.sequence_length: is 8, and the run in", BASE, "--plan", wrong);
}

static void folders_of_something_else_are_left_alone(void **state) {
    (void)state;
    EXPECT(2, "holds something else", "train", place.model, place.text, "-o", place.model, "--continue");
    EXPECT(2, "exists and is not a directory", "train", place.model, place.text, "-o", place.text, "--continue");
    char file[700];
    assert_int_equal(folder_create(place.run), STATUS_OK);
    snprintf(file, sizeof file, "%s/run.json", place.run);
    temp_write_text(file, "{\"version\": 1}");
    EXPECT(2, "run.json: model: missing", BASE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(one_command_line_begins_goes_on_and_rests), CASE(a_run_in_parts_has_the_bits_of_a_whole_one),
        CASE(a_complete_run_is_reported_as_json_too),    CASE(settings_of_another_run_are_refused_by_name),
        CASE(plan_files_are_of_the_runs_recipe),         CASE(folders_of_something_else_are_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
