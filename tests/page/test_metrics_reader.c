/* A growing metrics.jsonl: reads only complete lines, from the end of the last reading. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "report/page/metrics_reader.h"
#include "support/temp_folder.h"
#include "support/tiny_run.h"
#include "support/unit.h"

#define CASE(name) cmocka_unit_test_setup_teardown(name, temp_folder_make, temp_folder_drop)

static void it_reads_on(void **state) {
    const char *path = temp_path(*state, "metrics.jsonl");
    struct metrics_reader reader;
    assert_int_equal(metrics_reader_open(path, &reader), STATUS_OK);
    assert_int_equal(metrics_reader_advance(&reader), STATUS_OK); /* no file yet */
    assert_int_equal(reader.step, 0);
    assert_true(isnan(reader.last[METRIC_LOSS]));
    temp_write_text(path,
                    "{\"step\": 1, \"loss\": 4.5, \"mfu\": null}\n{\"step\": 1, \"val_loss\": 5}\n{\"step\": 2, \"lo");
    assert_int_equal(metrics_reader_advance(&reader), STATUS_OK);
    assert_int_equal(reader.step, 1);
    assert_int_equal(reader.val_step, 1);
    assert_true(reader.last[METRIC_LOSS] == 4.5 && reader.min_val_loss == 5 && isnan(reader.last[METRIC_MFU]));
    FILE *file = fopen(path, "a");
    fputs("ss\": 3.5}\n{\"step\": 2, \"val_loss\": 4}\n{\"step\": 3, \"val_loss\": 6}\n", file);
    fclose(file);
    assert_int_equal(metrics_reader_advance(&reader), STATUS_OK);
    assert_int_equal(reader.step, 3);
    assert_int_equal(reader.curves[METRIC_LOSS].count, 2);
    assert_int_equal(reader.curves[METRIC_VAL_LOSS].count, 3);
    assert_true(reader.last[METRIC_LOSS] == 3.5 && reader.min_val_loss == 4 && reader.last[METRIC_VAL_LOSS] == 6);
    temp_write_text(path, "{\"step\": 1, \"loss\": 9}\n"); /* cut, as on resume */
    assert_int_equal(metrics_reader_advance(&reader), STATUS_OK);
    assert_int_equal(reader.step, 1);
    assert_int_equal(reader.curves[METRIC_LOSS].count, 1);
    assert_true(isnan(reader.last[METRIC_VAL_LOSS]));
    metrics_reader_close(&reader);
}

/* They are no numbers, and no curve has them. */
static void changes_of_the_plan_are_kept(void **state) {
    const char *path = temp_path(*state, "metrics.jsonl");
    struct metrics_reader reader;
    temp_write_text(path, "{\"step\": 0, \"replan\": \"less memory\"}\n"
                          "{\"step\": 1, \"loss\": 4.5}\n{\"step\": 1, \"replan\": \"faster\", \"change_s\": 0.5}\n"
                          "{\"step\": 2, \"loss\": 4}\n");
    assert_int_equal(metrics_reader_open(path, &reader), STATUS_OK);
    assert_int_equal(metrics_reader_advance(&reader), STATUS_OK);
    assert_int_equal(reader.step, 2);
    assert_int_equal(reader.curves[METRIC_LOSS].count, 2);
    json_t *all = metrics_reader_to_json(&reader), *replans = json_object_get(all, "replans");
    assert_int_equal(json_array_size(replans), 2);
    assert_string_equal(json_string_value(json_object_get(json_array_get(replans, 1), "replan")), "faster");
    json_decref(all);
    FILE *file = fopen(path, "a");
    for (int i = 0; i < 2 * METRIC_REPLANS; i++)
        fprintf(file, "{\"step\": %d, \"replan\": \"faster\"}\n", i + 3);
    fclose(file);
    assert_int_equal(metrics_reader_advance(&reader), STATUS_OK);
    assert_int_equal(json_array_size(reader.replans), METRIC_REPLANS);
    metrics_reader_close(&reader);
}

static void what_is_wrong_is_named(void **state) {
    static const char *const cases[][2] = {
        {"{\"step\": 1}\n{\"loss\": 2}\n", "metrics.jsonl: line 2: step: missing"},
        {"{\"step\": 0}\n", "line 1: step: 0 is outside"},
        {"{\"step\": 1, \"loss\": \"x\"}\n", "line 1: loss: must be a number"},
        {"{\"step\": 5}\n{\"step\": 4}\n", "line 2: step: 4 comes after 5"},
        {"{\"step\": 5, }\n", "line 1: not valid JSON"},
        {"[]\n", "line 1: must hold a JSON object"},
    };
    const char *path = temp_path(*state, "metrics.jsonl");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct metrics_reader reader;
        temp_write_text(path, cases[i][0]);
        assert_int_equal(metrics_reader_open(path, &reader), STATUS_OK);
        expect_status(metrics_reader_advance(&reader), STATUS_BAD_INPUT, cases[i][1]);
        metrics_reader_close(&reader);
    }
    static char line[(1 << 23) + 2];
    memset(line, ' ', sizeof line - 1);
    temp_write_text(path, line);
    struct metrics_reader reader;
    assert_int_equal(metrics_reader_open(path, &reader), STATUS_OK);
    expect_status(metrics_reader_advance(&reader), STATUS_BAD_INPUT, "line 1: longer than");
    metrics_reader_close(&reader);
}

