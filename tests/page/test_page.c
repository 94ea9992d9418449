/* The page as a file: complete, self-contained, and safe for any input. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/folder.h"
#include "base/json.h"
#include "report/page/page.h"
#include "support/fault_sweep.h"
#include "support/report_run.h"
#include "support/temp_folder.h"
#include "support/tiny_run.h"
#include "support/unit.h"

#define CASE(name) cmocka_unit_test_setup_teardown(name, temp_folder_make, temp_folder_drop)
static char fixture[512]; /* a run */

static int set_up(void **state) {
    int failed = temp_folder_make(state);
    if (!failed) report_run_unpack("run", *state, fixture);
    return failed;
}

static json_t *data_of_run(const char *folder) {
    struct page_run *run;
    json_t *document = NULL;
    assert_int_equal(page_run_open(folder, NULL, &run), STATUS_OK);
    if (page_run_data(run, &document) != STATUS_OK) fail_msg("%s", status_message());
    page_run_close(run);
    return document;
}

/* The JSON that a page holds, parsed as a browser does: what stands between the tags. */
static json_t *data_in_page(const char *page) {
    const char *start = strstr(page, "id=\"data\">");
    assert_non_null(start);
    start += strlen("id=\"data\">");
    const char *end = strstr(start, "</script");
    assert_non_null(end);
    json_t *data = json_loadb(start, (size_t)(end - start), 0, NULL);
    assert_non_null(data);
    return data;
}

static int count(const char *text, const char *part) {
    int found = 0;
    for (; (text = strstr(text, part)); text += strlen(part))
        found++;
    return found;
}

static void copy(const char *folder, const char *name) {
    assert_int_equal(file_copy(temp_path(fixture, name), temp_path(folder, name)), STATUS_OK);
}

