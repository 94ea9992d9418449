/* `ballast train --config RUN_DIR/run.json` repeats a run, or refuses a run that cannot be repeated. */
/* ctest: PROCESSORS 2 */
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "support/run_program.h"
#include "support/temp_folder.h"
#include "support/unit.h"

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
#define EXPECT(folder, status, texts, ...)                                                                             \
    program_expect(folder, status, texts, (const char *const[]){__VA_ARGS__, NULL})
#define TEXTS(...) ((const char *const[]){__VA_ARGS__, NULL})

static int set_up(void **state) {
    if (temp_folder_make(state) != 0) return -1;
    make_text(temp_path(*state, "text.txt"), 20000);
    make_text(temp_path(*state, "valid.txt"), 3000);
    make_tiny_model(*state, temp_path(*state, "model"), temp_path(*state, "text.txt"));
    return chdir(*state); /* so that paths are short */
}

static int tear_down(void **state) { return chdir("/") == 0 ? temp_folder_drop(state) : -1; }

static char *read_text(const char *folder, const char *path) {
    char *text;
    size_t bytes;
    assert_int_equal(file_read(temp_path(folder, path), 1 << 26, &text, &bytes), STATUS_OK);
    return text;
}

static void expect_same_file(const char *folder, const char *a, const char *b) {
    char *left = read_text(folder, a), *right = read_text(folder, b);
    if (strcmp(left, right) != 0) fail_msg("%s and %s differ", a, b);
    mem_free(left);
    mem_free(right);
}

static void expect_same_weights(const char *folder, const char *name) {
    char a[512], b[512], *left, *right;
    size_t bytes, others;
    snprintf(a, sizeof a, "%s/first/model/%s", folder, name);
    snprintf(b, sizeof b, "%s/again/model/%s", folder, name);
    assert_int_equal(file_read(a, 1 << 26, &left, &bytes), STATUS_OK);
    assert_int_equal(file_read(b, 1 << 26, &right, &others), STATUS_OK);
    assert_int_equal(bytes, others);
    assert_memory_equal(left, right, bytes);
    mem_free(left);
    mem_free(right);
}

/* What does not depend on time: losses, norms, learning rates, validations. */
static json_t *read_losses(const char *folder, const char *run) {
    char path[64], *text, *save = NULL;
    snprintf(path, sizeof path, "%s/metrics.jsonl", run);
    text = read_text(folder, path);
    json_t *all = json_array();
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        json_t *step = json_loads(line, 0, NULL);
        assert_non_null(step);
        json_array_append_new(all, json_pack("[O?, O?, O?, O?, O?]", json_object_get(step, "step"),
                                             json_object_get(step, "loss"), json_object_get(step, "grad_norm"),
                                             json_object_get(step, "lr"), json_object_get(step, "val_loss")));
        json_decref(step);
    }
    mem_free(text);
    return all;
}

static void expect_same_run(const char *folder, const char *weights) {
    json_t *first = read_losses(folder, "first"), *again = read_losses(folder, "again");
    assert_true(json_array_size(first) > 1);
    assert_true(json_equal(first, again));
    json_decref(first);
    json_decref(again);
    expect_same_weights(folder, weights);
    expect_same_file(folder, "first/run.json", "again/run.json");
}

static void a_repeated_run_has_the_same_bits(void **state) {
    EXPECT(*state, 0, NULL, "train", "model", "text.txt", "-o", "first", "--steps", "5", "--batch", "3", "--seq", "16",
           "--micro-batch", "2", "--lr", "1e-2", "--seed", "7", "--schedule", "wsd", "--valid", "valid.txt",
           "--valid-every", "2", "--valid-batches", "3", "--weight-decay", "0.3", "--chat-date", "2024-07-26",
           "--sample-every", "4", "--device-memory", "900K", "--host-memory", "64M");
    EXPECT(*state, 0, NULL, "train", "--config", "first/run.json", "-o", "again");
    expect_same_run(*state, "model.safetensors");
}

