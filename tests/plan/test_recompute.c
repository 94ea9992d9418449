/* The walk of a schedule: its cost, and refusals. */
#include <string.h>

#include "plan/recompute.h"
#include "support/unit.h"

/* Sizes are powers of two, so that each peak shows what was held. */
static struct chain_block blocks[] = {
    {.forward_time = 1, .backward_time = 2, .output = 2, .saved = 16, .forward_temporary = 64},
    {.forward_time = 3, .backward_time = 5, .output = 4, .saved = 32, .backward_temporary = 128},
};
static const struct chain chain = {.input = 1, .count = 2, .blocks = blocks};

#define SCHEDULE(...)                                                                                                  \
    (&(struct recompute_schedule){.items = (struct recompute_step[]){__VA_ARGS__},                                     \
                                  .count =                                                                             \
                                      sizeof((struct recompute_step[]){__VA_ARGS__}) / sizeof(struct recompute_step)})

static void expect(const struct recompute_schedule *schedule, double time, int64_t peak) {
    struct recompute_cost cost;
    assert_int_equal(recompute_simulate(&chain, schedule, &cost), STATUS_OK);
    assert_true(cost.time == time);
    assert_int_equal(cost.peak, peak);
}

static void refuse(const struct recompute_schedule *schedule, const char *expected) {
    struct recompute_cost cost;
    assert_int_equal(recompute_simulate(&chain, schedule, &cost), STATUS_BAD_INPUT);
    if (!strstr(status_message(), expected)) fail_msg("expected '%s' in '%s'", expected, status_message());
}

static void costs_are_counted(void **state) {
    (void)state;
    /* Backward of block 1: x_0, both saved sets, gradients of x_2 and x_1, the temporary. */
    expect(SCHEDULE({FORWARD_ALL, 0}, {FORWARD_ALL, 1}, {BACKWARD, 1}, {BACKWARD, 0}), 11, 1 + 16 + 32 + 4 + 2 + 128);
    /* The same with x_1 in place of what block 0 saves. */
    expect(SCHEDULE({FORWARD_CHECKPOINT, 0}, {FORWARD_ALL, 1}, {BACKWARD, 1}, {FORWARD_ALL, 0}, {BACKWARD, 0}), 12,
           1 + 2 + 32 + 4 + 2 + 128);
}

static void what_is_saved_is_not_forgotten(void **state) {
    (void)state;
    /* x_1 lies in what block 0 saved: forward of block 1 does not forget it, and x_2 may be made. */
    refuse(SCHEDULE({FORWARD_ALL, 0}, {FORWARD_NONE, 1}, {FORWARD_ALL, 1}), "step 2: forward_all of stage 1");
    refuse(SCHEDULE({FORWARD_ALL, 0}, {FORWARD_NONE, 1}, {BACKWARD, 1}), "what it saves is not there");
}

static void bad_schedules_are_refused(void **state) {
    (void)state;
    refuse(SCHEDULE({FORWARD_ALL, 1}), "step 0: forward_all of stage 1: its input is not there");
    refuse(SCHEDULE({FORWARD_NONE, 0}, {FORWARD_ALL, 1}, {BACKWARD, 1}, {FORWARD_ALL, 0}),
           "step 3: forward_all of stage 0: its input is not there");
    refuse(SCHEDULE({FORWARD_ALL, 0}, {FORWARD_ALL, 0}), "step 1: forward_all of stage 0: its output is there");
    refuse(SCHEDULE({FORWARD_ALL, 0}, {BACKWARD, 0}), "step 1: backward of stage 0: the gradient");
    refuse(SCHEDULE({FORWARD_NONE, 0}, {FORWARD_NONE, 1}, {BACKWARD, 1}), "step 2: backward of stage 1: its input");
    refuse(SCHEDULE({FORWARD_ALL, 0}, {FORWARD_ALL, 1}, {BACKWARD, 1}, {FORWARD_ALL, 1}), "its backward is done");
    refuse(SCHEDULE({FORWARD_ALL, 0}, {FORWARD_ALL, 1}, {BACKWARD, 1}), "step 3: the schedule ends before");
    refuse(SCHEDULE({FORWARD_ALL, 2}), "no such stage");
    refuse(SCHEDULE({BACKWARD, -1}), "no such stage");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(costs_are_counted),
        cmocka_unit_test(what_is_saved_is_not_forgotten),
        cmocka_unit_test(bad_schedules_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
