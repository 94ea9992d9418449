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

/* What is kept of operators whose key begins so takes `seconds`, all else next to nothing, and nothing is noisy. */
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

static void falsify_kept(const char *folder, const char *begin, double seconds) {
    char path[1200];
    struct names names;
    snprintf(path, sizeof path, "%s/ballast", folder);
    assert_int_equal(folder_list(path, &names), STATUS_OK);
    for (size_t i = 0; i < names.count; i++) {
        if (strncmp(names.items[i], "profile-", 8) != 0) continue;
        snprintf(path, sizeof path, "%s/ballast/%s", folder, names.items[i]);
        falsify(path, begin, seconds);
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
    falsify_kept(folder, "adamw", 100);
    expect_reported(folder, "fast", "less than predicted", "compute: streaming kernels");
    falsify_kept(folder, "adamw", 1e-9);
    expect_reported(folder, "slow", "more than predicted", "compute: ");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_off_is_named)};
    return cmocka_run_group_tests(tests, set_up, temp_folder_drop);
}
