/* `ballast simulate` on a plan and on a run: from the files to a prediction, its JSON and its trace. */
/* ctest: PROCESSORS 2 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "support/run_program.h"
#include "support/temp_folder.h"
#include "support/unit.h"

#define EXPECT(folder, status, texts, ...)                                                                             \
    program_expect(folder, status, texts, (const char *const[]){__VA_ARGS__, NULL})
#define TEXTS(...) ((const char *const[]){__VA_ARGS__, NULL})

static int set_up(void **state) {
    if (temp_folder_make(state) != 0) return -1;
    make_text(temp_path(*state, "text.txt"), 20000);
    make_tiny_model(*state, temp_path(*state, "model"), temp_path(*state, "text.txt"));
    return 0;
}

static json_t *simulate_to_json(const char *folder, const char *what) {
    struct program_run run =
        PROGRAM(folder, "simulate", what, "--disk", folder, "--json", "--trace", temp_path(folder, "trace.json"));
    if (run.status != 0) fail_msg("simulate: %s", run.err);
    json_t *object = json_loads(run.out, 0, NULL);
    assert_non_null(object);
    program_run_free(&run);
    return object;
}

static void expect_printed(const char *folder, const char *const *texts, const char *what, const char *option,
                           const char *value) {
    struct program_run run = PROGRAM(folder, "simulate", what, option, value);
    if (run.status != 0) fail_msg("simulate: %s", run.err);
    for (; *texts; texts++)
        if (!strstr(run.out, *texts)) fail_msg("'%s' is not in: %s", *texts, run.out);
    program_run_free(&run);
}

/* Everything on the disk, so that every stream is there. */
static void put_on_disk(const char *path) {
    json_t *plan = json_load_file(path, 0, NULL), *policy = json_object_get(plan, "policy");
    assert_non_null(policy);
    json_object_set_new(policy, "parameters", json_string("disk"));
    json_object_set_new(policy, "optimizer", json_string("disk"));
    json_object_set_new(policy, "buffers", json_integer(4));
    assert_int_equal(json_dump_file(plan, path, 0), 0);
    json_decref(plan);
}

enum { PREDICTED = 1, MEASURED = 2, PROCESSES = MEASURED, THREADS_MAX = 64 };

/* Processes are named, and every event is that has a name. */
static void expect_trace(const char *path, int processes) {
    const char *const names[] = {[PREDICTED] = "predicted", [MEASURED] = "measured"};
    bool named[PROCESSES + 1][THREADS_MAX] = {0};
    int processes_named = 0, events[PROCESSES + 1] = {0};
    json_t *object = json_load_file(path, 0, NULL);
    size_t index;
    const json_t *event;
    json_array_foreach(json_object_get(object, "traceEvents"), index, event) {
        const char *name = json_string_value(json_object_get(event, "name"));
        const char *phase = json_string_value(json_object_get(event, "ph"));
        int64_t process = json_integer_value(json_object_get(event, "pid"));
        int64_t thread = json_integer_value(json_object_get(event, "tid"));
        assert_in_range(process, PREDICTED, processes);
        assert_in_range(thread, 0, THREADS_MAX - 1);
        if (strcmp(name, "process_name") == 0) {
            const json_t *args = json_object_get(event, "args");
            assert_string_equal(json_string_value(json_object_get(args, "name")), names[process]);
            processes_named++;
        }
        if (strcmp(name, "thread_name") == 0) named[process][thread] = true;
        if (strcmp(phase, "X") != 0) continue;
        assert_true(named[process][thread]);
        events[process]++;
    }
    assert_int_equal(processes_named, processes);
    for (int process = PREDICTED; process <= processes; process++)
        assert_true(events[process] > 0);
    json_decref(object);
}

