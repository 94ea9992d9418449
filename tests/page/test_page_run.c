/* The page of a run: a comparison with its plan, its end, its samples, and another run's curves. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/file.h"
#include "base/folder.h"
#include "base/json.h"
#include "report/page/metrics_reader.h"
#include "report/page/page.h"
#include "session/checkpoint/run_folder.h"
#include "support/report_run.h"
#include "support/temp_folder.h"
#include "support/tiny_run.h"
#include "support/unit.h"
#include "train/run_state.h"

#define CASE(name) cmocka_unit_test_setup_teardown(name, temp_folder_make, temp_folder_drop)
static char recorded[512], fixture[512]; /* runs */

static int set_up(void **state) {
    if (temp_folder_make(state) != 0) return -1;
    report_run_unpack("recorded", *state, recorded);
    report_run_unpack("run", *state, fixture);
    return 0;
}

static json_t *data_of(const char *folder, const char *beside) {
    struct page_run *run;
    json_t *document = NULL;
    if (page_run_open(folder, beside, &run) != STATUS_OK) fail_msg("%s", status_message());
    if (page_run_data(run, &document) != STATUS_OK) fail_msg("%s", status_message());
    page_run_close(run);
    return document;
}

static void expect_text(const json_t *object, const char *field, const char *text) {
    assert_string_equal(json_string_value(json_object_get(object, field)), text);
}

/* A run that Ballast wrote: its events say what they waited for, its plan what was tried. */
static void a_recorded_run_is_shown(void **state) {
    (void)state;
    json_t *document = data_of(recorded, NULL);
    const json_t *measured = json_object_get(document, "measured"), *event;
    size_t i, caused = 0, rows = json_array_size(json_object_get(measured, "events"));
    assert_int_equal(json_array_size(json_object_get(measured, "moves")),
                     json_array_size(json_object_get(measured, "names")));
    json_array_foreach(json_object_get(measured, "events"), i, event) {
        assert_int_equal(json_array_size(event), 12);
        json_int_t cause = json_integer_value(json_array_get(event, 11));
        assert_true(cause >= -1 && cause < (json_int_t)rows);
        if (cause < 0) continue;
        const json_t *waited = json_array_get(json_object_get(measured, "events"), (size_t)cause);
        double end = json_number_value(json_array_get(waited, 6)) + json_number_value(json_array_get(waited, 7));
        assert_true(end <= json_number_value(json_array_get(event, 6)) + 0.2); /* tenths of a microsecond */
        caused++;
    }
    assert_true(caused + 10 > rows);
    assert_true(json_array_size(json_object_get(json_object_get(document, "plan"), "tried")) > 10);
    assert_int_equal(json_array_size(json_object_get(json_object_get(document, "samples"), "kept")), 4);
    json_decref(document);
}

/* Of a model with vision, the text model's. */
static void sizes_are_those_of_the_text_model(void **state) {
    json_t *run, *document;
    expect_status(json_read_object(temp_path(recorded, "run.json"), 1 << 20, &run), STATUS_OK, NULL);
    json_object_set_new(run, "model", json_string(BALLAST_FIXTURES "/models/gemma3_wrapped"));
    assert_int_equal(json_dump_file(run, temp_path(*state, "run.json"), 0), 0);
    document = data_of(*state, NULL);
    const json_t *model = json_object_get(document, "model");
    expect_text(model, "model_type", "gemma3_text");
    assert_int_equal(json_integer_value(json_object_get(model, "num_hidden_layers")), 2);
    assert_null(json_object_get(model, "vision_config"));
    json_decref(document);
    json_decref(run);
}

/* Of a run.json of version 1, with another key. */
static void a_change_of_the_recipe_is_shown(void **state) {
    json_t *run, *document = data_of(fixture, NULL);
    assert_int_equal(json_array_size(json_object_get(document, "changes")), 0);
    json_decref(document);
    expect_status(json_read_object(temp_path(fixture, "run.json"), 1 << 20, &run), STATUS_OK, NULL);
    json_t *changes =
        json_pack("[{s:i, s:s, s:s, s:s}]", "step", 120, "field", "kernels_version", "from", "8", "to", "9");
    json_object_set_new(run, "recipe_changes", changes);
    assert_int_equal(json_dump_file(run, temp_path(*state, "run.json"), 0), 0);
    document = data_of(*state, NULL);
    assert_true(json_equal(json_object_get(document, "changes"), changes));
    json_decref(document);
    json_decref(run);
}

