/* The console's lines have all fields, are never wider than the terminal, and have escape codes only if wanted. */
#include <math.h>
#include <string.h>

#include "report/console/console.h"
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

static const struct console_state validated = {.valid_loss = 2.5}, plain = {.valid_loss = NAN};

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

static void plain_lines_hold_all(void **state) {
    (void)state;
    char line[FIELD_LINE_BYTES];
    console_line_plain(&step, line);
    assert_string_equal(line, "step 50/200  loss 2.3457  grad norm 0.8125  lr 3.00e-04  12,345 tokens/s  MFU 41.2%  "
                              "memory 5.00 MiB  3m12s left");
    struct train_step unknown = step;
    unknown.mfu = NAN;
    console_line_plain(&unknown, line);
    assert_non_null(strstr(line, "MFU -"));
}

static void live_fits_the_terminal(void **state) {
    (void)state;
    char line[FIELD_LINE_BYTES];
    for (int colour = 0; colour < 2; colour++)
        for (int columns = 1; columns < 250; columns++) {
            console_line_live(&step, &validated, columns, colour, line);
            assert_true(visible_columns(line) <= columns);
            if (!colour) assert_null(strchr(line, '\x1b'));
        }
    console_line_live(&step, &validated, 240, false, line);
    static const char *const parts[] = {"50/200",    "loss 2.3457", "norm 0.812", "lr 3.00e-04", "12,345 tok/s",
                                        "MFU 41.2%", "5.00 MiB",    "3m12s left", "val 2.5000",  "[#######......"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strstr(line, parts[i])) fail_msg("'%s' is not in: %s", parts[i], line);
    console_line_live(&step, &plain, 80, true, line);
    assert_non_null(strchr(line, '\x1b'));
}

static int count(const char *text, char letter) {
    int found = 0;
    for (; *text; text++)
        found += *text == letter;
    return found;
}

/* At widths that terminals have there is a bar, of a run however long, and the numbers that matter most. */
static void the_bar_stays(void **state) {
    (void)state;
    static const struct { int columns, bar; } cases[] = {{60, 10}, {80, 13}, {120, 20}, {240, 30}};
    struct train_step late = step;
    late.step = 500000, late.steps = 1000000, late.loss = 10.5, late.tokens_per_s = 1234567, late.remaining_s = 90000;
    char line[FIELD_LINE_BYTES];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        console_line_live(&late, &validated, cases[i].columns, false, line);
        assert_int_equal(count(line, '#'), cases[i].bar / 2);
        assert_int_equal(count(line, '#') + (int)strspn(strrchr(line, '#') + 1, "."), cases[i].bar);
        assert_non_null(strstr(line, "500,000/1,000,000  loss 10.5000"));
        if (cases[i].columns > 60) assert_non_null(strstr(line, "1d01h left"));
    }
    console_line_live(&late, &validated, 31, false, line);
    assert_string_equal(line, "500,000/1,000,000  loss 10.5000");
}

static void epochs_are_reported(void **state) {
    (void)state;
    struct train_step epoch = step;
    epoch.epoch = 1.25, epoch.epochs = 3;
    char line[FIELD_LINE_BYTES];
    console_line_plain(&epoch, line);
    assert_non_null(strstr(line, "step 50/200  epoch 1.25/3  loss "));
    console_line_live(&epoch, &plain, 80, false, line);
    assert_non_null(strstr(line, "epoch 1.25/3"));
}

static void a_checkpoint_that_is_written_is_reported(void **state) {
    (void)state;
    const struct console_state saving = {.valid_loss = NAN, .saving = true};
    char line[FIELD_LINE_BYTES];
    console_line_live(&step, &saving, 60, false, line);
    assert_non_null(strstr(line, "saving"));
    console_line_live(&step, &plain, 60, false, line);
    assert_null(strstr(line, "saving"));
}

/* With all that a run can have there is space for every field. */
static void everything_at_once_fits(void **state) {
    (void)state;
    const struct console_state all = {.valid_loss = 2.5, .saving = true};
    struct train_step full = step;
    full.epoch = 1.25, full.epochs = 3;
    char line[FIELD_LINE_BYTES];
    console_line_live(&full, &all, 240, false, line);
    static const char *const parts[] = {"saving", "epoch 1.25/3", "val 2.5000", "norm 0.812", "lr 3.00e-04"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strstr(line, parts[i])) fail_msg("'%s' is not in: %s", parts[i], line);
}

static void progress_is_drawn(void **state) {
    (void)state;
    const struct progress reading = {"reading model.safetensors", PROGRESS_BYTES, 1 << 30, (int64_t)4 << 30};
    const struct progress learning = {"tokenizer: learning tokens", PROGRESS_COUNT, 500, 2000};
    char line[FIELD_LINE_BYTES];
    progress_print_line(&reading, 2, 0, false, line);
    assert_string_equal(line, "reading model.safetensors: 1.00 GiB of 4.00 GiB, 6s left, 512 MiB/s");
    progress_print_line(&reading, 2, 80, false, line);
    assert_string_equal(line, "[###..........] reading model.safetensors  1.00 GiB of 4.00 GiB  6s left");
    progress_print_line(&learning, 0.5, 60, false, line);
    assert_string_equal(line, "[##........] tokenizer: learning tokens  500 of 2000");
    for (int columns = 1; columns < 250; columns++) {
        progress_print_line(&reading, 2, columns, true, line);
        assert_true(visible_columns(line) <= columns);
    }
}

static void times_are_short(void **state) {
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(plain_lines_hold_all),
                                       cmocka_unit_test(live_fits_the_terminal),
                                       cmocka_unit_test(the_bar_stays),
                                       cmocka_unit_test(epochs_are_reported),
                                       cmocka_unit_test(a_checkpoint_that_is_written_is_reported),
                                       cmocka_unit_test(everything_at_once_fits),
                                       cmocka_unit_test(progress_is_drawn),
                                       cmocka_unit_test(times_are_short)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
