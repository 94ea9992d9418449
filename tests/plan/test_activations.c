/* Activation schedules: text and steps are equivalent, a broken rule is named, and Rotor's sequences are valid
 * schedules. */
#include "plan/activations.h"

#include <stdio.h>
#include <string.h>

#include "base/random.h"
#include "plan/plan.h"
#include "plan/recompute.h"
#include "support/fault_sweep.h"
#include "support/unit.h"

enum { BLOCKS_MAX = 40 };

struct dice {
    uint64_t seed, draws;
};

static int32_t roll(struct dice *dice, int32_t sides) {
    return (int32_t)(random_u64(dice->seed, RANDOM_TEST, 3, dice->draws++) % (uint64_t)sides);
}

static void append(struct activation_steps *steps, struct activation_step step) {
    assert_int_equal(vec_push(&steps->list, step), STATUS_OK);
}

/* Any legal schedule: moves anywhere between, forwards again in any order. */
static struct activation_steps draw_schedule(struct dice *dice, int32_t blocks) {
    struct activation_steps steps = {0};
    bool moved[BLOCKS_MAX] = {false};
    for (int32_t i = 0; i < blocks; i++) {
        append(&steps, (struct activation_step){.action = ACTIVATION_FORWARD, .block = i});
        int32_t block = roll(dice, i + 1);
        if (roll(dice, 2) || moved[block]) continue;
        moved[block] = true;
        append(&steps, (struct activation_step){ACTIVATION_MOVE, block, roll(dice, 2) ? TIER_HOST : TIER_DISK});
    }
    for (int32_t i = blocks; i-- > 0;) {
        for (int32_t again = roll(dice, 4); again > 0; again--)
            append(&steps, (struct activation_step){.action = ACTIVATION_FORWARD, .block = roll(dice, i + 1)});
        append(&steps, (struct activation_step){.action = ACTIVATION_BACKWARD, .block = i});
    }
    return steps;
}

static void assert_equal_steps(const struct activation_steps *a, const struct activation_steps *b, const char *text) {
    if (a->list.count != b->list.count) fail_msg("'%s': %zu stages for %zu", text, b->list.count, a->list.count);
    for (size_t i = 0; i < a->list.count; i++) {
        const struct activation_step *x = &a->list.items[i], *y = &b->list.items[i];
        if (x->action != y->action || x->block != y->block || (x->action == ACTIVATION_MOVE && x->tier != y->tier))
            fail_msg("'%s': stage %zu is another", text, i);
    }
}

/* Prints the steps, reads them again and compares; frees them. */
static void expect_round_trip(struct activation_steps *steps, int32_t blocks) {
    static char text[POLICY_SCHEDULE_BYTES];
    struct activation_steps back;
    assert_int_equal(activations_print(steps, text, sizeof text), STATUS_OK);
    if (activations_parse(text, blocks, &back) != STATUS_OK) fail_msg("'%s': %s", text, status_message());
    assert_equal_steps(steps, &back, text);
    activation_steps_free(steps);
    activation_steps_free(&back);
}

static void schedules_come_back_the_same(void **state) {
    (void)state;
    for (uint64_t seed = 1, last = unit_sweep(500, 20000); seed <= last; seed++) {
        struct dice dice = {.seed = seed};
        int32_t blocks = 1 + roll(&dice, BLOCKS_MAX);
        struct activation_steps steps = draw_schedule(&dice, blocks);
        expect_round_trip(&steps, blocks);
    }
}

static void expect_text(const char *text, int32_t blocks, const char *shortest) {
    char printed[256];
    struct activation_steps steps;
    if (activations_parse(text, blocks, &steps) != STATUS_OK) fail_msg("'%s': %s", text, status_message());
    assert_int_equal(activations_print(&steps, printed, sizeof printed), STATUS_OK);
    assert_string_equal(printed, shortest);
    activation_steps_free(&steps);
}

static void texts_are_read(void **state) {
    (void)state;
    expect_text("", 3, "f0-2 b2-0");
    expect_text("  ", 3, "f0-2 b2-0");
    expect_text("f0 f1   f2 b2 b1 b0 ", 3, "f0-2 b2-0");
    expect_text("f0 b0", 1, "f0 b0");
    expect_text("f0-0 b0-0", 1, "f0 b0");
    expect_text("f0-2 h0 h1 d2 b2-0", 3, "f0-2 h0-1 d2 b2-0");
    expect_text("f0 h0 f1 d1 f2 b2 f0 f1 b1 f0 b0", 3, "f0 h0 f1 d1 f2 b2 f0-1 b1 f0 b0");
    expect_text("f0-3 b3 f1 f2 b2 f0 f1 b1 b0", 4, "f0-3 b3 f1-2 b2 f0-1 b1-0");
}

