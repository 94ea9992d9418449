/* From text to a trained model with the program: train, stop by a signal, resume, eval, generate, inspect. */
/* ctest: PROCESSORS 2 */
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "support/run_program.h"
#include "support/temp_folder.h"
#include "support/unit.h"

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, temp_folder_drop)
#define EXPECT(folder, status, texts, ...)                                                                             \
    program_expect(folder, status, texts, (const char *const[]){__VA_ARGS__, NULL})
#define TEXTS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* Settings under which a run's steps do not depend on how many there will be. */
#define SETTINGS                                                                                                       \
    "--batch", "3", "--seq", "16", "--micro-batch", "2", "--schedule-steps", "40", "--warmup-steps", "3", "--lr",      \
        "1e-2", "--dtype", "fp32"

static int set_up(void **state) {
    if (temp_folder_make(state) != 0) return -1;
    make_text(temp_path(*state, "text.txt"), 20000);
    make_tiny_model(*state, temp_path(*state, "model"), temp_path(*state, "text.txt"));
    return 0;
}

/* Losses and gradient norms of all steps, as written; returns how many. */
static size_t read_metrics(const char *run, json_t **steps) {
    char *text, *save = NULL;
    size_t bytes;
    assert_int_equal(file_read(temp_path(run, "metrics.jsonl"), 1 << 26, &text, &bytes), STATUS_OK);
    *steps = json_array();
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        json_t *step = json_loads(line, 0, NULL);
        assert_non_null(step);
        if (!json_object_get(step, "loss")) {
            json_decref(step);
            continue;
        }
        json_array_append_new(*steps,
                              json_pack("[O, O, O, O]", json_object_get(step, "step"), json_object_get(step, "loss"),
                                        json_object_get(step, "grad_norm"), json_object_get(step, "lr")));
        json_decref(step);
    }
    mem_free(text);
    return json_array_size(*steps);
}

static void expect_same_file(const char *a, const char *b) {
    char *left, *right;
    size_t left_bytes, right_bytes;
    assert_int_equal(file_read(a, 1 << 26, &left, &left_bytes), STATUS_OK);
    assert_int_equal(file_read(b, 1 << 26, &right, &right_bytes), STATUS_OK);
    if (left_bytes != right_bytes || memcmp(left, right, left_bytes) != 0) fail_msg("%s and %s differ", a, b);
    mem_free(left);
    mem_free(right);
}

/* Until the run has written some steps. */
static void wait_for_steps(const char *folder, pid_t process, const char *run) {
    for (;; usleep(5000)) {
        FILE *file = fopen(temp_path(run, "metrics.jsonl"), "r");
        int lines = 0;
        for (int c; file && (c = fgetc(file)) != EOF;)
            lines += c == '\n';
        if (file) fclose(file);
        if (lines >= 3) return;
        program_expect_running(folder, process);
    }
}

/* The document of --json, also where a signal ended the run. */
static void expect_stopped(const char *out, size_t steps, const char *checkpoint) {
    json_t *document = json_loads(out, 0, NULL);
    if (!document) fail_msg("stdout is no JSON document: %s", out);
    assert_string_equal(json_string_value(json_object_get(document, "how")), "stopped");
    assert_int_equal(json_integer_value(json_object_get(document, "step")), steps);
    assert_true(json_is_null(json_object_get(document, "model")));
    const char *reported = json_string_value(json_object_get(document, "checkpoint"));
    assert_non_null(reported);
    assert_non_null(strstr(reported, checkpoint));
    json_decref(document);
}

/* What `ps` shows, though the program has started itself again. */
static void expect_name(pid_t process) {
    char path[64], name[64] = "";
    snprintf(path, sizeof path, "/proc/%d/comm", (int)process);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(name, sizeof name, file));
    fclose(file);
    assert_string_equal(name, "ballast\n");
}

static size_t stop_by(const char *folder, const char *run, int signal, int status) {
    const char *model = temp_path(folder, "model"), *text = temp_path(folder, "text.txt");
    const char *const arguments[] = {"train", model, text, "-o", run, "--steps", "1000000", SETTINGS, "--json", NULL};
    pid_t process = program_start(folder, arguments);
    wait_for_steps(folder, process, run);
    expect_name(process);
    assert_int_equal(kill(process, signal), 0);
    struct program_run done = program_finish(folder, process);
    if (done.status != status) fail_msg("exit status %d, expected %d: %s", done.status, status, done.err);
    if (!strstr(done.err, "ballast resume")) fail_msg("no way to go on is told: %s", done.err);
    json_t *steps;
    size_t count = read_metrics(run, &steps);
    char name[64];
    snprintf(name, sizeof name, "checkpoints/step-%08zu", count);
    assert_true(file_is_folder(temp_path(run, name)));
    expect_stopped(done.out, count, name);
    program_run_free(&done);
    json_decref(steps);
    return count;
}

