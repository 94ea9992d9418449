/* Collective times: formulas worked out by hand, and properties of any group. */
#include <math.h>

#include "machine/cluster.h"
#include "machine/collective_cost.h"
#include "support/unit.h"

static struct fabric fabric_of(const char *name) {
    struct cluster cluster;
    assert_int_equal(cluster_open(name, &cluster), STATUS_OK);
    return fabric_describe(&cluster, 0);
}

static void require_near(double actual, double expected, double part) {
    if (!(fabs(actual / expected - 1) <= part)) fail_msg("%.6g, not %.6g", actual, expected);
}

/* 20 of 25 GB/s on each of 12 links: 240 GB/s; 7/8 of the bytes pass each link once, an all-reduce's twice. */
static void large_rings_go_at_the_rate_of_the_links(void **state) {
    (void)state;
    struct fabric fabric = fabric_of("a100-80x8");
    struct rank_group node = {8, 1};
    require_near(collective_s(&fabric, COMM_ALL_GATHER, 16e9, node), 16e9 * 7 / 8 / 240e9, 0.01);
    require_near(collective_s(&fabric, COMM_REDUCE_SCATTER, 16e9, node), 16e9 * 7 / 8 / 240e9, 0.01);
    require_near(collective_s(&fabric, COMM_ALL_REDUCE, 16e9, node), 2 * 16e9 * 7 / 8 / 240e9, 0.01);
}

/* Eight adapters of 25 GB/s, of which 95% are left, are slower than the links; one rank a node has an eighth. */
static void across_nodes_adapters_bind_and_are_shared(void **state) {
    (void)state;
    struct fabric fabric = fabric_of("a100-80x8");
    struct rank_group whole = {8, 4}, single = {1, 4};
    require_near(collective_s(&fabric, COMM_ALL_GATHER, 64e9, whole), 64e9 * 31 / 32 / 190e9, 0.01);
    require_near(collective_s(&fabric, COMM_ALL_GATHER, 64e9, single), 64e9 * 3 / 4 / 23.75e9, 0.01);
}

static void congestion_takes_of_the_rate_with_each_doubling_of_nodes(void **state) {
    (void)state;
    struct cluster cluster;
    assert_int_equal(cluster_open("a100-80x8", &cluster), STATUS_OK);
    struct fabric fabric = fabric_describe(&cluster, 0.1);
    struct rank_group two = {8, 2}, eight = {8, 8};
    require_near(collective_s(&fabric, COMM_ALL_GATHER, 64e9, two), 64e9 * 15 / 16 / 190e9, 0.01);
    require_near(collective_s(&fabric, COMM_ALL_GATHER, 64e9, eight), 1.2 * 64e9 * 63 / 64 / 190e9, 0.01);
}

static void small_ones_take_ll_and_many_nodes_a_tree(void **state) {
    (void)state;
    struct fabric fabric = fabric_of("a100-80x8");
    struct collective_cost cost = collective_cost(&fabric, COMM_ALL_REDUCE, 1024, (struct rank_group){8, 1});
    assert_int_equal(cost.protocol, PROTOCOL_LL);
    require_near(cost.seconds, 1e-6 * (6.6 + 14 * 0.6), 0.01);
    cost = collective_cost(&fabric, COMM_ALL_REDUCE, 1024, (struct rank_group){8, 64});
    assert_int_equal(cost.algorithm, COLLECTIVE_TREE);
    require_near(cost.seconds, 1e-6 * (6.8 + 2 * (7 * 0.6 + 6 * 5)), 0.01);
    cost = collective_cost(&fabric, COMM_ALL_REDUCE, 16e9, (struct rank_group){8, 64});
    assert_int_equal(cost.algorithm, COLLECTIVE_RING);
    assert_int_equal(cost.protocol, PROTOCOL_SIMPLE);
}

static void switches_add_up_where_they_can(void **state) {
    (void)state;
    struct fabric h100 = fabric_of("h100x8"), a100 = fabric_of("a100-80x8");
    struct rank_group node = {8, 1}, two = {8, 2};
    assert_int_equal(collective_cost(&h100, COMM_ALL_REDUCE, 1e9, node).algorithm, COLLECTIVE_SWITCH);
    assert_int_not_equal(collective_cost(&h100, COMM_ALL_GATHER, 1e9, node).algorithm, COLLECTIVE_SWITCH);
    assert_int_not_equal(collective_cost(&h100, COMM_ALL_REDUCE, 1e9, two).algorithm, COLLECTIVE_SWITCH);
    assert_int_not_equal(collective_cost(&a100, COMM_ALL_REDUCE, 1e9, node).algorithm, COLLECTIVE_SWITCH);
}

static void more_bytes_and_more_nodes_never_take_less(void **state) {
    (void)state;
    for (int i = 0; i < cluster_preset_count; i++) {
        struct cluster cluster;
        assert_int_equal(cluster_open(cluster_presets[i].name, &cluster), STATUS_OK);
        if (cluster.network.devices == 0) continue;
        struct fabric fabric = fabric_of(cluster_presets[i].name);
        for (enum comm_kind kind = 0; kind < COMM_KINDS; kind++) {
            double before = 0;
            for (double bytes = 1; bytes < 1e12; bytes *= 1.7) {
                double seconds = collective_s(&fabric, kind, bytes, (struct rank_group){8, 2});
                assert_true(seconds >= before);
                before = seconds;
            }
            before = 0;
            for (int64_t nodes = 1; nodes <= 512; nodes *= 2) {
                double seconds = collective_s(&fabric, kind, 1e9, (struct rank_group){8, nodes});
                assert_true(seconds >= before);
                before = seconds;
            }
        }
    }
}

/* Of what a rank has, an eighth stays, seven eighths go over its links; of 64 ranks 56 / 64 through its eighth of the
 * node's adapters. */
static void an_all_to_all_sends_each_byte_once(void **state) {
    (void)state;
    struct fabric fabric = fabric_of("h100x8");
    double bytes = 1e9, in_node = collective_s(&fabric, COMM_ALL_TO_ALL, bytes, (struct rank_group){8, 1});
    assert_true(fabs(in_node / (bytes * 7 / 8 / fabric.link_bytes_per_s) - 1) < 0.02);
    double across = collective_s(&fabric, COMM_ALL_TO_ALL, bytes, (struct rank_group){8, 8});
    assert_true(fabs(across / (bytes * 56 / 64 / (fabric.node_bytes_per_s / 8)) - 1) < 0.02);
}

static void a_group_of_one_takes_no_time(void **state) {
    (void)state;
    struct fabric fabric = fabric_of("rtx4090x8");
    assert_true(collective_s(&fabric, COMM_ALL_REDUCE, 1e9, (struct rank_group){1, 1}) == 0);
    assert_true(send_s(&fabric, 1e6, true) > send_s(&fabric, 1e6, false));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_rings_go_at_the_rate_of_the_links),
        cmocka_unit_test(across_nodes_adapters_bind_and_are_shared),
        cmocka_unit_test(congestion_takes_of_the_rate_with_each_doubling_of_nodes),
        cmocka_unit_test(small_ones_take_ll_and_many_nodes_a_tree),
        cmocka_unit_test(switches_add_up_where_they_can),
        cmocka_unit_test(more_bytes_and_more_nodes_never_take_less),
        cmocka_unit_test(an_all_to_all_sends_each_byte_once),
        cmocka_unit_test(a_group_of_one_takes_no_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
