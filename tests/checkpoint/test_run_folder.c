/* Valid directories for a run, and the part of a metrics file that a resumed run keeps. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "session/checkpoint/run_folder.h"
#include "support/fault_sweep.h"
#include "support/temp_folder.h"
#include "support/tiny_run.h"
#include "support/unit.h"
#include "train/metrics.h"

static void expect_untouched(const char *folder, const char *name, const char *text) {
    struct names names;
    char *content;
    size_t bytes;
    assert_int_equal(folder_list(folder, &names), STATUS_OK);
    assert_int_equal(names.count, 1);
    assert_string_equal(names.items[0], name);
    names_free(&names);
    assert_int_equal(file_read(temp_path(folder, name), 1000, &content, &bytes), STATUS_OK);
    assert_string_equal(content, text);
    mem_free(content);
}

static void other_folders_are_left_alone(void **state) {
    struct tiny_run run;
    tiny_run_make(*state, "llama", &run);
    char folder[512];
    snprintf(folder, sizeof folder, "%s/other", (const char *)*state);
    assert_int_equal(folder_create(folder), STATUS_OK);
    temp_write_text(temp_path(folder, "thesis.tex"), "years of work");
    expect_status(tiny_run_begin(&run, folder, NULL), STATUS_BAD_INPUT, "holds something else");
    expect_untouched(folder, "thesis.tex", "years of work");
    expect_status(tiny_run_resume(folder, 0, NULL), STATUS_BAD_INPUT, "no run.json");
    expect_untouched(folder, "thesis.tex", "years of work");
    expect_status(tiny_run_begin(&run, temp_path(folder, "thesis.tex"), NULL), STATUS_BAD_INPUT, "is not a directory");
    expect_status(tiny_run_resume(temp_path(folder, "none"), 0, NULL), STATUS_BAD_INPUT, "is not a directory");
}

static void a_run_is_not_begun_twice(void **state) {
    struct tiny_run run;
    tiny_run_make(*state, "llama", &run);
    char folder[512];
    snprintf(folder, sizeof folder, "%s/twice", (const char *)*state);
    assert_int_equal(folder_create(folder), STATUS_OK);
    temp_write_text(temp_path(folder, "run.json"), "{}");
    expect_status(tiny_run_begin(&run, folder, NULL), STATUS_BAD_INPUT, "holds a run already");
    assert_non_null(strstr(status_hint_text(), "ballast resume"));
    expect_untouched(folder, "run.json", "{}");
}

static void bad_settings_write_nothing(void **state) {
    struct tiny_run run;
    const char *folder = temp_path(*state, "nothing");
#define REFUSED(change, text)                                                                                          \
    tiny_run_make(*state, "llama", &run);                                                                              \
    change;                                                                                                            \
    expect_status(tiny_run_begin(&run, folder, NULL), STATUS_BAD_INPUT, text);                                         \
    assert_false(file_exists(folder));
    REFUSED(run.options.steps = 0, "steps")
    REFUSED(run.options.learning_rate = 0, "lr")
    REFUSED(run.options.min_lr_fraction = 1.5, "min-lr-fraction")
    REFUSED(SETTINGS_GIVE(&run.options, beta2, 1), "beta2")
    REFUSED(SETTINGS_GIVE(&run.options, epsilon, 0), "epsilon")
    REFUSED(SETTINGS_GIVE(&run.plan, sequence_length, 129), "129") /* the context is 128 */
    REFUSED(SETTINGS_GIVE(&run.plan, micro_batch_sequences, 4), "micro_batch")
    REFUSED(run.data_paths[0] = "/nowhere/data.bin", "/nowhere/data.bin")
    tiny_run_make(*state, "llama", &run);
    SETTINGS_GIVE(&run.plan.memory, device_bytes, 256 << 10);
    expect_status(tiny_run_begin(&run, folder, NULL), STATUS_NO_FIT, "more than the 256 KiB");
    assert_true(status_hint_text()[0] != '\0');
    assert_false(file_exists(folder));
}

static void one_process_at_a_time(void **state) {
    int first = -1, second = -1;
    assert_int_equal(run_folder_lock(*state, &first), STATUS_OK);
    expect_status(run_folder_lock(*state, &second), STATUS_BAD_INPUT, "another process");
    run_folder_unlock(first);
    assert_int_equal(run_folder_lock(*state, &second), STATUS_OK);
    run_folder_unlock(second);
}