static void plans_and_runs_are_simulated(void **state) {
    const char *folder = *state, *plan = temp_path(folder, "plan.json"), *run = temp_path(folder, "run");
    const char *model = temp_path(folder, "model"), *text = temp_path(folder, "text.txt");
    EXPECT(folder, 0, TEXTS(""), "plan", model, "--batch", "4", "--seq", "16", "--micro-batch", "2", "--dtype", "fp32",
           "-o", plan);
    put_on_disk(plan);
    EXPECT(folder, 2, TEXTS("uses the disk tier", "--disk DIR"), "simulate", plan);
    json_t *predicted = simulate_to_json(folder, plan);
    assert_true(json_number_value(json_object_get(predicted, "step_s")) > 0);
    assert_true(json_is_null(json_object_get(predicted, "measured_step_s")));
    assert_true(json_array_size(json_object_get(predicted, "streams")) >= 4);
    assert_true(json_array_size(json_object_get(predicted, "binds")) > 0);
    assert_int_equal(json_array_size(json_object_get(predicted, "tiers")), 2);
    expect_trace(temp_path(folder, "trace.json"), 1);
    json_decref(predicted);
    EXPECT(folder, 0, TEXTS(""), "train", model, text, "-o", run, "--plan", plan, "--disk", folder, "--steps", "4");
    predicted = simulate_to_json(folder, run);
    assert_true(json_number_value(json_object_get(predicted, "measured_step_s")) > 0);
    expect_trace(temp_path(folder, "trace.json"), 2);
    json_decref(predicted);
    /* The run knows where its disk is. */
    expect_printed(folder, TEXTS("predicted step", "measured step", "bottleneck", "disk in"), run, NULL, NULL);
}

/* As one of them, in a process without ranks. */
static void a_step_of_several_ranks_is_simulated(void **state) {
    const char *folder = *state, *plan = temp_path(folder, "plan.json"), *model = temp_path(folder, "model");
    EXPECT(folder, 0, TEXTS(""), "plan", model, "--batch", "4", "--seq", "16", "--micro-batch", "1", "--dtype", "fp32",
           "--ranks", "2", "--threads", "1", "-o", plan);
    json_t *predicted = simulate_to_json(folder, plan), *sums = json_object_get(predicted, "communication");
    json_t *read = json_object_get(sums, "read_bytes"), *sent = json_object_get(sums, "in_node_bytes");
    assert_true(json_integer_value(read) + json_integer_value(sent) > 0);
    json_decref(predicted);
    expect_printed(folder, TEXTS("2: 1 node of 2", "communication"), plan, NULL, NULL);
}

static void what_cannot_be_simulated_is_reported(void **state) {
    const char *folder = *state, *plan = temp_path(folder, "plan.json"), *model = temp_path(folder, "model");
    EXPECT(folder, 2, TEXTS("nowhere.json"), "simulate", "nowhere.json");
    EXPECT(folder, 2, TEXTS("has no run.json"), "simulate", model);
    EXPECT(folder, 0, TEXTS(""), "plan", model, "--batch", "4", "--seq", "16", "--micro-batch", "2", "--dtype", "fp32",
           "-o", plan);
    EXPECT(folder, 2, TEXTS("text.txt", "is not a trace"), "simulate", plan, "--trace", temp_path(folder, "text.txt"));
    json_t *object = json_load_file(plan, 0, NULL);
    assert_non_null(json_object_get(object, "model"));
    json_object_del(object, "model");
    assert_int_equal(json_dump_file(object, plan, 0), 0);
    EXPECT(folder, 2, TEXTS("names none", "--model MODEL_DIR"), "simulate", plan);
    expect_printed(folder, TEXTS("predicted step"), plan, "--model", model);
    json_object_set_new(json_object_get(object, "recipe"), "isa", json_string("another"));
    assert_int_equal(json_dump_file(object, plan, 0), 0);
    EXPECT(folder, 2, TEXTS("plan.json", "isa"), "simulate", plan, "--model", model);
    json_decref(object);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(plans_and_runs_are_simulated, set_up, temp_folder_drop),
        cmocka_unit_test_setup_teardown(a_step_of_several_ranks_is_simulated, set_up, temp_folder_drop),
        cmocka_unit_test_setup_teardown(what_cannot_be_simulated_is_reported, set_up, temp_folder_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
