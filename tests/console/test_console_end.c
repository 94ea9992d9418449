/* The summary at the end of a run: the steps of this process, the losses, the model, and next commands. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "report/console/console.h"
#include "support/unit.h"

static char text[4096];

static const char *end_of(const struct console_account *account) {
    FILE *out = fmemopen(text, sizeof text, "w");
    assert_non_null(out);
    console_print_end(account, out);
    fclose(out);
    return text;
}

static void expect_line(const struct console_account *account, const char *line) {
    if (!strstr(end_of(account), line)) fail_msg("'%s' is not in: %s", line, text);
}

static void make_steps(struct console_account *account, int64_t from, int64_t to) {
    for (int64_t s = from; s <= to; s++) {
        const struct train_step step = {.step = s, .steps = to, .loss = 8 - (double)s / 1000, .tokens = s * 1024};
        console_account_step(account, &step);
    }
}

static void the_end_of_a_whole_run_is_reported(void **state) {
    (void)state;
    struct console_account account = {.run_folder = "run", .writes_text = true, .checkpoint = "step-00003000"};
    account.began_ns = clock_now_ns();
    make_steps(&account, 1, 3000);
    console_account_validation(&account, 1000, 6.5);
    console_account_validation(&account, 2000, 6.25);
    console_account_validation(&account, 3000, 6.75);
    expect_line(&account, "done: 3,000 steps in ");
    expect_line(&account, ", 3,072,000 tokens, ");
    expect_line(&account,
                "loss: 7.9990 at step 1, 5.0000 at step 3000; validation: 6.7500, lowest 6.2500 at step 2000\n");
    expect_line(&account, "model: run/model\n");
    expect_line(&account, "next: ballast generate run --prompt TEXT\n");
    expect_line(&account, "\n      ballast resume run --steps 6000\n");
}

/* Of a run in epochs the hint has epochs too. */
static void a_longer_run_keeps_its_unit(void **state) {
    (void)state;
    struct console_account account = {.run_folder = "run", .checkpoint = "step-00000030", .began_ns = clock_now_ns()};
    const struct train_step step = {.step = 30, .steps = 30, .epoch = 1.5, .epochs = 1.5, .loss = 5, .tokens = 1024};
    console_account_step(&account, &step);
    expect_line(&account, "next: ballast resume run --epochs 3\n");
}

/* One that went on counts what it did itself; without checkpoints there is nothing to resume, without a tokenizer
 * nothing to write. */
static void the_end_of_a_part_is_reported(void **state) {
    (void)state;
    struct console_account account = {.run_folder = "run", .began_ns = clock_now_ns()};
    make_steps(&account, 11, 11);
    expect_line(&account, "done: 1 step in ");
    expect_line(&account, ", 1,024 tokens, ");
    expect_line(&account, "loss: 7.9890 at step 11\nmodel: run/model\n");
    assert_null(strstr(text, "next:"));
}

static void hints_fit_the_run(void **state) {
    (void)state;
    struct console_account account = {.run_folder = "a run's", .writes_text = true, .chats = true, .adapters = true};
    account.began_ns = clock_now_ns();
    expect_line(&account, "next: ballast chat 'a run'\\''s'\n      ballast merge 'a run'\\''s' -o MODEL_DIR\n");
    assert_null(strstr(text, "ballast generate"));
    account.writes_text = false;
    expect_line(&account, "next: ballast merge ");
}

static void margins_of_preferences_are_reported(void **state) {
    (void)state;
    struct console_account account = {.run_folder = "run", .began_ns = clock_now_ns()};
    for (int64_t s = 1; s <= 2; s++) {
        const struct train_step step = {.step = s,
                                        .steps = 2,
                                        .loss = 0.5,
                                        .pairs = true,
                                        .preference = {[PREFERENCE_CHOSEN] = (double)s, [PREFERENCE_REJECTED] = -0.25},
                                        .tokens = s};
        console_account_step(&account, &step);
    }
    expect_line(&account, "loss: 0.5000 at step 1, 0.5000 at step 2\nmargin: 1.2500 at step 1, 2.2500 at step 2\n");
}

static void a_finished_run_is_reported(void **state) {
    (void)state;
    const struct console_account account = {.run_folder = "run", .began_ns = clock_now_ns()};
    assert_string_equal(end_of(&account), "done: the run was complete\nmodel: run/model\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_end_of_a_whole_run_is_reported),  cmocka_unit_test(a_longer_run_keeps_its_unit),
        cmocka_unit_test(the_end_of_a_part_is_reported),       cmocka_unit_test(hints_fit_the_run),
        cmocka_unit_test(margins_of_preferences_are_reported), cmocka_unit_test(a_finished_run_is_reported)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