/* The other process has the directory, and has not written into it yet. */
static void the_loser_of_two_starts_writes_nothing(void **state) {
    struct tiny_run run;
    int lock = -1;
    tiny_run_make(*state, "llama", &run);
    const char *folder = temp_path(*state, "race");
    assert_int_equal(folder_create(folder), STATUS_OK);
    assert_int_equal(run_folder_lock(folder, &lock), STATUS_OK);
    expect_status(tiny_run_begin(&run, folder, NULL), STATUS_BAD_INPUT, "another process");
    assert_int_equal(temp_count(folder), 0);
    run_folder_unlock(lock);
}

/* It looked when the directory was empty, and gets the lock when the other run is done. */
static void a_run_that_came_between_is_left_alone(void **state) {
    struct run_settings settings = {.model_folder = "/model"};
    int lock = -1;
    const char *folder = temp_path(*state, "between");
    train_options_init(&settings.options);
    assert_int_equal(folder_create(folder), STATUS_OK);
    temp_write_text(temp_path(folder, "run.json"), "{}");
    expect_status(run_folder_create(folder, &settings, &lock), STATUS_BAD_INPUT, "holds a run already");
    expect_untouched(folder, "run.json", "{}");
}

struct birth {
    const char *folder;
    struct run_settings settings;
};

static enum status create_run(void *payload) {
    struct birth *birth = payload;
    int lock = -1;
    TRY(run_folder_create(birth->folder, &birth->settings, &lock));
    run_folder_unlock(lock);
    return folder_remove(birth->folder);
}

/* Either it is a run's directory, which can be resumed, or one that a new run can begin in. */
static void create_after_kill(void *payload) {
    struct birth *birth = payload;
    int lock = -1;
    if (!file_exists(temp_path(birth->folder, "run.json"))) {
        expect_status(run_folder_check_new(birth->folder), STATUS_OK, NULL);
        expect_status(run_folder_create(birth->folder, &birth->settings, &lock), STATUS_OK, NULL);
        run_folder_unlock(lock);
        assert_int_equal(temp_count(birth->folder), 1); /* run.json */
    }
    assert_int_equal(folder_remove(birth->folder), STATUS_OK);
}

static void a_kill_while_it_is_made_leaves_nothing(void **state) {
    struct birth birth = {.folder = temp_path(*state, "born"), .settings = {.model_folder = "/model"}};
    train_options_init(&birth.settings.options);
    static const enum fault_kind kinds[] = {FAULT_OPEN, FAULT_READ, FAULT_WRITE, FAULT_SYNC, FAULT_RENAME};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        assert_true(fault_sweep_killed(kinds[i], create_run, create_after_kill, &birth) > 0);
    /* What older versions left. */
    assert_int_equal(folder_create(temp_path(birth.folder, "checkpoints")), STATUS_OK);
    create_after_kill(&birth);
}

static void expect_cut(const char *folder, const char *before, struct metrics_cut cut, const char *after,
                       bool validated) {
    const char *path = temp_path(folder, "cut.jsonl");
    struct metrics metrics;
    bool found;
    char *text;
    size_t bytes;
    temp_write_text(path, before);
    assert_int_equal(metrics_open(path, &cut, &metrics, &found), STATUS_OK);
    assert_int_equal(found, validated);
    metrics_close(&metrics);
    assert_int_equal(file_read(path, 1 << 16, &text, &bytes), STATUS_OK);
    assert_string_equal(text, after);
    mem_free(text);
}

static void metrics_are_cut(void **state) {
#define LINE(n) "{\"step\": " #n ", \"loss\": 1.5}\n"
#define VALID(n) "{\"step\": " #n ", \"val_loss\": 2.5}\n"
#define REPLAN(n) "{\"step\": " #n ", \"replan\": \"faster\"}\n"
    struct metrics_cut two = {2, 2, true}, two_of_three = {2, 3, true}, none = {0, 2, true};
    expect_cut(*state, LINE(1) LINE(2) VALID(2) LINE(3), two, LINE(1) LINE(2) VALID(2), true);
    expect_cut(*state, LINE(1) LINE(2) LINE(3), two, LINE(1) LINE(2), false);
    expect_cut(*state, LINE(1) LINE(2) VALID(2), two_of_three, LINE(1) LINE(2), false);
    expect_cut(*state, LINE(1) LINE(2) "{\"step\": 3, \"lo", two, LINE(1) LINE(2), false);
    expect_cut(*state, LINE(1) LINE(2) "\1\2\3\n" LINE(4), two, LINE(1) LINE(2), false);
    expect_cut(*state, LINE(1) REPLAN(1) LINE(2) REPLAN(2) LINE(3), two, LINE(1) REPLAN(1) LINE(2) REPLAN(2), false);
    expect_cut(*state, LINE(1), none, "", false);
    expect_cut(*state, "", none, "", false);
}

