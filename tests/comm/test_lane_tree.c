/* The tree of lanes: its shape, the nodes that each rank holds, and sums over it. */
#include <stdio.h>

#include "base/half.h"
#include "base/mem.h"
#include "base/random.h"
#include "collective/lane_tree.h"
#include "support/fault_sweep.h"
#include "support/unit.h"

static enum status lane_tree_parse(const char *text, struct lane_tree *out) {
    struct lane_shape shape;
    TRY(lane_shape_parse(text, &shape));
    return lane_tree_of_shape(&shape, out);
}

static void write_node(const struct lane_tree *tree, int index, char *text) {
    const struct lane_node *node = &tree->node[index];
    if (node->left < 0) {
        sprintf(text + strlen(text), "%d", node->first);
        return;
    }
    strcat(text, "(");
    write_node(tree, node->left, text);
    strcat(text, " ");
    write_node(tree, node->right, text);
    strcat(text, ")");
}

static void expect_tree(const char *lanes, const char *shape) {
    struct lane_tree tree;
    char text[400] = "";
    assert_int_equal(lane_tree_parse(lanes, &tree), STATUS_OK);
    write_node(&tree, 0, text);
    assert_string_equal(text, shape);
    assert_int_equal(tree.count, 2 * tree.lanes - 1);
    lane_tree_free(&tree);
}

static void lanes_are_cut_into_halves(void **state) {
    (void)state;
    expect_tree("1", "0");
    expect_tree("3", "((0 1) 2)");
    expect_tree("5", "(((0 1) 2) (3 4))");
    expect_tree("8", "(((0 1) (2 3)) ((4 5) (6 7)))");
    expect_tree("2x4", "(((0 1) (2 3)) ((4 5) (6 7)))");
    expect_tree("2x3", "(((0 1) 2) ((3 4) 5))");
    expect_tree("3x2", "(((0 1) (2 3)) (4 5))");
    expect_tree("6", "(((0 1) 2) ((3 4) 5))");
}

static void bad_lanes_are_refused(void **state) {
    (void)state;
    static const char *const bad[] = {
        "",    "0",  "x", "8x", "x8", "-1", "+2", " 3", "3 ", "2x4x2", "65537", "257x256", "99999999999999999999",
        "1e2", "2X4"};
    struct lane_tree tree;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(lane_tree_parse(bad[i], &tree), STATUS_BAD_INPUT);
        assert_non_null(strstr(status_message(), "is no number and no NODESxNUMBER"));
    }
}

static void expect_ranks(const char *lanes, const char *holders) {
    struct lane_tree tree;
    char text[200] = "";
    assert_int_equal(lane_tree_parse(lanes, &tree), STATUS_OK);
    for (int ranks = 1; ranks <= tree.lanes + 2; ranks++) {
        if (!lane_tree_holds(&tree, ranks)) continue;
        sprintf(text + strlen(text), "%s%d", *text ? " " : "", ranks);
        int *subtree = mem_array((size_t)ranks, sizeof *subtree), next = 0;
        assert_int_equal(lane_tree_cut(&tree, ranks, subtree), STATUS_OK);
        for (int r = 0; r < ranks; r++) { /* all lanes, once, in order */
            assert_int_equal(tree.node[subtree[r]].first, next);
            next += tree.node[subtree[r]].lanes;
        }
        assert_int_equal(next, tree.lanes);
        mem_free(subtree);
    }
    assert_string_equal(text, holders);
    lane_tree_free(&tree);
}

static void ranks_hold_whole_subtrees(void **state) {
    (void)state;
    expect_ranks("1", "1");
    expect_ranks("3", "1 2 3");
    expect_ranks("8", "1 2 4 8");
    expect_ranks("2x4", "1 2 4 8");
    expect_ranks("3x2", "1 2 3 6");
    expect_ranks("3x4", "1 2 3 6 12");
    expect_ranks("6", "1 2 4 6");
    struct lane_tree tree;
    int subtree[3];
    assert_int_equal(lane_tree_parse("2x4", &tree), STATUS_OK);
    assert_int_equal(lane_tree_cut(&tree, 3, subtree), STATUS_BAD_INPUT);
    assert_string_equal(status_message(), "3 ranks cannot hold lanes 2x4 in whole subtrees");
    assert_string_equal(status_hint_text(), "ranks: 1, 2, 4, 8");
    lane_tree_free(&tree);
}