/* Adapters, a length in epochs, and a policy that a search found. */
static void repeated_adapters_have_the_same_bits(void **state) {
    EXPECT(*state, 0, NULL, "train", "model", "text.txt", "-o", "first", "--epochs", "0.01", "--batch", "3", "--seq",
           "16", "--lora", "2,4,all-linear", "--freeze", "*embed*", "--freeze", "*norm*", "--valid-fraction", "0.1",
           "--document-attention", "within", "--disk", ".:1G");
    EXPECT(*state, 0, NULL, "train", "--config", "first/run.json", "-o", "again");
    expect_same_run(*state, "adapter_model.safetensors");
}

static void settings_may_be_given_anew(void **state) {
    EXPECT(*state, 0, NULL, "train", "model", "text.txt", "-o", "first", "--steps", "2", "--batch", "3", "--seq", "16",
           "--wsd-decay-fraction", "0.5", "--schedule", "wsd");
    EXPECT(*state, 0, NULL, "train", "model", "valid.txt", "--config", "first/run.json", "-o", "other", "--lr", "1e-2",
           "--steps", "3");
    json_t *run = json_load_file(temp_path(*state, "other/run.json"), 0, NULL);
    const json_t *options = json_object_get(run, "options");
    assert_true(json_number_value(json_object_get(options, "learning_rate")) > 9e-3);
    assert_true(json_number_value(json_object_get(options, "wsd_decay_fraction")) > 0.4);
    assert_int_equal(json_integer_value(json_object_get(options, "steps")), 3);
    assert_non_null(strstr(json_string_value(json_array_get(json_object_get(options, "data"), 0)), "valid.txt"));
    json_decref(run);
}

/* The run's settings with one field changed. */
static void write_changed(const char *folder, const char *part, const char *field, json_t *value) {
    json_t *run = json_load_file(temp_path(folder, "first/run.json"), 0, NULL);
    json_t *object = part ? json_object_get(run, part) : run;
    assert_int_equal(value ? json_object_set_new(object, field, value) : json_object_del(object, field), 0);
    assert_int_equal(json_dump_file(run, temp_path(folder, "changed.json"), 0), 0);
    json_decref(run);
}

/* Sizes that the command line takes only with a unit, and a date that --chat-date gives in place of a time. */
static void any_limit_can_be_repeated(void **state) {
    EXPECT(*state, 0, NULL, "train", "model", "text.txt", "-o", "first", "--steps", "2", "--batch", "1", "--seq", "8",
           "--device-memory", "900.001K");
    json_t *run = json_load_file(temp_path(*state, "first/run.json"), 0, NULL);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(run, "memory"), "device_bytes")), 921601);
    EXPECT(*state, 0, NULL, "train", "--config", "first/run.json", "-o", "again");
    json_t *again = json_load_file(temp_path(*state, "again/run.json"), 0, NULL);
    assert_true(json_equal(json_object_get(run, "memory"), json_object_get(again, "memory")));
    json_decref(run);
    json_decref(again);
    write_changed(*state, "options", "chat_time_s", json_integer(1600000123));
    EXPECT(*state, 0, NULL, "train", "--config", "changed.json", "-o", "dated", "--chat-date", "2024-07-26");
}

static json_t *change(const char *field, const char *from, const char *to) {
    return json_pack("[{s:i, s:s, s:s, s:s}]", "step", 1, "field", field, "from", from, "to", to);
}

/* An interval changes no result, and an option that is given decides for itself. */
static void changes_that_leave_the_bits_are_taken(void **state) {
    EXPECT(*state, 0, NULL, "train", "model", "text.txt", "-o", "first", "--steps", "2", "--batch", "3", "--seq", "16");
    write_changed(*state, NULL, "changes", change("save_every", "100", "50"));
    EXPECT(*state, 0, NULL, "train", "--config", "changed.json", "-o", "saved");
    write_changed(*state, NULL, "changes", change("learning_rate", "0.1", "0.2"));
    EXPECT(*state, 0, NULL, "train", "--config", "changed.json", "-o", "given", "--lr", "0.1");
}

