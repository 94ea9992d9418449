/* Trains a model, stops halfway, resumes, and generates text. `ballast train`, Ctrl-C, `ballast resume` and `ballast
 * generate` do the same, with the same bits.
 *
 *     cc -o train train.c $(pkg-config --cflags --libs ballast)
 *     ./train MODEL_DIR DATA RUN_DIR STEPS
 *     mpirun -n 4 ./train MODEL_DIR DATA RUN_DIR STEPS
 *
 * Steps go to stderr, the text to stdout. The exit status is that of the call that failed. */
#include <ballast.h>
#include <stdio.h>
#include <stdlib.h>

/* The callback's payload. */
struct watch {
    long long stop_at; /* stop after this step */
};

static int rank, ranks; /* rank 0 of 1 without mpirun; rank 0 prints */

static int on_step(const struct ballast_step *step, void *payload) {
    const struct watch *watch = (const struct watch *)payload;
    if (rank == 0)
        fprintf(stderr, "step %lld of %lld  loss %.4f\n", (long long)step->step, (long long)step->steps, step->loss);
    return step->step == watch->stop_at;
}

static void on_saved(int64_t step, const char *folder, void *payload) {
    (void)payload;
    if (rank == 0) fprintf(stderr, "step %lld saved in %s\n", (long long)step, folder);
}

static int on_piece(const char *text, size_t bytes, void *payload) {
    (void)payload;
    return fwrite(text, 1, bytes, stdout) != bytes;
}

static void on_log(enum ballast_log_level level, const char *text, void *payload) {
    (void)payload;
    if (rank == 0) fprintf(stderr, "%s%s\n", level == BALLAST_LOG_WARNING ? "warning: " : "", text);
}

/* Ends the program on all ranks, unless the status is the expected one. */
static void expect(enum ballast_status expected, enum ballast_status status) {
    if (status == expected) return;
    if (ballast_ranks_should_report()) {
        fprintf(stderr, "%s: %s\n", ballast_status_name(status), ballast_error_message());
        if (ballast_error_hint()[0] != '\0') fprintf(stderr, "hint: %s\n", ballast_error_hint());
    }
    exit((int)ballast_ranks_close(status == BALLAST_OK ? BALLAST_FAILED : status));
}

static void train(const char *model, const char *data, const char *run, long long steps) {
    struct ballast_plan_options plan = BALLAST_PLAN_OPTIONS_INIT;
    struct ballast_train_options options = BALLAST_TRAIN_OPTIONS_INIT;
    struct ballast_train_events events = BALLAST_TRAIN_EVENTS_INIT;
    struct ballast_plan_result planned = BALLAST_PLAN_RESULT_INIT;
    struct watch watch;
    watch.stop_at = steps / 2;
    events.step = on_step;
    events.saved = on_saved;
    events.payload = &watch;
    options.data_paths = &data;
    options.data_path_count = 1;
    options.steps = steps;
    options.learning_rate = 3e-3;
    options.valid_every = steps / 5;
    options.valid_batches = 2;

    expect(BALLAST_OK, ballast_plan(model, &plan, &options, &planned));
    if (rank == 0)
        fprintf(stderr, "a step takes %lld of %lld bytes, %.3g s\n", (long long)planned.device_bytes,
                (long long)planned.device_capacity_bytes, planned.step_s);
    expect(BALLAST_STOPPED, ballast_train(model, run, &plan, &options, &events));
    watch.stop_at = -1;
    expect(BALLAST_OK, ballast_resume(run, NULL, NULL, &events));
}

static void generate(const char *model, const char *prompt) {
    struct ballast_plan_options plan = BALLAST_PLAN_OPTIONS_INIT;
    struct ballast_generate_options options = BALLAST_GENERATE_OPTIONS_INIT;
    plan.seed = 3;
    options.tokens = 40;
    options.temperature = 0.7;
    fputs(prompt, stdout);
    expect(BALLAST_OK, ballast_generate(model, &plan, &options, prompt, on_piece, NULL, NULL));
    putchar('\n');
}

int main(int count, char **arguments) {
    if (count != 5) {
        fprintf(stderr, "usage: %s MODEL_DIR DATA RUN_DIR STEPS\n", arguments[0]);
        return 2;
    }
    ballast_set_log(on_log, NULL);
    expect(BALLAST_OK, ballast_ranks_open(NULL, &rank, &ranks));
    train(arguments[1], arguments[2], arguments[3], atoll(arguments[4]));
    if (rank == 0) generate(arguments[3], "The model"); /* the run's directory stands for its model */
    return (int)ballast_ranks_close(BALLAST_OK);
}
