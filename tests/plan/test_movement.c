/* The rules by which a policy moves data, against cases worked out by hand. */
#include "plan/plan.h"
#include "support/unit.h"

static struct policy policy_of(int64_t lookahead, int64_t update_ahead) {
    return (struct policy){.lookahead = lookahead, .update_ahead = update_ahead};
}

static void updates_stand_before_their_block(void **state) {
    (void)state;
    struct policy policy = policy_of(0, 0);
    for (int64_t block = 0; block < 6; block++)
        assert_int_equal(movement_update_block(block, &policy), block);
}

static void lookahead_puts_updates_two_blocks_ahead(void **state) {
    (void)state;
    static const int64_t blocks[] = {0, 0, 0, 1, 2, 3, 4};
    struct policy policy = policy_of(1, 0);
    for (int64_t block = 0; block < 7; block++)
        assert_int_equal(movement_update_block(block, &policy), blocks[block]);
}

/* But none before the first block, whose own update stands there alone. */
static void update_ahead_puts_updates_a_block_ahead(void **state) {
    (void)state;
    static const int64_t blocks[] = {0, 1, 1, 2, 3, 4, 5}, two[] = {0, 1, 1, 1, 2, 3, 4};
    struct policy one = policy_of(0, 1), far = policy_of(0, 2);
    for (int64_t block = 0; block < 7; block++) {
        assert_int_equal(movement_update_block(block, &one), blocks[block]);
        assert_int_equal(movement_update_block(block, &far), two[block]);
    }
}

static void both_add_up(void **state) {
    (void)state;
    static const int64_t blocks[] = {0, 1, 1, 1, 1, 2, 3};
    struct policy policy = policy_of(1, 1);
    for (int64_t block = 0; block < 7; block++)
        assert_int_equal(movement_update_block(block, &policy), blocks[block]);
}

static void waves_share_micro_batches(void **state) {
    (void)state;
    struct wave_split even = movement_split_waves(8, 4), odd = movement_split_waves(7, 3);
    assert_int_equal(even.count, 2);
    assert_int_equal(even.last_micro_batches, 4);
    assert_int_equal(odd.count, 3);
    assert_int_equal(odd.micro_batches, 3);
    assert_int_equal(odd.last_micro_batches, 1);
}

/* Of two uses in groups 3 and 7, a lookahead of 1 leaves space for a store before 5 and a fetch before 6. */
static void copies_have_their_lookahead(void **state) {
    (void)state;
    assert_int_equal(movement_store_group(3, 1), 5);
    assert_int_equal(movement_fetch_group(7, 1), 6);
    assert_int_equal(movement_fetch_group(1, 2), 0);
    assert_true(movement_stays(3, 6, 1));
    assert_false(movement_stays(3, 7, 1));
    assert_true(movement_stays(3, 4, 0));
    assert_false(movement_stays(3, 5, 0));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(updates_stand_before_their_block),
        cmocka_unit_test(lookahead_puts_updates_two_blocks_ahead),
        cmocka_unit_test(update_ahead_puts_updates_a_block_ahead),
        cmocka_unit_test(both_add_up),
        cmocka_unit_test(waves_share_micro_batches),
        cmocka_unit_test(copies_have_their_lookahead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
