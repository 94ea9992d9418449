/* A run whose steps take much more or less time than predicted reports that once, with the streams that differ. */
/* ctest: PROCESSORS 2 */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/folder.h"
#include "support/run_program.h"
#include "support/temp_folder.h"
#include "support/unit.h"

#define STEP "--batch", "4", "--seq", "16", "--micro-batch", "2", "--dtype", "fp32"
enum { STEPS = 30 };

static int set_up(void **state) {
    if (temp_folder_make(state) != 0) return -1;
    make_text(temp_path(*state, "text.txt"), 20000);
    make_tiny_model(*state, temp_path(*state, "model"), temp_path(*state, "text.txt"));
    return 0;
}

/* Sets all kept rates of GEMMs to this many seconds a GFLOP, as when other programs computed. */
static void slow_down_products(const char *path, const char *begin, double seconds) {
    (void)begin;
    json_t *file = json_load_file(path, 0, NULL), *value;
    const char *key;
    json_object_foreach(json_object_get(file, "products"), key, value) {
        json_array_set_new(value, 0, json_real(seconds));
        json_array_set_new(value, 1, json_real(0));
    }
    assert_int_equal(json_dump_file(file, path, 0), 0);
    json_decref(file);
}

/* Sets what is kept of operators whose key begins so to `seconds`, all else to next to nothing, and nothing noisy. */
static void falsify(const char *path, const char *begin, double seconds) {
    json_t *file = json_load_file(path, 0, NULL), *operators = json_object_get(file, "operators"), *rates, *value;
    const char *key;
    size_t changed = 0;
    json_object_foreach(operators, key, value) {
        bool chosen = strncmp(key, begin, strlen(begin)) == 0;
        json_array_set_new(value, 0, json_real(chosen ? seconds : 1e-9));
        json_array_set_new(value, 1, json_real(0));
        changed += chosen;
    }
    assert_true(changed > 0);
    json_object_foreach(json_object_get(file, "products"), key, value) json_array_set_new(value, 1, json_real(0));
    json_object_foreach(json_object_get(file, "rates"), key, rates) {
        json_object_set_new(rates, "noise", json_real(0));
        json_object_set_new(rates, "issue_s",
                            json_real(1e-9)); /* under load from other programs, more than a tiny step takes */
        json_object_set_new(rates, "wake_s", json_real(1e-9));
    }
    assert_int_equal(json_dump_file(file, path, 0), 0);
    json_decref(file);
}

static void change_kept(void (*change)(const char *path, const char *begin, double seconds), const char *folder,
                        const char *begin, double seconds) {
    char path[1200];
    struct names names;
    snprintf(path, sizeof path, "%s/ballast", folder);
    assert_int_equal(folder_list(path, &names), STATUS_OK);
    for (size_t i = 0; i < names.count; i++) {
        if (strncmp(names.items[i], "profile-", 8) != 0) continue;
        snprintf(path, sizeof path, "%s/ballast/%s", folder, names.items[i]);
        change(path, begin, seconds);
    }
    names_free(&names);
}

static struct program_run train(const char *folder, const char *name) {
    char steps[16];
    snprintf(steps, sizeof steps, "%d", STEPS);
    struct program_run run =
        PROGRAM(folder, "train", temp_path(folder, "model"), temp_path(folder, "text.txt"), "-o",
                temp_path(folder, name), STEP, "--steps", steps, "--save-every", "0", "--device", "cpu");
    if (run.status != 0) fail_msg("train: %s", run.err);
    return run;
}

static int count(const char *text, const char *part) {
    int found = 0;
    while ((text = strstr(text, part)) != NULL)
        found++, text++;
    return found;
}

/* The line after "most apart are" is the greatest difference. */
static void expect_reported(const char *folder, const char *name, const char *how, const char *greatest) {
    struct program_run run = train(folder, name);
    const char *report = strstr(run.err, "the last 10 steps took over 20% ");
    if (!report || !strstr(report, how)) fail_msg("'%s' is not in: %s", how, run.err);
    assert_int_equal(count(run.err, "the last 10 steps"), 1);
    const char *line = strchr(report, '\n');
    assert_non_null(line);
    line += 1 + strspn(line + 1, " ");
    if (strncmp(line, greatest, strlen(greatest)) != 0) fail_msg("'%s' is not first in: %s", greatest, report);
    program_run_free(&run);
}

static void what_is_off_is_named(void **state) {
    const char *folder = *state;
    program_expect(folder, 0, NULL,
                   (const char *const[]){"plan", temp_path(folder, "model"), STEP, "--device", "cpu", NULL});
    change_kept(falsify, folder, "adamw", 100);
    expect_reported(folder, "fast", "less than predicted", "compute: streaming kernels");
    change_kept(falsify, folder, "adamw", 1e-9);
    expect_reported(folder, "slow", "more than predicted", "compute: ");
}

/* A rate of GEMMs that is far too low would make an MFU of thousands of percent. */
static void mfu_never_exceeds_1(void **state) {
    const char *folder = *state;
    enum { SECONDS = 1000000 };
    struct program_run run = train(folder, "measured");
    program_run_free(&run);
    change_kept(slow_down_products, folder, NULL, SECONDS);
    run = train(folder, "stale");
    assert_int_equal(count(run.err, "measured again: "), 1);
    program_run_free(&run);
    char path[1200], line[4096];
    snprintf(path, sizeof path, "%s/stale/metrics.jsonl", folder);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    for (int step = 1; step <= STEPS; step++) {
        assert_non_null(fgets(line, sizeof line, file));
        json_t *object = json_loads(line, 0, NULL);
        double mfu = json_number_value(json_object_get(object, "mfu"));
        if (mfu <= 0 || mfu > 1) fail_msg("step %d has an MFU of %g", step, mfu);
        json_decref(object);
    }
    fclose(file);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_off_is_named), cmocka_unit_test(mfu_never_exceeds_1)};
    return cmocka_run_group_tests(tests, set_up, temp_folder_drop);
}
