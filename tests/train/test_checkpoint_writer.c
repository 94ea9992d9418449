/* Checkpoints that are written during the next step equal those written before it. A process that is killed
 * meanwhile resumes from the last complete checkpoint. */
/* ctest: PROCESSORS 2 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/file.h"
#include "support/temp_folder.h"
#include "support/tiny_run.h"
#include "support/unit.h"
#include "train/checkpoint_writer.h"
#include "train/data.h"

enum { STEPS = 6 };

static void kill_at_step(void *payload, const struct train_step *step) {
    const int *at = payload;
    if (step->step == *at) raise(SIGKILL);
}

static void begin_and_die(const struct tiny_run *run, const char *folder, int step) {
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct train_events events = {.step = kill_at_step, .payload = &step};
        _exit(tiny_run_begin(run, folder, &events) == STATUS_OK ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* OpenMP's threads do not outlive a fork: all children come before the parent's first run. */
static void a_kill_while_it_writes_loses_nothing(void **state) {
    struct tiny_run run;
    char whole[512], folder[STEPS + 1][512];
    tiny_run_make(*state, "llama", &run);
    SETTINGS_GIVE(&run.plan, threads, 1);
    run.options.save_every = 1;
    snprintf(whole, sizeof whole, "%s/whole", (const char *)*state);
    for (int step = 1; step <= STEPS; step++) {
        snprintf(folder[step], sizeof folder[step], "%s/killed-%d", (const char *)*state, step);
        begin_and_die(&run, folder[step], step);
    }
    expect_status(tiny_run_begin(&run, whole, NULL), STATUS_OK, NULL);
    for (int step = 1; step <= STEPS; step++) {
        expect_status(tiny_run_resume(folder[step], 0, NULL), STATUS_OK, NULL);
        char *x = tiny_run_metrics(whole), *y = tiny_run_metrics(folder[step]);
        assert_string_equal(x, y);
        mem_free(x);
        mem_free(y);
        const char *weights = "model/model.safetensors";
        assert_true(files_equal(temp_path(whole, weights), temp_path(folder[step], weights)));
    }
}

struct fixture {
    struct tiny_run run;
    struct session session;
    struct session_plan plan;
    struct engine engine;
    struct train_data data;
    struct metrics metrics;
    struct checkpoint_state state;
    char folder[512];
};

static void open_fixture(const char *place, const char *name, struct fixture *out) {
    bool validated;
    tiny_run_make(place, "llama_tied", &out->run);
    SETTINGS_GIVE(&out->run.plan, dtype, DTYPE_BF16);
    out->run.options.keep = 0;
    snprintf(out->folder, sizeof out->folder, "%s/%s", place, name);
    assert_int_equal(folder_create(out->folder), STATUS_OK);
    expect_status(
        metrics_open(temp_path(out->folder, "metrics.jsonl"), &(struct metrics_cut){0}, &out->metrics, &validated),
        STATUS_OK, NULL);
    expect_status(
        session_begin(out->run.model, PROGRAMS_TO_TRAIN, &out->run.plan, &out->run.options, &out->session, &out->plan),
        STATUS_OK, NULL);
    expect_status(train_data_open(out->session.comm, out->session.model, &out->plan.chosen.recipe, &out->run.options,
                                  true, &out->data),
                  STATUS_OK, NULL);
    expect_status(engine_open(&out->plan, &out->engine), STATUS_OK, NULL);
    expect_status(engine_load_weights(&out->engine), STATUS_OK, NULL);
    out->state = (struct checkpoint_state){.plan = out->plan.chosen};
}

static void close_fixture(struct fixture *fixture) {
    engine_close(&fixture->engine);
    train_data_close(&fixture->data);
    session_plan_free(&fixture->plan);
    session_close(&fixture->session);
    metrics_close(&fixture->metrics);
}

static void step(struct fixture *fixture) {
    struct step_numbers numbers;
    expect_status(engine_step(&fixture->engine, fixture->data.dataset, fixture->state.step++, 1e-2, &numbers),
                  STATUS_OK, NULL);
}

/* Writes a checkpoint between steps, all of it in this thread. */
static enum status write_parts(struct checkpoint_saving *saving) {
    enum status status = checkpoint_write_part(saving);
    if (saving->folder.has_runs) {
        TRY(joint_folder_meet(&saving->folder, status));
        status = checkpoint_sum_part(saving);
    }
    TRY(checkpoint_gather(saving, status));
    return checkpoint_publish(saving);
}

static enum status write_at_once(const struct checkpoint_source *source, const struct checkpoint_state *state,
                                 char **folder) {
    struct checkpoint_saving saving;
    enum status status = checkpoint_begin(source, state, &saving);
    if (status == STATUS_OK) status = write_parts(&saving);
    return checkpoint_end(&saving, status, folder);
}