static void too_long_texts_are_refused(void **state) {
    (void)state;
    struct activation_steps steps;
    char text[10];
    assert_int_equal(activations_parse("f0-2 b2-0", 3, &steps), STATUS_OK);
    assert_int_equal(activations_print(&steps, text, sizeof text), STATUS_OK);
    for (size_t bytes = 1; bytes < sizeof text; bytes++) {
        assert_int_equal(activations_print(&steps, text, bytes), STATUS_FAILED);
        assert_non_null(strstr(status_message(), "longer than"));
    }
    activation_steps_free(&steps);
}

static const struct refusal {
    const char *text, *rule, *hint;
} refusals[] = {
    {"f1", "f1 comes before the forward of block 0", "f0"},
    {"f0 f2", "f2 comes before the forward of block 1", "f1"},
    {"f0-2 b2 f2", "f2 comes after the backward of its block", "leave it out"},
    {"f0-2 b2-1 f0-1", "f1 comes after the backward of its block", "leave it out"},
    {"f0-1 b1", "b1 comes before the forward of block 2", "f2"},
    {"b0", "b0 comes before the forward of block 0", "f0"},
    {"f0-2 b1", "b1 is out of turn", "b2"},
    {"f0-2 b2 b2", "b2 is out of turn", "b1"},
    {"f0-2 b2 b0", "b0 is out of turn", "b1"},
    {"f0-2 b2-0 b0", "b0 comes after the last backward", "leave it out"},
    {"f0-2 b2-0 b2", "b2 comes after the last backward", "leave it out"},
    {"h0 f0-2 b2-0", "block 0 is moved before its forward", "behind f0"},
    {"f0 d1", "block 1 is moved before its forward", "behind f1"},
    {"f0-2 b2 h0", "block 0 is moved after the first backward", "before b2"},
    {"f0-2 h0 h0", "block 0 is moved twice", "leave one out"},
    {"f0-2 h0 d0", "block 0 is moved twice", "leave one out"},
    {"f0-2", "the backward of block 2 is missing", "b2-0"},
    {"f0-2 b2", "the backward of block 1 is missing", "b1-0"},
    {"f3", "f3 is not legal: the model has 3 blocks", "f2"},
    {"f0-3", "f3 is not legal: the model has 3 blocks", "f2"},
    {"f0-2 h9", "h9 is not legal", "h2"},
    {"f0-2147483646", "f3 is not legal", "f2"},
    {"f2147483646", "f2147483646 is not legal", "f2"},
    {"f2147483647", "'f2147483647' is no stage", "f0-11"},
    {"f99999999999999999999999", "'f99999999999' is no stage", "f0-11"},
    {"f0-99999999999999999999999", "is no stage", "f0-11"},
    {"x0", "'x0' is no stage", "f0-11"},
    {"f", "'f' is no stage", "f0-11"},
    {"f-1", "'f-1' is no stage", "f0-11"},
    {"f0-", "'f0-' is no stage", "f0-11"},
    {"f0--1", "'f0--1' is no stage", "f0-11"},
    {"f0-1-2", "'f0-1-2' is no stage", "f0-11"},
    {"f0f1", "'f0f1' is no stage", "f0-11"},
    {"f+0", "'f+0' is no stage", "f0-11"},
    {"f 0", "'f 0' is no stage", "f0-11"},
    {"f0\tf1", "is no stage", "f0-11"},
    {"f0,f1", "is no stage", "f0-11"},
    {"F0", "'F0' is no stage", "f0-11"},
    {"\xff\xfe", "is no stage", "f0-11"},
    {"-", "'-' is no stage", "f0-11"},
};

static void bad_schedules_are_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        struct activation_steps steps;
        status_clear();
        enum status status = activations_parse(refusals[i].text, 3, &steps);
        activation_steps_free(&steps);
        if (status != STATUS_BAD_INPUT || !strstr(status_message(), refusals[i].rule) ||
            !strstr(status_message(), "policy.schedule: ") || !strstr(status_hint_text(), refusals[i].hint))
            fail_msg("'%s': status %d, '%s', hint '%s'", refusals[i].text, status, status_message(),
                     status_hint_text());
    }
}