static void what_cannot_be_repeated_is_refused(void **state) {
    EXPECT(*state, 0, NULL, "train", "model", "text.txt", "-o", "first", "--steps", "2", "--batch", "3", "--seq", "16");
#define REFUSED(texts, ...) EXPECT(*state, 2, texts, __VA_ARGS__)
    REFUSED(TEXTS("batch: 8 differs from the 3 of first/run.json", "begin anew without first/run.json"), "train",
            "--config", "first/run.json", "-o", "new", "--batch", "8");
    REFUSED(TEXTS("only `ballast train` takes", "resume"), "eval", "model", "text.txt", "--config", "first/run.json");
    REFUSED(TEXTS("-o) PATH is missing"), "train", "--config", "first/run.json");
    write_changed(*state, NULL, "memori", json_object());
    REFUSED(TEXTS("changed.json: memori: unknown field", "memory"), "train", "--config", "changed.json", "-o", "new");
    write_changed(*state, "plan", "polcy", json_object());
    REFUSED(TEXTS("changed.json: plan.polcy: unknown field"), "train", "--config", "changed.json", "-o", "new");
    write_changed(*state, "options", "stepz", json_integer(4));
    REFUSED(TEXTS("changed.json: options.stepz: unknown field"), "train", "--config", "changed.json", "-o", "new");
    write_changed(*state, "options", "learning_rate", json_integer(2000));
    REFUSED(TEXTS("changed.json: options.learning_rate: 2000 is not legal"), "train", "--config", "changed.json", "-o",
            "new");
    write_changed(*state, NULL, "version", json_integer(9));
    REFUSED(TEXTS("changed.json: version: 9 needs a newer Ballast"), "train", "--config", "changed.json", "-o", "new");
    write_changed(*state, NULL, "version", NULL);
    REFUSED(TEXTS("changed.json: version: missing"), "train", "--config", "changed.json", "-o", "new");
    write_changed(*state, "options", "epochs", json_string("two"));
    REFUSED(TEXTS("changed.json: epochs: must be a number"), "train", "--config", "changed.json", "-o", "new");
    write_changed(*state, "options", "schedule_steps", json_integer(-2));
    REFUSED(TEXTS("changed.json: schedule_steps: -2 is outside"), "train", "--config", "changed.json", "-o", "new");
    write_changed(*state, "memory", "disk_folder", json_integer(3));
    REFUSED(TEXTS("changed.json: disk_folder: must be a string"), "train", "--config", "changed.json", "-o", "new");
    write_changed(*state, "options", "chat_time_s", json_integer(1600000123));
    REFUSED(TEXTS("changed.json: options.chat_time_s: 1600000123 is a time within a day"), "train", "--config",
            "changed.json", "-o", "new");
    write_changed(*state, NULL, "changes", change("threads", "1", "2"));
    REFUSED(TEXTS("changes: threads changed after step 1"), "train", "--config", "changed.json", "-o", "new");
    write_changed(*state, NULL, "changes", change("learning_rate", "0.1", "0.2"));
    REFUSED(TEXTS("changes: learning_rate changed after step 1"), "train", "--config", "changed.json", "-o", "new");
    write_changed(*state, NULL, "changes", change("steps", "1", "2"));
    REFUSED(TEXTS("changes: steps changed after step 1"), "train", "--config", "changed.json", "-o", "new");
    assert_false(file_exists(temp_path(*state, "new")));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(a_repeated_run_has_the_same_bits),
        CASE(repeated_adapters_have_the_same_bits),
        CASE(settings_may_be_given_anew),
        CASE(any_limit_can_be_repeated),
        CASE(changes_that_leave_the_bits_are_taken),
        CASE(what_cannot_be_repeated_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