/* Partial sums, cut anywhere, have the bits of the whole. */
static void partial_sums_have_the_bits_of_the_whole(void **state) {
    (void)state;
    enum { COUNT = 1337, SEED = 20 };
    static const int shapes[][2] = {{1, 8}, {2, 4}, {1, 3}, {3, 2}, {1, 7}, {4, 3}};
    print_message("seed %d\n", SEED);
    for (uint64_t s = 0; s < 6; s++)
        for (int variant = 0; variant < 8; variant++) {
            struct lane_tree tree, top;
            assert_int_equal(lane_tree_create(shapes[s][0], shapes[s][1], &tree), STATUS_OK);
            bool empty[12], absent[23], top_empty[12], top_absent[23], round = variant & 1;
            float *values = mem_array((size_t)tree.lanes * COUNT, sizeof *values), whole[COUNT], staged[COUNT];
            float *parts = mem_array((size_t)tree.lanes * COUNT, sizeof *parts);
            struct lane_values lanes[12] = {0}, ranks[12] = {0};
            for (int l = 0; l < tree.lanes; l++) {
                empty[l] = variant & 2 && l != 1 && random_u64(SEED, RANDOM_TEST, 1, (uint64_t)l + 99 * s) % 2;
                lanes[l].plain = values + l * COUNT;
                for (int i = 0; i < COUNT; i++)
                    values[l * COUNT + i] = (float)random_normal(SEED, RANDOM_TEST, (uint32_t)l, (uint64_t)i);
            }
            lane_find_absent(&tree, empty, absent);
            lane_tree_sum(&tree, 0, absent, lanes, COUNT, round, whole);
            for (int count = 1; count <= tree.lanes; count++) {
                int subtree[12];
                if (!lane_tree_holds(&tree, count)) continue;
                assert_int_equal(lane_tree_cut(&tree, count, subtree), STATUS_OK);
                assert_int_equal(lane_tree_top(&tree, count, &top), STATUS_OK);
                assert_int_equal(top.lanes, count);
                for (int r = 0; r < count; r++) {
                    ranks[r].plain = parts + r * COUNT;
                    top_empty[r] = absent[subtree[r]];
                    if (!top_empty[r]) lane_tree_sum(&tree, subtree[r], absent, lanes, COUNT, round, parts + r * COUNT);
                }
                lane_find_absent(&top, top_empty, top_absent);
                lane_tree_sum(&top, 0, top_absent, ranks, COUNT, round, staged);
                assert_memory_equal(whole, staged, sizeof whole);
                lane_tree_free(&top);
            }
            mem_free(values);
            mem_free(parts);
            lane_tree_free(&tree);
        }
}

/* Three lanes whose sum shows the order and where edges round. */
static void order_and_rounding_are_as_written(void **state) {
    (void)state;
    struct lane_tree tree;
    bool absent[5], empty[3] = {false, false, false};
    float a = 0x1p24f, b = 1, c = 1, out;
    const struct lane_values lanes[] = {{&a, NULL}, {&b, NULL}, {&c, NULL}};
    assert_int_equal(lane_tree_parse("3", &tree), STATUS_OK);
    lane_find_absent(&tree, empty, absent);
    lane_tree_sum(&tree, 0, absent, lanes, 1, false, &out);
    assert_true(out == 0x1p24f); /* (a + b) + c; a + (b + c) is 2^24 + 2 */
    a = 1, b = 0x1p-8f, c = 0x1.01p0f;
    lane_tree_sum(&tree, 0, absent, lanes, 1, true, &out);
    assert_true(out == 2); /* 1 + 2^-8 is rounded on its edge (to even), 1 + 2^-8 on the other; the root is not */
    a = -0.0f;
    empty[1] = empty[2] = true;
    lane_find_absent(&tree, empty, absent);
    lane_tree_sum(&tree, 0, absent, lanes, 1, false, &out);
    assert_int_equal(float_bits(out), 0x80000000u); /* nothing is added: adding zeros would make it +0 */
    lane_tree_free(&tree);
}

static enum status make_and_cut(void *payload) {
    (void)payload;
    struct lane_tree tree, top;
    TRY(lane_tree_parse("2x4", &tree));
    enum status status = lane_tree_top(&tree, 4, &top);
    if (status == STATUS_OK) lane_tree_free(&top);
    lane_tree_free(&tree);
    return status;
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    assert_int_equal(fault_sweep(FAULT_ALLOCATE, false, make_and_cut, NULL), 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lanes_are_cut_into_halves),         cmocka_unit_test(bad_lanes_are_refused),
        cmocka_unit_test(ranks_hold_whole_subtrees),         cmocka_unit_test(partial_sums_have_the_bits_of_the_whole),
        cmocka_unit_test(order_and_rounding_are_as_written), cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