/* Steps in any order, some of them spoilt, give steps that print and read back, or a refusal. */
static void random_texts_are_survived(void **state) {
    (void)state;
    static const char *const words[] = {"f0", "f1", "f0-1", "b1", "b0", "b1-0", "h0", "d1", "b", "f1-"};
    int taken = 0, refused = 0;
    for (uint64_t seed = 1, last = unit_sweep(20000, 400000); seed <= last; seed++) {
        struct dice dice = {.seed = seed};
        char text[64] = "f0-1";
        for (int32_t count = 1 + roll(&dice, 6); count > 0; count--)
            strcat(strcat(text, " "), words[roll(&dice, sizeof words / sizeof *words)]);
        if (roll(&dice, 8) == 0) text[roll(&dice, (int32_t)strlen(text))] = (char)(1 + roll(&dice, 255));
        struct activation_steps steps;
        status_clear();
        if (activations_parse(text, 2, &steps) == STATUS_OK) {
            taken++;
            expect_round_trip(&steps, 2);
        } else {
            refused++;
            assert_string_not_equal(status_message(), "");
            activation_steps_free(&steps);
        }
    }
    print_message("%d random texts are schedules, %d are not\n", taken, refused);
    assert_true(taken > 100 && refused > 100);
}

/* ---- Rotor ---- */

static struct chain random_chain(uint64_t seed) {
    struct dice dice = {.seed = seed};
    struct chain chain;
    assert_int_equal(chain_create(1 + roll(&dice, BLOCKS_MAX), &chain), STATUS_OK);
    chain.input = roll(&dice, 4);
    for (int i = 0; i < chain.count; i++) {
        struct chain_block *block = &chain.blocks[i];
        *block = (struct chain_block){.forward_time = 1 + roll(&dice, 9),
                                      .backward_time = 1 + roll(&dice, 9),
                                      .output = i + 1 < chain.count ? 1 + roll(&dice, 4) : 0,
                                      .forward_temporary = roll(&dice, 3),
                                      .backward_temporary = roll(&dice, 3)};
        block->saved = block->output + roll(&dice, 9);
    }
    return chain;
}

static int64_t count_again(const struct activation_steps *steps, int32_t blocks) {
    int64_t forwards = 0;
    for (size_t i = 0; i < steps->list.count; i++)
        forwards += steps->list.items[i].action == ACTIVATION_FORWARD;
    return forwards - blocks;
}

static void rotor_schedules_are_legal(void **state) {
    (void)state;
    int solved = 0;
    int64_t again = 0;
    for (uint64_t seed = 1, last = unit_sweep(150, 4000); seed <= last; seed++) {
        struct chain chain = random_chain(seed);
        struct recompute_schedule schedule = {0};
        struct recompute_cost cost;
        int64_t slots = 12 + (int64_t)(seed * 7 % 150);
        if (rotor_solve(&chain, slots, &schedule, &cost) == STATUS_OK) {
            struct activation_steps steps;
            assert_int_equal(activations_from_recompute(&schedule, &steps), STATUS_OK);
            assert_int_equal(steps.list.count, schedule.count);
            again += count_again(&steps, chain.count);
            expect_round_trip(&steps, chain.count);
            solved++;
        }
        vec_free(&schedule);
        chain_free(&chain);
    }
    print_message("%d chains solved, %lld forwards again\n", solved, (long long)again);
    assert_true(solved > 50 && again > solved);
}

static enum status parse_and_print(void *payload) {
    struct activation_steps steps;
    char text[64];
    enum status status = activations_parse(payload, 3, &steps);
    if (status == STATUS_OK) status = activations_print(&steps, text, sizeof text);
    activation_steps_free(&steps);
    return status;
}

static void faults_are_reported(void **state) {
    (void)state;
    assert_true(fault_sweep(FAULT_ALLOCATE, false, parse_and_print, (char[]){"f0-2 h1 b2 f0-1 b1-0"}) >= 2);
    assert_true(fault_sweep(FAULT_ALLOCATE, false, parse_and_print, (char[]){""}) >= 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schedules_come_back_the_same), cmocka_unit_test(texts_are_read),
        cmocka_unit_test(too_long_texts_are_refused),   cmocka_unit_test(bad_schedules_are_refused),
        cmocka_unit_test(random_texts_are_survived),    cmocka_unit_test(rotor_schedules_are_legal),
        cmocka_unit_test(faults_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
