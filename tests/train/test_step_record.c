/* The recorded step of a run, and the contents of its file. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "support/temp_folder.h"
#include "support/tiny_run.h"
#include "support/unit.h"

/* The run's timeline.json; NULL: there is none. */
static json_t *read_timeline(const char *folder) {
    json_t *object;
    const char *path = temp_path(folder, "timeline.json");
    if (!file_exists(path)) return NULL;
    assert_int_equal(json_read_object(path, 1 << 26, &object), STATUS_OK);
    return object;
}

static void train_steps(const char *root, const char *name, int64_t steps, char folder[512]) {
    struct tiny_run run;
    tiny_run_make(root, "llama", &run);
    run.options.steps = steps;
    snprintf(folder, 512, "%s/%s", root, name);
    expect_status(tiny_run_begin(&run, folder, NULL), STATUS_OK, NULL);
}

static void the_file_holds_the_step(void **state) {
    char folder[512];
    train_steps(*state, "whole", 6, folder);
    json_t *timeline = read_timeline(folder);
    assert_non_null(timeline);
    assert_string_equal(json_string_value(json_object_get(timeline, "kind")), "measured");
    double step_us = 1e6 * json_number_value(json_object_get(timeline, "step_s"));
    const json_t *events = json_object_get(timeline, "events"), *event;
    size_t index, names = json_array_size(json_object_get(timeline, "names"));
    assert_true(json_array_size(events) > 50 && step_us > 0);
    json_array_foreach(events, index, event) {
        double start = json_number_value(json_array_get(event, 6)), taken = json_number_value(json_array_get(event, 7));
        assert_true(start >= 0 && taken > 0 && start + taken <= step_us + 0.01);
        assert_true(json_integer_value(json_array_get(event, 1)) < (json_int_t)names);
    }
    json_decref(timeline);
}

/* The first step is none, and there is no second one here. */
static void short_runs_are_recorded(void **state) {
    char folder[512];
    train_steps(*state, "one", 1, folder);
    assert_null(read_timeline(folder));
    expect_status(tiny_run_resume(folder, 2, NULL), STATUS_OK, NULL);
    assert_null(read_timeline(folder));
    expect_status(tiny_run_resume(folder, 4, NULL), STATUS_OK, NULL);
    json_t *timeline = read_timeline(folder);
    assert_non_null(timeline);
    json_decref(timeline);
    train_steps(*state, "two", 2, folder);
    timeline = read_timeline(folder);
    assert_non_null(timeline);
    json_decref(timeline);
}

/* A directory in the file's place: the run fails and says why. */
static void a_file_that_cannot_be_written_is_reported(void **state) {
    char folder[512];
    train_steps(*state, "blocked", 1, folder);
    assert_int_equal(folder_create(temp_path(folder, "timeline.json")), STATUS_OK);
    expect_status(tiny_run_resume(folder, 5, NULL), STATUS_FAILED, "timeline.json");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_file_holds_the_step, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(short_runs_are_recorded, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(a_file_that_cannot_be_written_is_reported, temp_folder_make, temp_folder_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