static json_t *end_of(const char *folder) {
    json_t *document = data_of(folder, NULL);
    if (page_run_end(folder, document) != STATUS_OK) fail_msg("%s", status_message());
    json_t *end = json_incref(json_object_get(document, "end"));
    json_decref(document);
    return end;
}

static void expect_end(const char *folder, const char *state, const char *message) {
    json_t *end = end_of(folder);
    expect_text(end, "state", state);
    expect_text(end, "message", message);
    json_decref(end);
}

static void the_end_of_a_run_is_reported(void **state) {
    const char *folder = *state;
    int lock;
    assert_int_equal(file_copy(temp_path(fixture, "run.json"), temp_path(folder, "run.json")), STATUS_OK);
    expect_end(folder, "interrupted", ""); /* neither a word nor a process */
    assert_int_equal(run_end_write(folder, STATUS_OK, 300), STATUS_OK);
    expect_end(folder, "finished", "");
    status_hint(status_set(STATUS_FAILED, "the disk is full"), "remove something");
    assert_int_equal(run_end_write(folder, STATUS_FAILED, 20), STATUS_FAILED);
    assert_string_equal(status_message(), "the disk is full");
    assert_string_equal(status_hint_text(), "remove something");
    expect_end(folder, "failed", "the disk is full");
    status_set(STATUS_TERMINATED, "stopped by a signal");
    assert_int_equal(run_end_write(folder, STATUS_TERMINATED, 20), STATUS_TERMINATED);
    expect_end(folder, "stopped", "stopped by a signal");
    assert_int_equal(run_folder_lock(folder, &lock), STATUS_OK);
    expect_end(folder, "goes on", "");
    run_folder_unlock(lock);
    assert_int_equal(run_end_clear(folder), STATUS_OK);
    assert_int_equal(run_end_clear(folder), STATUS_OK);
    expect_end(folder, "interrupted", "");
    json_t *document = json_object();
    temp_write_text(temp_path(folder, "end.json"), "{\"version\": 1, \"how\": \"goes on\"}");
    expect_status(page_run_end(folder, document), STATUS_BAD_INPUT, "end.json: how: 'goes on' is not known");
    json_decref(document);
}

/* The command can be pasted into a shell, whatever the directory is called. */
static void the_command_that_goes_on_is_reported(void **state) {
    const char *folder = temp_path(*state, "it's $(here)");
    assert_int_equal(folder_create(folder), STATUS_OK);
    assert_int_equal(file_copy(temp_path(fixture, "run.json"), temp_path(folder, "run.json")), STATUS_OK);
    json_t *document = data_of(folder, NULL);
    const char *command = json_string_value(json_object_get(document, "resume"));
    assert_int_equal(strncmp(command, "ballast resume '/", 17), 0);
    assert_non_null(strstr(command, "/it'\\''s $(here)'"));
    char *echo = mem_format("ballast() { test -d \"$2\" && test $# = 2; }; %s", command);
    assert_int_equal(system(echo), 0);
    mem_free(echo);
    json_decref(document);
    document = data_of(recorded, NULL);
    assert_null(strchr(json_string_value(json_object_get(document, "resume")), '\''));
    json_decref(document);
}

static void another_run_is_shown_beside(void **state) {
    struct page_run *run;
    json_t *document = data_of(recorded, fixture), *changes;
    const json_t *beside = json_object_get(document, "compare"), *metrics = json_object_get(beside, "metrics");
    expect_text(document, "name", "recorded");
    expect_text(beside, "name", "run");
    assert_int_equal(json_integer_value(json_object_get(beside, "step_tokens")), 4096);
    assert_int_equal(json_integer_value(json_object_get(metrics, "step")), 240);
    assert_true(json_is_object(json_object_get(json_object_get(metrics, "curves"), "val_loss")));
    json_decref(document);
    assert_int_equal(page_run_open(recorded, fixture, &run), STATUS_OK);
    assert_int_equal(page_run_changes(run, &changes), STATUS_OK);
    assert_true(json_is_object(json_object_get(changes, "compare")));
    assert_int_equal(json_integer_value(json_object_get(changes, "samples")), 4);
    json_decref(changes);
    page_run_close(run);
    document = data_of(recorded, NULL);
    assert_true(json_is_null(json_object_get(document, "compare")));
    json_decref(document);
    expect_status(page_run_open(recorded, *state, &run), STATUS_BAD_INPUT, "has no run.json");
}

