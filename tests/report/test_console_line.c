/* The console's lines: all fields, never wider than the terminal, escapes only where wanted. */
#include <math.h>
#include <string.h>

#include "report/console_line.h"
#include "support/unit.h"

static const struct train_step step = {.step = 50,
                                       .steps = 200,
                                       .loss = 2.34567,
                                       .grad_norm = 0.8125,
                                       .learning_rate = 3e-4,
                                       .tokens = 1000,
                                       .tokens_per_s = 12345.6,
                                       .step_s = 0.5,
                                       .mfu = 0.4123,
                                       .device_bytes = 5 << 20,
                                       .remaining_s = 192};

static int visible_columns(const char *line) {
    int columns = 0;
    for (; *line; line++) {
        if (*line == '\x1b')
            line = strchr(line, 'm');
        else
            columns += ((unsigned char)*line & 0xC0) != 0x80;
    }
    return columns;
}

static void test_plain(void **state) {
    (void)state;
    char line[CONSOLE_LINE_BYTES];
    console_line_plain(&step, line);
    assert_string_equal(line, "step: 50  loss: 2.3457  grad_norm: 0.8125  lr: 3.00e-04  memory: 5.00 MiB  tps: 12346  "
                              "mfu: 41.2%  left: 3m12s");
    struct train_step unknown = step;
    unknown.mfu = NAN;
    console_line_plain(&unknown, line);
    assert_non_null(strstr(line, "mfu: -"));
}

static void test_live_fits_the_terminal(void **state) {
    (void)state;
    char line[CONSOLE_LINE_BYTES];
    for (int colour = 0; colour < 2; colour++)
        for (int columns = 1; columns < 250; columns++) {
            console_line_live(&step, 2.5, columns, colour, line);
            assert_true(visible_columns(line) <= columns);
            if (!colour) assert_null(strchr(line, '\x1b'));
        }
    console_line_live(&step, 2.5, 240, false, line);
    static const char *const parts[] = {"50/200",    "loss 2.3457", "norm 0.812", "lr 3.00e-04", "12346 tok/s",
                                        "mfu 41.2%", "5.00 MiB",    "3m12s left", "val 2.5000",  "[#######......"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strstr(line, parts[i])) fail_msg("'%s' is not in: %s", parts[i], line);
    console_line_live(&step, NAN, 80, true, line);
    assert_non_null(strchr(line, '\x1b'));
}

static void test_times(void **state) {
    (void)state;
    char text[24];
    assert_string_equal(console_print_time(0.4, text), "0s");
    assert_string_equal(console_print_time(59.4, text), "59s");
    assert_string_equal(console_print_time(61, text), "1m01s");
    assert_string_equal(console_print_time(3840, text), "1h04m");
    assert_string_equal(console_print_time(183600, text), "2d03h");
    assert_string_equal(console_print_time(NAN, text), "-");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_plain), cmocka_unit_test(test_live_fits_the_terminal),
                                       cmocka_unit_test(test_times)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