static void a_whole_run_is_shown(void **state) {
    (void)state;
    json_t *document = data_of_run(fixture);
    size_t bytes;
    char *page = page_make(document, &bytes);
    assert_int_equal(strlen(page), bytes);
    assert_int_equal(strncmp(page, "<!doctype html>", 15), 0);
    /* Of a page that holds up to 2 MiB of data; schedule, scatter, samples and the tools of the curves brought it over
     * 64 KiB. */
    assert_true(page_source_before_bytes + page_source_after_bytes < (112 << 10));
    assert_null(strstr(page, "{{"));
    assert_null(strstr(page, "src="));
    assert_int_equal(count(page, "http://"), 1); /* the name of SVG */
    assert_int_equal(count(page, "https://"), 0);
    json_t *data = data_in_page(page);
    assert_string_equal(json_string_value(json_object_get(data, "name")), "run");
    assert_string_equal(json_string_value(json_object_get(data, "model_name")), "llama-124m");
    static const char *const parts[] = {"plan", "options", "measured", "predicted", "metrics"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        assert_true(json_is_object(json_object_get(data, parts[i])));
    const json_t *metrics = json_object_get(data, "metrics");
    assert_int_equal(json_integer_value(json_object_get(metrics, "step")), 240);
    assert_int_equal(
        json_array_size(json_object_get(json_object_get(json_object_get(metrics, "curves"), "loss"), "mean")), 240);
    json_decref(data);
    json_decref(document);
    mem_free(page);
}

static void no_text_becomes_html(void **state) {
    static const char hostile[] = "/m/</script><script>alert('x')</script><!--&\"'\\";
    static const char hostile_name[] = "<script>alert('x')<img src=x onerror=alert(1)>&$(touch x);`";
    static const char hostile_text[] = "</script><script>alert(1)</script><img src=x onerror=alert(1)><!--]]>";
    const char *folder = temp_path(*state, hostile_name);
    assert_int_equal(folder_create(folder), STATUS_OK);
    json_t *run, *timeline;
    assert_int_equal(json_read_object(temp_path(fixture, "run.json"), 1 << 20, &run), STATUS_OK);
    assert_int_equal(json_read_object(temp_path(fixture, "timeline.json"), 1 << 20, &timeline), STATUS_OK);
    json_object_set_new(run, "model", json_string(hostile));
    json_array_set_new(json_object_get(timeline, "names"), 0, json_string("</ScRiPt><img src=x onerror=alert(1)>"));
    assert_int_equal(json_write(temp_path(folder, "run.json"), run), STATUS_OK);
    assert_int_equal(json_write(temp_path(folder, "timeline.json"), timeline), STATUS_OK);
    char *sample = mem_format("{\"step\": 1, \"prompt\": \"%s\", \"text\": \"%s\"}\n", hostile_text, hostile_text);
    temp_write_text(temp_path(folder, "samples.jsonl"), sample);
    mem_free(sample);
    json_t *plain = data_of_run(fixture), *document = data_of_run(folder);
    assert_int_equal(page_run_end(folder, document), STATUS_OK);
    char *clean = page_make(plain, NULL), *page = page_make(document, NULL);
    assert_null(strstr(page, "<script>alert"));
    assert_null(strstr(page, "<img"));
    assert_int_equal(count(page, "<"), count(clean, "<"));
    json_t *data = data_in_page(page);
    assert_string_equal(json_string_value(json_object_get(data, "model_name")), "script><!--&\"'\\");
    const json_t *kept = json_object_get(json_object_get(data, "samples"), "kept");
    assert_string_equal(json_string_value(json_object_get(json_array_get(kept, 0), "text")), hostile_text);
    assert_string_equal(json_string_value(json_object_get(json_array_get(kept, 0), "prompt")), hostile_text);
    assert_string_equal(json_string_value(json_object_get(data, "name")), hostile_name);
    const json_t *names = json_object_get(json_object_get(data, "measured"), "names");
    assert_string_equal(json_string_value(json_array_get(names, 0)), "</ScRiPt><img src=x onerror=alert(1)>");
    json_decref(data);
    json_decref(document);
    json_decref(plain);
    json_decref(run);
    json_decref(timeline);
    mem_free(page);
    mem_free(clean);
}

static void what_is_missing_is_null(void **state) {
    copy(*state, "run.json");
    json_t *document = data_of_run(*state);
    assert_true(json_is_null(json_object_get(document, "measured")));
    assert_true(json_is_null(json_object_get(document, "predicted")));
    assert_int_equal(json_integer_value(json_object_get(json_object_get(document, "metrics"), "step")), 0);
    assert_true(json_is_object(json_object_get(json_object_get(document, "plan"), "recipe")));
    json_decref(document);
    json_t *timeline;
    assert_int_equal(json_read_object(temp_path(fixture, "predicted.json"), 1 << 20, &timeline), STATUS_OK);
    assert_int_equal(page_data_of_plan(temp_path(fixture, "plan.json"), &document), STATUS_OK);
    assert_string_equal(json_string_value(json_object_get(document, "kind")), "plan");
    assert_null(json_object_get(document, "predicted"));
    assert_int_equal(page_data_predict(document, timeline), STATUS_OK);
    assert_true(json_is_object(json_object_get(document, "predicted")));
    json_decref(document);
    json_decref(timeline);
}

static void refuse_run(const char *folder, const char *file, const char *text, const char *message) {
    copy(folder, "run.json");
    temp_write_text(temp_path(folder, file), text);
    struct page_run *run;
    json_t *document = NULL;
    assert_int_equal(page_run_open(folder, NULL, &run), STATUS_OK);
    expect_status(page_run_data(run, &document), STATUS_BAD_INPUT, message);
    page_run_close(run);
    assert_int_equal(remove(temp_path(folder, file)), 0);
}

static void what_is_wrong_is_named(void **state) {
    refuse_run(*state, "run.json", "{\"version\": 1}", "run.json: model: missing");
    refuse_run(*state, "plan.json", "{\"version\": 1}", "plan.json: recipe: must be an object");
    refuse_run(*state, "timeline.json", "{", "timeline.json: not valid JSON");
    refuse_run(*state, "predicted.json", "{\"version\": 9}", "predicted.json: version: 9 needs a newer Ballast");
    refuse_run(*state, "metrics.jsonl", "{}\n", "metrics.jsonl: line 1: step: missing");
    json_t *plan;
    assert_int_equal(json_read_object(temp_path(fixture, "plan.json"), 1 << 20, &plan), STATUS_OK);
    json_object_set_new(plan, "tiers", json_pack("[{s:s, s:s}]", "name", "device", "program_bytes", "much"));
    char *text = json_dumps(plan, 0);
    refuse_run(*state, "plan.json", text, "plan.json: tiers[0]: program_bytes: must be a whole number");
    free(text);
    json_decref(plan);
}

/* 60000 steps and 40000 events: what is written stays small. */
static void a_large_run_makes_a_small_page(void **state) {
    const char *folder = *state;
    copy(folder, "run.json");
    FILE *file = fopen(temp_path(folder, "metrics.jsonl"), "w");
    for (int i = 1; i <= 60000; i++)
        fprintf(file, "{\"step\": %d, \"loss\": %d.25, \"grad_norm\": 0.5, \"tokens_per_s\": 1000}\n", i,
                i == 31234 ? 77 : i % 3);
    fclose(file);
    json_t *timeline, *events = json_array();
    assert_int_equal(json_read_object(temp_path(fixture, "timeline.json"), 1 << 20, &timeline), STATUS_OK);
    for (int i = 0; i < 40000; i++)
        json_array_append_new(events,
                              json_pack("[i,i,i,i,i,i,f,f,i]", i % 4, i % 12, 1, 0, 0, i % 3, 7.123 * i, 5.321, 4096));
    json_object_set_new(timeline, "events", events);
    assert_int_equal(json_write(temp_path(folder, "timeline.json"), timeline), STATUS_OK);
    json_t *document = data_of_run(folder);
    size_t bytes;
    char *page = page_make(document, &bytes);
    assert_in_range(bytes, 100000, 2 << 20);
    assert_non_null(strstr(page, "77.25"));
    mem_free(page);
    json_decref(document);
    json_decref(timeline);
}

/* Files that appear or change later are seen, and the metrics alone are no reason to read them again. */
static void a_run_that_goes_on_is_followed(void **state) {
    const char *folder = *state;
    struct page_run *run;
    json_t *first, *second;
    assert_int_equal(page_run_open(folder, NULL, &run), STATUS_OK);
    expect_status(page_run_data(run, &first), STATUS_BAD_INPUT, "has no run.json");
    copy(folder, "run.json");
    assert_int_equal(page_run_data(run, &first), STATUS_OK);
    assert_int_equal(page_run_changes(run, &second), STATUS_OK);
    const char *revision = json_string_value(json_object_get(first, "revision"));
    assert_string_equal(revision, json_string_value(json_object_get(second, "revision")));
    json_decref(second);
    copy(folder, "metrics.jsonl");
    assert_int_equal(page_run_changes(run, &second), STATUS_OK);
    assert_string_equal(revision, json_string_value(json_object_get(second, "revision")));
    assert_int_equal(json_integer_value(json_object_get(json_object_get(second, "metrics"), "step")), 240);
    json_decref(second);
    copy(folder, "timeline.json");
    assert_int_equal(page_run_data(run, &second), STATUS_OK);
    assert_string_not_equal(revision, json_string_value(json_object_get(second, "revision")));
    assert_true(json_is_object(json_object_get(second, "measured")));
    json_decref(second);
    json_decref(first);
    page_run_close(run);
}

static enum status read_and_make(void *payload) {
    struct page_run *run;
    json_t *document = NULL;
    TRY(page_run_open(payload, payload, &run)); /* next to itself */
    enum status status = page_run_data(run, &document);
    if (status == STATUS_OK) status = page_run_end(payload, document);
    char *page = status == STATUS_OK ? page_make(document, NULL) : NULL;
    if (status == STATUS_OK && !page) status = STATUS_FAILED;
    mem_free(page);
    json_decref(document);
    page_run_close(run);
    return status;
}

static void every_failure_is_reported(void **state) {
    static const char *const names[] = {"run.json", "plan.json", "timeline.json", "metrics.jsonl"};
    temp_write_text(temp_path(*state, "samples.jsonl"), "{\"step\": 1, \"prompt\": \"\", \"text\": \"a\"}\n");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        copy(*state, names[i]);
    assert_true(fault_sweep(FAULT_ALLOCATE, false, read_and_make, *state) > 10);
    const struct fault_subject with_json = {.body = read_and_make, .payload = *state};
    json_faults(true);
    struct fault_tally tally = fault_sweep_bearable(FAULT_ALLOCATE, false, unit_sweep(100, FAULT_EVERY), &with_json);
    json_faults(false);
    assert_true(20 * tally.reported >= 19 * tally.hit); /* the parser of JSON does without some */
    assert_true(fault_sweep(FAULT_OPEN, false, read_and_make, *state) > 3);
    assert_true(fault_sweep(FAULT_READ, false, read_and_make, *state) > 3);
}

static enum status print_numbers(void *document) {
    char *text = prometheus_text(document);
    mem_free(text);
    return text ? STATUS_OK : STATUS_FAILED;
}

static void prometheus_reads_numbers(void **state) {
    (void)state;
    json_t *document = data_of_run(fixture);
    json_array_set_new(json_object_get(json_object_get(document, "plan"), "tiers"), 1,
                       json_pack("{s:s, s:i}", "name", "d\"i\\s\nk", "program_bytes", 5));
    assert_true(fault_sweep(FAULT_ALLOCATE, false, print_numbers, document) >= 3);
    char *text = prometheus_text(document);
    static const char *const lines[] = {
        "# TYPE ballast_step counter\nballast_step 240\n",
        "# HELP ballast_loss ",
        "\nballast_tokens_total 983040\n",
        "\nballast_predicted_step_seconds 1.",
        "\nballast_memory_used_bytes{tier=\"device\"} ",
        "\nballast_memory_capacity_bytes{tier=\"device\"} 943718400\n",
        "\nballast_memory_used_bytes{tier=\"d\\\"i\\\\s\\nk\"} 5\n",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (!strstr(text, lines[i])) fail_msg("'%s' is not in:\n%s", lines[i], text);
    assert_int_equal(count(text, "# TYPE ballast_predicted_step_seconds"), 1);
    assert_int_equal(count(text, "# HELP"), count(text, "# TYPE"));
    mem_free(text);
    json_decref(document);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(a_whole_run_is_shown),      CASE(no_text_becomes_html),           CASE(what_is_missing_is_null),
        CASE(what_is_wrong_is_named),    CASE(a_large_run_makes_a_small_page), CASE(a_run_that_goes_on_is_followed),
        CASE(every_failure_is_reported), CASE(prometheus_reads_numbers),
    };
    return cmocka_run_group_tests(tests, set_up, temp_folder_drop);
}
