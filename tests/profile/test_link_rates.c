/* Links between ranks that are threads: every collective and pair has a time, the same on all ranks. Only the range
 * of values is checked. */
/* ctest: PROCESSORS 2 TIMEOUT 120 */
#include <math.h>
#include <string.h>

#include "backend/backend.h"
#include "profile/cache.h"
#include "profile/link_rates.h"
#include "profile/rate_work.h"
#include "support/thread_ranks.h"
#include "support/unit.h"

struct measured {
    bool thorough;
    int64_t memory_bytes;
    struct cluster_rates rates[THREAD_RANKS_MAX]; /* by rank */
};

static enum status measure(struct comm *comm, void *payload) {
    struct measured *measured = payload;
    const struct backend *backend;
    const struct link_options options = {measured->thorough, 1, measured->memory_bytes};
    struct cluster_rates *rates = &measured->rates[comm->rank];
    TRY(backend_find("cpu", &backend));
    slowdown_none(rates);
    return link_rates_measure(comm, backend, &options, rates);
}

static void measure_ranks(int ranks, int nodes, struct measured *measured) {
    struct thread_ranks threads = {.ranks = ranks,
                                   .seed = 5,
                                   .settings = {.nodes = nodes, .rank_timeout_s = 60, .message_bytes = 1 << 20},
                                   .body = measure,
                                   .payload = measured};
    if (thread_ranks_run(&threads) != STATUS_OK) fail_msg("%d ranks on %d nodes: %s", ranks, nodes, status_message());
    json_t *first = links_to_json(&measured->rates[0].links);
    for (int rank = 1; rank < ranks; rank++) {
        json_t *other = links_to_json(&measured->rates[rank].links);
        assert_true(json_equal(first, other));
        json_decref(other);
    }
    json_decref(first);
}

static void expect_rate(const struct transfer_rate *rate, bool present) {
    assert_true(present == (rate->bytes_per_s > 0));
    assert_true(isfinite(rate->latency_s) && rate->latency_s >= 0 && isfinite(rate->bytes_per_s));
}

static void expect_links(const struct cluster_rates *rates, int ranks, int nodes) {
    const struct cluster_links *links = &rates->links;
    assert_int_equal(mesh_ranks(&links->mesh), ranks);
    assert_int_equal(links->mesh.nodes, nodes);
    expect_rate(&links->message[MESH_IN_NODE], ranks > nodes);
    expect_rate(&links->message[MESH_ACROSS], nodes > 1);
    for (int i = 0; i < links->point_count; i++)
        assert_true(links->points[i].seconds > 0 && links->points[i].seconds < 60);
    for (int a = 0; a < ACTIVITY_COUNT; a++)
        assert_true(rates->slowdown[a][ACTIVITY_MESSAGE] >= 1 && rates->slowdown[ACTIVITY_MESSAGE][a] >= 1);
}

static void a_thorough_measurement_has_all_operations_and_pairs(void **state) {
    (void)state;
    struct measured measured = {.thorough = true, .memory_bytes = 4 << 20};
    measure_ranks(4, 2, &measured);
    expect_links(&measured.rates[0], 4, 2);
    /* Two sizes fit; all, node and peers. Sums and gathers of more than two ranks are flat too. */
    assert_int_equal(measured.rates[0].links.point_count, COMM_KINDS * 2 * 3 + 3 * 2);
    assert_int_equal(measured.rates[0].links.pair_count, 6);
}

static void a_quick_one_has_sums_and_gathers_of_all_ranks(void **state) {
    (void)state;
    struct measured measured = {.memory_bytes = 1 << 20};
    measure_ranks(3, 1, &measured);
    expect_links(&measured.rates[0], 3, 1);
    assert_int_equal(measured.rates[0].links.pair_count, 0);
    assert_true(measured.rates[0].links.point_count >= 1);
    for (int i = 0; i < measured.rates[0].links.point_count; i++)
        assert_true(measured.rates[0].links.points[i].kind <= COMM_ALL_REDUCE &&
                    measured.rates[0].links.points[i].group == MESH_ALL);
}

static void one_rank_has_none(void **state) {
    (void)state;
    struct measured measured = {.thorough = true, .memory_bytes = 1 << 20};
    measure_ranks(1, 1, &measured);
    assert_int_equal(measured.rates[0].links.mesh.nodes, 0);
}

/* Works in no memory would have no limit. */
static void without_memory_the_works_are_the_smallest(void **state) {
    (void)state;
    struct rate_machine none = rate_machine_make(&backend_cpu, 1, 0);
    struct rate_machine min = rate_machine_make(&backend_cpu, 1, PROFILE_MEMORY_BYTES_MIN);
    assert_true(none.kernel_bytes > 0);
    assert_int_equal(none.kernel_bytes, min.kernel_bytes);
    assert_int_equal(none.block_bytes, min.block_bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thorough_measurement_has_all_operations_and_pairs),
        cmocka_unit_test(a_quick_one_has_sums_and_gathers_of_all_ranks),
        cmocka_unit_test(one_rank_has_none),
        cmocka_unit_test(without_memory_the_works_are_the_smallest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