static void margins_of_preferences_are_curves(void **state) {
    struct metrics_reader reader;
    const char *path = temp_path(*state, "metrics.jsonl");
    temp_write_text(path, "{\"step\": 1, \"loss\": 0.7, \"margin\": 0, \"accuracy\": 0.5}\n"
                          "{\"step\": 1, \"val_loss\": 0.6, \"val_margin\": 0.1, \"val_accuracy\": 0.75}\n"
                          "{\"step\": 2, \"loss\": 0.6, \"margin\": 0.25, \"accuracy\": 1}\n");
    assert_int_equal(metrics_reader_open(path, &reader), STATUS_OK);
    assert_int_equal(metrics_reader_advance(&reader), STATUS_OK);
    assert_true(reader.curves[METRIC_MARGIN].count == 2 && reader.last[METRIC_MARGIN] == 0.25);
    assert_true(reader.curves[METRIC_ACCURACY].count == 2 && reader.last[METRIC_ACCURACY] == 1);
    assert_true(reader.curves[METRIC_VAL_MARGIN].count == 1 && reader.last[METRIC_VAL_ACCURACY] == 0.75);
    metrics_reader_close(&reader);
}

/* Slots of experts are those of the last line that has them; a file that becomes shorter has none. */
static void the_last_slots_of_experts_stay(void **state) {
    const char *path = temp_path(*state, "metrics.jsonl");
    struct metrics_reader reader;
    temp_write_text(path, "{\"step\": 1, \"expert_least\": 0, \"expert_most\": 2, \"expert_slots\": [[1,2],[3,4]]}\n"
                          "{\"step\": 10, \"expert_min\": 0.5, \"expert_max\": 1.5, \"expert_slots\": [[5,6]]}\n"
                          "{\"step\": 11, \"loss\": 2}\n");
    assert_int_equal(metrics_reader_open(path, &reader), STATUS_OK);
    assert_int_equal(metrics_reader_advance(&reader), STATUS_OK);
    json_t *all = metrics_reader_to_json(&reader);
    char *experts = json_dumps(json_object_get(all, "experts"), JSON_COMPACT);
    assert_string_equal(experts, "{\"step\":10,\"slots\":[[5,6]]}");
    assert_true(reader.last[METRIC_EXPERT_MAX] == 1.5 && reader.curves[METRIC_EXPERT_MIN].count == 2);
    free(experts);
    json_decref(all);
    temp_write_text(path, "{\"step\": 1, \"loss\": 2}\n");
    assert_int_equal(metrics_reader_advance(&reader), STATUS_OK);
    assert_null(reader.expert_slots);
    metrics_reader_close(&reader);
}

/* The quick way says what the JSON reader says, or leaves the line to it. */
static void scanned_lines_are_those_parsed(void **state) {
    static const struct {
        const char *line;
        bool scanned;
    } cases[] = {
        {"{\"step\": 7, \"loss\": 2.5e-3, \"mfu\": null, \"other\": -1}\n", true},
        {" {\"step\":1,\"lr\":0,\"val_loss\":-0.5E+2 } \r\n", true},
        {"{\"step\": 1, \"loss\": 01}\n", false},
        {"{\"step\": 1, \"loss\": 1.}\n", false},
        {"{\"step\": 1, \"loss\": .5}\n", false},
        {"{\"step\": 1, \"loss\": 1e}\n", false},
        {"{\"step\": 1, \"loss\": nan}\n", false},
        {"{\"step\": 1, \"loss\": 0x10}\n", false},
        {"{\"step\": 1, \"loss\": 1e999}\n", false},
        {"{\"step\": 1, \"loss\": 1, \"loss\": 2}\n", false},
        {"{\"step\": 1, \"step\": 1}\n", false},
        {"{\"step\": 1.0}\n", false},
        {"{\"step\": 1, \"text\": \"a\"}\n", false}, /* JSON, but not of this shape */
        {"{\"st\\u0065p\": 1}\n", false},
        {"{\"step\": 1} x\n", false},
        {"{\"step\": 1,}\n", false},
        {"{\"step\": 1\n", false},
        {"{}\n", false},
        {"\n", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct metrics_line line;
        if (metrics_line_scan(cases[i].line, &line) != cases[i].scanned) fail_msg("%s", cases[i].line);
        if (!cases[i].scanned) continue;
        json_t *object = json_loads(cases[i].line, 0, NULL);
        assert_int_equal(line.step, json_integer_value(json_object_get(object, "step")));
        for (int m = 0; m < METRIC_COUNT; m++) {
            const json_t *value = json_object_get(object, metric_name((enum metric)m));
            assert_true(json_is_number(value) ? line.values[m] == json_number_value(value) : isnan(line.values[m]));
        }
        json_decref(object);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(scanned_lines_are_those_parsed),
                                       CASE(it_reads_on),
                                       CASE(margins_of_preferences_are_curves),
                                       CASE(the_last_slots_of_experts_stay),
                                       CASE(changes_of_the_plan_are_kept),
                                       CASE(what_is_wrong_is_named)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