static void add_samples(const char *path, int from, int to, const char *text) {
    FILE *file = fopen(path, "a");
    for (int i = from; i <= to; i++)
        fprintf(file, "{\"step\": %d, \"prompt\": \"p\", \"text\": \"%s\"}\n", i, text);
    fclose(file);
}

/* However many there are, a bounded number is kept, evenly, with the first and the last. */
static void samples_are_bounded(void **state) {
    const char *path = temp_path(*state, "samples.jsonl");
    struct samples_reader reader;
    assert_int_equal(samples_reader_open(path, &reader), STATUS_OK);
    assert_int_equal(samples_reader_advance(&reader), STATUS_OK); /* no file yet */
    for (int last = 1, from = 1; last <= 3000; from = last + 1, last = 3 * last + 1) {
        add_samples(path, from, last, "x");
        assert_int_equal(samples_reader_advance(&reader), STATUS_OK);
        json_t *samples = samples_reader_to_json(&reader), *kept = json_object_get(samples, "kept"), *sample;
        assert_int_equal(json_integer_value(json_object_get(samples, "count")), last);
        assert_true(json_array_size(kept) <= SAMPLES_MAX + 1);
        assert_true((int)json_array_size(kept) >= (last < SAMPLES_MAX / 2 ? last : SAMPLES_MAX / 2));
        json_int_t before = 0, widest = 0, step = 0;
        size_t i;
        json_array_foreach(kept, i, sample) {
            step = json_integer_value(json_object_get(sample, "step"));
            widest = step - before > widest ? step - before : widest;
            assert_true(step > before);
            before = step;
        }
        assert_int_equal(step, last);
        assert_true(widest <= 2 + 2 * last / SAMPLES_MAX);
        json_decref(samples);
    }
    assert_int_equal(remove(path), 0);
    add_samples(path, 7, 7, "y"); /* shorter than before: another run's, or cut on resume */
    assert_int_equal(samples_reader_advance(&reader), STATUS_OK);
    assert_int_equal(reader.count, 1);
    samples_reader_close(&reader);
}

static void long_samples_are_cut(void **state) {
    enum { LONG = 1 << 20 };
    const char *path = temp_path(*state, "samples.jsonl");
    struct samples_reader reader;
    char *text = mem_array(3 * LONG + 1, 1);
    for (int i = 0; i < LONG; i++)
        memcpy(text + 3 * i, "€", 3);
    add_samples(path, 1, 1, text);
    mem_free(text);
    assert_int_equal(samples_reader_open(path, &reader), STATUS_OK);
    assert_int_equal(samples_reader_advance(&reader), STATUS_OK);
    const char *kept = json_string_value(json_object_get(reader.last, "text"));
    assert_in_range(strlen(kept), SAMPLE_TEXT_BYTES_MAX - 2, SAMPLE_TEXT_BYTES_MAX + 3);
    assert_string_equal(kept + strlen(kept) - 6, "€…");
    add_samples(path, 0, 0, "x");
    expect_status(samples_reader_advance(&reader), STATUS_BAD_INPUT, "samples.jsonl: line 2: step: 0 is outside");
    samples_reader_close(&reader);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(a_recorded_run_is_shown),
        CASE(sizes_are_those_of_the_text_model),
        CASE(a_change_of_the_recipe_is_shown),
        CASE(the_end_of_a_run_is_reported),
        CASE(the_command_that_goes_on_is_reported),
        CASE(another_run_is_shown_beside),
        CASE(samples_are_bounded),
        CASE(long_samples_are_cut),
    };
    return cmocka_run_group_tests(tests, set_up, temp_folder_drop);
}