static void a_checkpoint_is_that_of_its_step(void **state) {
    static struct fixture fixture;
    static struct checkpoint_writer writer;
    open_fixture(*state, "beside", &fixture);
    char *at_once, *beside, *none;
    checkpoint_writer_open(fixture.folder, &fixture.engine, fixture.data.dataset, &fixture.run.options,
                           &fixture.metrics, &writer);
    for (int i = 0; i < STEPS; i++) {
        struct checkpoint_source source = writer.source;
        source.released = NULL;
        step(&fixture);
        struct checkpoint_state other = fixture.state;
        other.step += 1000;
        expect_status(write_at_once(&source, &other, &at_once), STATUS_OK, NULL);
        expect_status(checkpoint_writer_begin(&writer, &fixture.state), STATUS_OK, NULL);
        step(&fixture);
        expect_status(checkpoint_writer_finish(&writer, &beside), STATUS_OK, NULL);
        assert_non_null(beside);
        assert_false(checkpoint_writer_ended(&writer));
        static const char *const files[] = {"model.safetensors", "optimizer.safetensors"};
        for (int f = 0; f < 2; f++)
            assert_true(files_equal(temp_path(at_once, files[f]), temp_path(beside, files[f])));
        struct checkpoint_state a, b;
        expect_status(checkpoint_read_state(at_once, &a), STATUS_OK, NULL);
        expect_status(checkpoint_read_state(beside, &b), STATUS_OK, NULL);
        assert_true(a.bits == b.bits);
        assert_int_equal(a.step, b.step + 1000);
        mem_free(at_once);
        mem_free(beside);
    }
    expect_status(checkpoint_writer_finish(&writer, &none), STATUS_OK, NULL);
    assert_null(none);
    checkpoint_writer_close(&writer);
    close_fixture(&fixture);
}

/* The step that runs during a write that fails is not held up, and the failure waits until it is asked for. */
static void a_full_disk_is_reported(void **state) {
    static struct fixture fixture;
    static struct checkpoint_writer writer;
    open_fixture(*state, "full", &fixture);
    checkpoint_writer_open(fixture.folder, &fixture.engine, fixture.data.dataset, &fixture.run.options,
                           &fixture.metrics, &writer);
    char *folder;
    step(&fixture);
    fault_arm(FAULT_WRITE, 1, true);
    expect_status(checkpoint_writer_begin(&writer, &fixture.state), STATUS_OK, NULL);
    step(&fixture);
    expect_status(checkpoint_writer_finish(&writer, &folder), STATUS_FAILED, "No space");
    fault_arm(FAULT_WRITE, 0, false);
    assert_null(folder);
    expect_status(checkpoint_find_newest(fixture.folder, &folder), STATUS_OK, NULL);
    assert_null(folder);
    expect_status(checkpoint_writer_begin(&writer, &fixture.state), STATUS_OK, NULL);
    checkpoint_writer_close(&writer); /* waits */
    expect_status(checkpoint_find_newest(fixture.folder, &folder), STATUS_OK, NULL);
    assert_non_null(folder);
    mem_free(folder);
    close_fixture(&fixture);
}

static float *find_state(struct engine *engine, const char *role) {
    const struct graph *graph = engine_graph(engine);
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        if (tensor->kind == TENSOR_STATE && strcmp(tensor->role, role) == 0) return runner_data(engine->main, tensor);
    }
    fail_msg("no %s", role);
    return NULL;
}

/* The one before stays the newest, whatever it is that is not finite. */
static void what_is_not_finite_is_not_written(void **state) {
    static const char *const roles[] = {"exp_avg", "exp_avg_sq", "master"};
    static struct fixture fixture;
    static struct checkpoint_writer writer;
    char *good, *folder, *newest;
    open_fixture(*state, "finite", &fixture);
    checkpoint_writer_open(fixture.folder, &fixture.engine, fixture.data.dataset, &fixture.run.options,
                           &fixture.metrics, &writer);
    step(&fixture);
    expect_status(checkpoint_writer_begin(&writer, &fixture.state), STATUS_OK, NULL);
    expect_status(checkpoint_writer_finish(&writer, &good), STATUS_OK, NULL);
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        float *value = &find_state(&fixture.engine, roles[i])[3], kept = *value;
        fixture.state.step++;
        *value = i == 1 ? INFINITY : NAN;
        expect_status(checkpoint_writer_begin(&writer, &fixture.state), STATUS_OK, NULL);
        expect_status(checkpoint_writer_finish(&writer, &folder), STATUS_FAILED, roles[i]);
        assert_non_null(strstr(status_message(), ": value 3 is not finite"));
        expect_status(checkpoint_find_newest(fixture.folder, &newest), STATUS_OK, NULL);
        assert_string_equal(newest, good);
        assert_int_equal(temp_count(temp_path(fixture.folder, "checkpoints")), 1);
        mem_free(newest);
        *value = kept;
    }
    mem_free(good);
    checkpoint_writer_close(&writer);
    close_fixture(&fixture);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kill_while_it_writes_loses_nothing), /* first: it forks */
        cmocka_unit_test(a_checkpoint_is_that_of_its_step),
        cmocka_unit_test(a_full_disk_is_reported),
        cmocka_unit_test(what_is_not_finite_is_not_written),
    };
    return cmocka_run_group_tests(tests, temp_folder_make, temp_folder_drop);
}
