/* metrics.jsonl as it grows: only whole lines, from where the last reading ended. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/metrics_reader.h"
#include "support/temp_folder.h"
#include "support/tiny_run.h"
#include "support/unit.h"

#define CASE(name) cmocka_unit_test_setup_teardown(name, temp_folder_make, temp_folder_drop)

static void test_it_reads_on(void **state) {
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
    assert_true(reader.last[METRIC_LOSS] == 4.5 && reader.least_val_loss == 5 && isnan(reader.last[METRIC_MFU]));
    FILE *file = fopen(path, "a");
    fputs("ss\": 3.5}\n{\"step\": 2, \"val_loss\": 4}\n{\"step\": 3, \"val_loss\": 6}\n", file);
    fclose(file);
    assert_int_equal(metrics_reader_advance(&reader), STATUS_OK);
    assert_int_equal(reader.step, 3);
    assert_int_equal(reader.curves[METRIC_LOSS].count, 2);
    assert_int_equal(reader.curves[METRIC_VAL_LOSS].count, 3);
    assert_true(reader.last[METRIC_LOSS] == 3.5 && reader.least_val_loss == 4 && reader.last[METRIC_VAL_LOSS] == 6);
    temp_write_text(path, "{\"step\": 1, \"loss\": 9}\n"); /* cut, as on resume */
    assert_int_equal(metrics_reader_advance(&reader), STATUS_OK);
    assert_int_equal(reader.step, 1);
    assert_int_equal(reader.curves[METRIC_LOSS].count, 1);
    assert_true(isnan(reader.last[METRIC_VAL_LOSS]));
    metrics_reader_close(&reader);
}

static void test_what_is_wrong_is_named(void **state) {
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
    static char line[1 << 19];
    memset(line, ' ', sizeof line - 1);
    temp_write_text(path, line);
    struct metrics_reader reader;
    assert_int_equal(metrics_reader_open(path, &reader), STATUS_OK);
    expect_status(metrics_reader_advance(&reader), STATUS_BAD_INPUT, "line 1: longer than");
    metrics_reader_close(&reader);
}

int main(void) {
    const struct CMUnitTest tests[] = {CASE(test_it_reads_on), CASE(test_what_is_wrong_is_named)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
