/* The warning if a batch has no micro-batches for some lanes or ranks. */
#include <stdio.h>
#include <string.h>

#include "base/terminal.h"
#include "plan/lane_shares.h"
#include "support/unit.h"

static char warned[512];
static void keep(bool warning, const char *text) {
    assert_true(warning);
    snprintf(warned, sizeof warned, "%s", text);
}

static const char *warn(int64_t batch, int64_t micro_batch, int lanes, int ranks) {
    struct plan plan = {.recipe = {.batch = batch, .micro_batch_sequences = micro_batch, .lanes = {1, lanes}},
                        .place = {.mesh = {1, ranks}}};
    warned[0] = '\0';
    log_listen(keep);
    assert_int_equal(idle_lanes_warn(&plan), STATUS_OK);
    log_listen(NULL);
    return warned;
}

static void lanes_without_micro_batches_are_reported_with_a_fix(void **state) {
    (void)state;
    assert_string_equal(warn(4, 1, 8, 1),
                        "a batch of 4 micro-batches leaves 4 of 8 lanes empty; --batch 8 or --lanes 4 gives "
                        "each of them micro-batches");
    assert_string_equal(
        warn(8, 2, 8, 4),
        "a batch of 4 micro-batches leaves 4 of 8 lanes empty, and 2 of 4 ranks nothing to compute; --batch "
        "16 or --lanes 4 or --micro-batch 1 gives each of them micro-batches");
    /* More micro-batches than lanes, and yet: lanes have two each as long as there are any. */
    assert_string_equal(
        warn(9, 1, 8, 8),
        "a batch of 9 micro-batches leaves 3 of 8 lanes empty, and 3 of 8 ranks nothing to compute; --batch 16 "
        "gives each of them micro-batches");
}

static void nothing_is_reported_where_all_lanes_have_micro_batches(void **state) {
    (void)state;
    assert_string_equal(warn(1, 1, 1, 1), "");
    assert_string_equal(warn(8, 1, 8, 4), "");
    assert_string_equal(warn(15, 1, 8, 8), ""); /* the last one has fewer */
}

/* What is advised leaves nothing idle. */
static void advice_holds(void **state) {
    (void)state;
    for (int64_t batch = 1; batch <= 20; batch++)
        for (int64_t micro_batch = 1; micro_batch <= batch; micro_batch++)
            for (int lanes = 1; lanes <= 16; lanes++) {
                struct plan plan = {
                    .recipe = {.batch = batch, .micro_batch_sequences = micro_batch, .lanes = {1, lanes}},
                    .place = {.mesh = {1, 1}}};
                struct idle_lanes idle, then;
                assert_int_equal(idle_lanes_find(&plan, &idle), STATUS_OK);
                if (idle.lanes == 0) continue;
                struct plan other = plan;
                other.recipe.batch = idle.batch;
                assert_int_equal(idle_lanes_find(&other, &then), STATUS_OK);
                assert_int_equal(then.lanes, 0);
                other = plan;
                other.recipe.lanes.per_node = idle.lanes_instead;
                assert_int_equal(idle_lanes_find(&other, &then), STATUS_OK);
                assert_int_equal(then.lanes, 0);
                if (idle.micro_batch_instead == 0) continue;
                other = plan;
                other.recipe.micro_batch_sequences = idle.micro_batch_instead;
                assert_int_equal(idle_lanes_find(&other, &then), STATUS_OK);
                assert_int_equal(then.lanes, 0);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lanes_without_micro_batches_are_reported_with_a_fix),
        cmocka_unit_test(nothing_is_reported_where_all_lanes_have_micro_batches),
        cmocka_unit_test(advice_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