/* What is missing or damaged is left out, and the file is what a reader takes. */
static void damaged_metrics_are_fixed(void **state) {
    struct metrics_cut five = {5, 5, true};
    const char *whole = LINE(1) LINE(2) LINE(3) LINE(4) LINE(5) VALID(5);
    expect_cut(*state, whole, five, whole, true);
    assert_false(file_exists(temp_path(*state, "cut.jsonl.damaged")));
    expect_cut(*state, "", five, "", false);
    expect_cut(*state, LINE(1) LINE(2), five, LINE(1) LINE(2), false);
    expect_cut(*state, LINE(1) LINE(4) LINE(5), five, LINE(1) LINE(4) LINE(5), false);
    expect_cut(*state, LINE(1) LINE(2) "{\"step\": 3, \"los", five, LINE(1) LINE(2), false);
    assert_false(file_exists(temp_path(*state, "cut.jsonl.damaged")));
    const char *damaged = LINE(1) "nonsense\n" LINE(3) "{}\n" LINE(2) LINE(4) "{\"step\": -1}\n" LINE(6);
    expect_cut(*state, damaged, five, LINE(1) LINE(3) LINE(4), false);
    char *text;
    size_t bytes;
    assert_int_equal(file_read(temp_path(*state, "cut.jsonl.damaged"), 1 << 16, &text, &bytes), STATUS_OK);
    assert_string_equal(text, damaged);
    mem_free(text);
    /* Samples have no line for each step. */
    expect_cut(*state, LINE(2) "nonsense\n" LINE(4), (struct metrics_cut){.step = 5}, LINE(2) LINE(4), false);
}

static void metrics_have_all_digits(void **state) {
    struct metrics metrics;
    struct metrics_cut cut = {0, 0, true};
    bool found;
    const char *path = temp_path(*state, "digits.jsonl");
    assert_int_equal(metrics_open(path, &cut, &metrics, &found), STATUS_OK);
    struct train_step step = {.step = 1, .loss = 1.0 / 3, .grad_norm = 2.0 / 7, .mfu = 0.0 / 1, .tokens = 48};
    assert_int_equal(metrics_write_step(&metrics, &step), STATUS_OK);
    assert_int_equal(metrics_write_validation(&metrics, 1, (const double[]){1e-7 / 3}, false), STATUS_OK);
    metrics_close(&metrics);
    char *text;
    size_t bytes;
    assert_int_equal(file_read(path, 1 << 16, &text, &bytes), STATUS_OK);
    double loss = 0, norm = 0, valid = 0;
    assert_int_equal(sscanf(strstr(text, "\"loss\""), "\"loss\": %lf, \"grad_norm\": %lf", &loss, &norm), 2);
    assert_int_equal(sscanf(strstr(text, "\"val_loss\""), "\"val_loss\": %lf", &valid), 1);
    assert_true(!(loss < 1.0 / 3 || loss > 1.0 / 3) && !(norm < 2.0 / 7 || norm > 2.0 / 7));
    assert_true(!(valid < 1e-7 / 3 || valid > 1e-7 / 3));
    mem_free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kill_while_it_is_made_leaves_nothing), /* first: before this process has OpenMP's threads */
        cmocka_unit_test(the_loser_of_two_starts_writes_nothing),
        cmocka_unit_test(a_run_that_came_between_is_left_alone),
        cmocka_unit_test(other_folders_are_left_alone),
        cmocka_unit_test(a_run_is_not_begun_twice),
        cmocka_unit_test(bad_settings_write_nothing),
        cmocka_unit_test(one_process_at_a_time),
        cmocka_unit_test(metrics_are_cut),
        cmocka_unit_test(damaged_metrics_are_fixed),
        cmocka_unit_test(metrics_have_all_digits),
    };
    return cmocka_run_group_tests(tests, temp_folder_make, temp_folder_drop);
}