/* k steps, a signal, resume, n-k steps = n steps: metrics and weights, to the last bit. */
static void a_stopped_run_goes_on_as_if_it_had_not_stopped(void **state) {
    const char *folder = *state;
    char run[512], whole[512], model[512], text[512], steps[32];
    snprintf(run, sizeof run, "%s/run", folder);
    snprintf(whole, sizeof whole, "%s/whole", folder);
    snprintf(model, sizeof model, "%s/model", folder);
    snprintf(text, sizeof text, "%s/text.txt", folder);
    size_t done = stop_by(folder, run, SIGINT, 130);
    snprintf(steps, sizeof steps, "%zu", done + 3);
    EXPECT(folder, 0, NULL, "resume", run, "--steps", steps);
    EXPECT(folder, 0, NULL, "train", model, text, "-o", whole, "--steps", steps, SETTINGS, "--quiet");
    EXPECT(folder, 0, TEXTS("complete; writing the model again"), "resume", run);
    json_t *stopped, *straight;
    assert_int_equal(read_metrics(run, &stopped), done + 3);
    assert_int_equal(read_metrics(whole, &straight), done + 3);
    assert_true(json_equal(stopped, straight));
    json_decref(stopped);
    json_decref(straight);
    expect_same_file(temp_path(run, "model/model.safetensors"), temp_path(whole, "model/model.safetensors"));
    expect_same_file(temp_path(run, "model/tokenizer.json"), temp_path(model, "tokenizer.json"));
}

static void sigterm_is_status_143(void **state) {
    char run[512];
    snprintf(run, sizeof run, "%s/run", (const char *)*state);
    assert_true(stop_by(*state, run, SIGTERM, 143) >= 3);
}

static double eval_loss(const char *folder, const char *model) {
    struct program_run run = PROGRAM(folder, "eval", model, temp_path(folder, "text.txt"), "--json", "--batches", "8");
    assert_int_equal(run.status, 0);
    json_t *document = json_loads(run.out, 0, NULL);
    double loss = json_real_value(json_object_get(json_object_get(document, "total"), "loss"));
    json_decref(document);
    program_run_free(&run);
    return loss;
}

static char *generated(const char *folder, const char *model, const char *seed) {
    struct program_run run =
        PROGRAM(folder, "generate", model, "--prompt", "the river", "--tokens", "12", "--seed", seed);
    if (run.status != 0) fail_msg("generate: %s", run.err);
    assert_int_equal(strncmp(run.out, "the river", 9), 0);
    char *text = strdup(run.out);
    program_run_free(&run);
    return text;
}

static void training_teaches(void **state) {
    const char *folder = *state;
    char run[512], model[512], text[512], trained[600], plan[512];
    snprintf(run, sizeof run, "%s/run", folder);
    snprintf(model, sizeof model, "%s/model", folder);
    snprintf(text, sizeof text, "%s/text.txt", folder);
    snprintf(plan, sizeof plan, "%s/plan.json", folder);
    snprintf(trained, sizeof trained, "%s/model", run);
    EXPECT(folder, 0, NULL, "plan", model, "--batch", "8", "--seq", "16", "-o", plan);
    EXPECT(folder, 2, TEXTS("batch"), "train", model, text, "-o", run, "--plan", plan, "--batch", "4", "--steps", "1");
    assert_false(file_exists(run));
    EXPECT(folder, 0, NULL, "train", model, text, "-o", run, "--plan", plan, "--steps", "60", "--lr", "1e-2");
    double before = eval_loss(folder, model), after = eval_loss(folder, trained);
    if (!(after < before - 1)) fail_msg("loss %g before and %g after training", before, after);

    EXPECT(folder, 0, NULL, "plan", trained, "--for", "generate", "--json");
    char *first = generated(folder, trained, "1"), *again = generated(folder, trained, "1");
    assert_string_equal(first, again);
    free(first);
    free(again);

    struct program_run seen = PROGRAM(folder, "inspect", run, "--json");
    assert_int_equal(seen.status, 0);
    json_t *document = json_loads(seen.out, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(document, "kind")), "run");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(document, "last_step"), "step")), 60);
    json_decref(document);
    program_run_free(&seen);
    EXPECT(folder, 0, NULL, "inspect", trained);

    json_t *before_steps, *after_steps;
    read_metrics(run, &before_steps);
    EXPECT(folder, 2, TEXTS("batch"), "resume", run, "--batch", "4", "--steps", "70");
    EXPECT(folder, 2, TEXTS("run"), "train", model, text, "-o", run, "--steps", "1");
    assert_int_equal(setenv("BALLAST_MAX_ISA", "bogus", 1), 0);
    EXPECT(folder, 2, TEXTS("error: BALLAST_MAX_ISA=bogus: "), "resume", run, "--steps", "70");
    EXPECT(folder, 2, TEXTS("error: BALLAST_MAX_ISA=bogus: "), "plan", model);
    EXPECT(folder, 2, TEXTS("error: BALLAST_MAX_ISA=bogus: "), "profile");
    assert_int_equal(unsetenv("BALLAST_MAX_ISA"), 0);
    read_metrics(run, &after_steps);
    assert_true(json_equal(before_steps, after_steps));
    json_decref(before_steps);
    json_decref(after_steps);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(a_stopped_run_goes_on_as_if_it_had_not_stopped),
        CASE(sigterm_is_status_143),
        CASE(training_teaches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
