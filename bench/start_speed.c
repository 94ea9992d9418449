/* Measures the phases of a training run before its first step, and the time that a step spends on its batch.
 *
 *     build/bench/start_speed MODEL DATA [STEPS]
 *
 * The phases are those of `ballast train`, in its order. If the text's tokens are in the cache ($XDG_CACHE_HOME), they
 * are mapped; otherwise the first ones are made. bench/loading.sh runs this. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/terminal.h"
#include "profile/profile.h"
#include "session/engine.h"
#include "support/median.h"
#include "train/data.h"

enum { STEPS_MAX = 99 };

struct bench {
    const char *model;
    struct train_options options;
    struct session session;
    struct session_plan plan;
    struct train_data data;
    struct engine engine;
    double matrix_flops_per_s;
};

static enum status plan_make(struct bench *bench) {
    struct plan_options plan;
    plan_options_init(&plan);
    return session_begin(bench->model, PROGRAMS_TO_TRAIN, &plan, &bench->options, &bench->session, &bench->plan);
}

static enum status data_open(struct bench *bench) {
    return train_data_open(bench->session.comm, bench->session.model, &bench->plan.chosen.recipe, &bench->options, true,
                           &bench->data);
}

static enum status rate_measure(struct bench *bench) {
    struct measurement gflop;
    TRY(profile_measure_matrix_rate(bench->session.machine.backend, bench->plan.chosen.recipe.dtype, &gflop));
    bench->matrix_flops_per_s = 1e9 / gflop.seconds;
    return STATUS_OK;
}

static enum status arena_open_all(struct bench *bench) { return engine_open(&bench->plan, &bench->engine); }

static enum status weights_load(struct bench *bench) { return engine_load_weights(&bench->engine); }

static enum status step_first(struct bench *bench) {
    struct step_numbers numbers;
    return engine_step(&bench->engine, bench->data.dataset, 0, 1e-5, &numbers);
}

static const struct start_phase {
    const char *name;
    enum status (*run)(struct bench *bench);
} phases[] = {
    {"model and programs", plan_make}, {"data", data_open},       {"matrix rate", rate_measure},
    {"arena", arena_open_all},         {"weights", weights_load}, {"first step", step_first},
};

static enum status phases_run(struct bench *bench) {
    int64_t begin = clock_now_ns(), before = begin;
    for (size_t i = 0; i < sizeof phases / sizeof *phases; i++) {
        TRY(phases[i].run(bench));
        int64_t now = clock_now_ns();
        printf("  %-20s %7.3f s\n", phases[i].name, (double)(now - before) * 1e-9);
        before = now;
    }
    printf("  %-20s %7.3f s; matrix rate %.1f GFLOP/s\n", "all", (double)(before - begin) * 1e-9,
           bench->matrix_flops_per_s * 1e-9);
    return STATUS_OK;
}

static enum status steps_run(struct bench *bench, int steps) {
    const struct recipe *recipe = &bench->plan.chosen.recipe;
    int64_t step_ns[STEPS_MAX], fill_ns[STEPS_MAX], tokens = recipe->batch * recipe->sequence_length;
    int32_t *buffer = mem_array((size_t)tokens, 2 * sizeof *buffer);
    enum status status = buffer ? STATUS_OK : STATUS_FAILED;
    struct dataset_batch batch = {.tokens = buffer, .targets = buffer + tokens};
    for (int i = 0; i < steps && status == STATUS_OK; i++) {
        struct step_numbers numbers;
        int64_t start = clock_now_ns();
        status = engine_step(&bench->engine, bench->data.dataset, i + 1, 1e-5, &numbers);
        int64_t middle = clock_now_ns();
        int64_t targets;
        if (status == STATUS_OK)
            status = dataset_fill_rows(
                bench->data.dataset, DATASET_TRAIN,
                &(struct dataset_rows){.step = steps + i + 1, .batch = recipe->batch, .count = recipe->batch}, &batch,
                &targets);
        step_ns[i] = middle - start;
        fill_ns[i] = clock_now_ns() - middle;
    }
    mem_free(buffer);
    TRY(status);
    double step_s = median_s(step_ns, steps), fill_s = median_s(fill_ns, steps);
    printf("step of %lld tokens %.4f s (%.0f tokens/s); filling its batch %.6f s, %.3f %% of it\n", (long long)tokens,
           step_s, (double)tokens / step_s, fill_s, 100 * fill_s / step_s);
    return STATUS_OK;
}

int main(int count, char **arguments) {
    if (process_begin() != STATUS_OK) return STATUS_FAILED;
    if (count != 3 && count != 4) {
        fprintf(stderr, "usage: %s MODEL DATA [STEPS]\n", arguments[0]);
        return 2;
    }
    int steps = count == 4 ? atoi(arguments[3]) : 9;
    steps = steps < 1 ? 1 : steps > STEPS_MAX ? STEPS_MAX : steps;
    const char *paths[] = {arguments[2]};
    struct bench bench = {.model = arguments[1]};
    train_options_init(&bench.options);
    bench.options.data_paths = paths;
    bench.options.data_path_count = 1;
    enum status status = phases_run(&bench);
    if (status == STATUS_OK) status = steps_run(&bench, steps);
    if (status != STATUS_OK) fprintf(stderr, "%s\n", status_message());
    engine_close(&bench.engine);
    train_data_close(&bench.data);
    session_plan_free(&bench.plan);
    session_close(&bench.session);
    return (int)status;
}
