/* Finds rows of close ranks from the rates of pairs. */
#include "profile/link_rates.h"
#include "support/unit.h"

/* Ranks of the same number modulo `apart` are near. */
static struct cluster_links links_of(int nodes, int per_node, int apart, double near) {
    struct cluster_links links = {.mesh = {nodes, per_node}};
    int ranks = nodes * per_node;
    for (int first = 0; first < ranks; first++)
        for (int second = first + 1; second < ranks; second++) {
            bool together = first % apart == second % apart;
            links.pairs[links.pair_count++] = (struct link_pair){first, second, {1e-5, together ? near : 1e9}};
        }
    return links;
}

static void near_ranks_form_rows(void **unused) {
    (void)unused;
    struct cluster_links links = links_of(1, 6, 2, 2e10);
    assert_int_equal(link_rows_find(&links, &links.rows), STATUS_OK);
    static const int expected[] = {0, 2, 4, 1, 3, 5};
    assert_int_equal(links.rows.rows, 2);
    assert_memory_equal(links.rows.ranks, expected, sizeof expected);
    assert_false(link_rows_are_nodes(&links));
}

static void rows_may_be_the_nodes(void **unused) {
    (void)unused;
    struct cluster_links links = links_of(2, 2, 2, 1e9);
    for (int i = 0; i < links.pair_count; i++)
        if (links.pairs[i].first / 2 == links.pairs[i].second / 2) links.pairs[i].rate.bytes_per_s = 1e10;
    assert_int_equal(link_rows_find(&links, &links.rows), STATUS_OK);
    assert_int_equal(links.rows.rows, 2);
    assert_true(link_rows_are_nodes(&links));
}

static void noise_and_missing_pairs_are_ignored(void **unused) {
    (void)unused;
    struct cluster_links equal = links_of(1, 6, 2, 1.9e9), missing = links_of(1, 6, 2, 2e10),
                         two = links_of(2, 1, 1, 2e10);
    struct link_rows rows;
    missing.pair_count--;
    const struct cluster_links *const all[] = {&equal, &missing, &two};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        assert_int_equal(link_rows_find(all[i], &rows), STATUS_OK);
        assert_int_equal(rows.rows, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(near_ranks_form_rows), cmocka_unit_test(rows_may_be_the_nodes),
                                       cmocka_unit_test(noise_and_missing_pairs_are_ignored)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
