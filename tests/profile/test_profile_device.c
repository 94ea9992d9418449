/* Profiles of a device that executes later, in memory that the CPU cannot address. Every operator of a graph and
 * every copy between tiers has a cost, devices are distinguished, and a failing device is an error. Does not check
 * the values. */
/* ctest: PROCESSORS 2 TIMEOUT 120 */
#include <math.h>
#include <string.h>

#include "ir/differentiate.h"
#include "ir/ops/ops.h"
#include "model/model.h"
#include "profile/model.h"
#include "profile/operator_bench.h"
#include "support/deferred_backend.h"
#include "support/kept_profile.h"
#include "support/temp_folder.h"
#include "support/tiny_run.h"
#include "support/unit.h"

static struct graph *build_graph(enum dtype dtype) {
    static const struct optimizer_options optimizer = {
        .moments = DTYPE_F32, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1, .clip_norm = 1};
    struct model_config config;
    struct model *model;
    struct graph *graph;
    struct tensor *loss;
    assert_int_equal(model_config_init("llama", &config), STATUS_OK);
    config.vocab_size = 211;
    config.hidden = 32;
    config.layers = 2;
    config.heads = 4;
    config.context = 64;
    assert_int_equal(model_create(&config, &model), STATUS_OK);
    assert_int_equal(model_build_graph(model, MODEL_LOSS, dtype, 2, 24, &graph, &loss), STATUS_OK);
    assert_int_equal(graph_differentiate(graph, loss), STATUS_OK);
    assert_int_equal(ops_add_optimizer(graph, &optimizer), STATUS_OK);
    model_free(model);
    return graph;
}

static bool is_time(double seconds) { return isfinite(seconds) && seconds > 0 && seconds < 60; }

static void expect_costs(const struct graph *graph, const struct costs *costs) {
    int updates = 0;
    assert_int_equal(costs->count, graph->nodes.count);
    assert_non_null(costs->host_kernels);
    for (size_t i = 0; i < graph->nodes.count; i++) {
        const struct node *node = graph->nodes.items[i];
        struct kernel_cost here = costs_of_kernel(costs, node, TIER_DEVICE),
                           there = costs_of_kernel(costs, node, TIER_HOST);
        if (!is_time(here.seconds) || !is_time(there.seconds)) fail_msg("%s", node->name);
        bool update = node->op == &op_adamw;
        updates += update;
        assert_true(update ? there.activity == ACTIVITY_COPY : there.seconds == here.seconds);
    }
    assert_true(updates > 0);
}

static void every_operator_has_a_cost(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        const struct backend *device = deferred_begin(seed);
        struct graph *graph = build_graph(seed <= 2 ? DTYPE_F32 : DTYPE_BF16);
        struct profile_options options = {.threads = 2, .budget_s = 0.01};
        struct cluster cluster = kept_profile_machine();
        struct costs costs;
        expect_status(profile_model(device, graph, &cluster, &options, &costs, NULL), STATUS_OK, NULL);
        expect_costs(graph, &costs);
        costs_free(&costs);
        graph_free(graph);
        deferred_end();
    }
}

/* Each way by itself, and how they slow each other. */
static void every_way_has_a_rate(void **state) {
    const struct backend *device = deferred_begin(2);
    struct profile_options options = {.disk_folder = *state, .host_tier = true, .threads = 2};
    struct cluster cluster = kept_profile_machine();
    cluster.rates.measured = false;
    expect_status(profile_machine(device, &options, &cluster, NULL), STATUS_OK, NULL);
    const struct cluster_rates *rates = &cluster.rates;
    assert_true(rates->zero.bytes_per_s > 0 && is_time(rates->issue_s) && rates->wake_s >= 0);
    for (int from = 0; from < TIER_COUNT; from++)
        for (int to = 0; to < TIER_COUNT; to++)
            assert_true((rates->copy[from][to].bytes_per_s > 0) == (from != to));
    const struct transfer_rate *in = &rates->copy[TIER_HOST][TIER_DEVICE], *out = &rates->copy[TIER_DEVICE][TIER_HOST];
    assert_true(in->latency_s != out->latency_s || in->bytes_per_s != out->bytes_per_s);
    for (int a = 0; a < ACTIVITY_COUNT; a++)
        for (int b = 0; b < ACTIVITY_COUNT; b++)
            assert_true(rates->slowdown[a][b] >= 1);
    deferred_end();
}

/* Measures on the device of that number; how many measurements it took, and the first node's time. */
static int32_t profile_on(int number, const struct graph *graph, const char *folder, double *seconds) {
    struct profile_options options = {.cache_folder = folder, .threads = 2, .budget_s = 0.01};
    struct cluster cluster = kept_profile_machine();
    struct costs costs;
    struct profile_report report;
    const struct backend *device = deferred_begin(2);
    deferred_choose(number);
    expect_status(profile_model(device, graph, &cluster, &options, &costs, &report), STATUS_OK, NULL);
    int32_t measured = report.measured;
    *seconds = costs.kernels[0].seconds;
    profile_report_free(&report);
    costs_free(&costs);
    deferred_end();
    return measured;
}

/* Two devices of one machine have a file each; what one has measured is found again, and not by the other. */
static void devices_are_distinguished(void **state) {
    const char *folder = temp_path(*state, "cache");
    struct graph *graph = build_graph(DTYPE_F32);
    double seconds;
    assert_true(profile_on(1, graph, folder, &seconds) > 0);
    kept_profile_set(temp_only(folder), 0.25, 0);
    assert_int_equal(profile_on(1, graph, folder, &seconds), 0);
    assert_true(seconds == 0.25);
    assert_true(profile_on(2, graph, folder, &seconds) > 0);
    assert_true(seconds != 0.25);
    graph_free(graph);
}

/* Wherever the device fails, that is told, and all that was taken is given back (deferred_end looks). */
static void a_device_that_fails_is_reported(void **state) {
    struct graph *graph = build_graph(DTYPE_F32);
    struct profile_options options = {.disk_folder = *state, .host_tier = true, .threads = 2, .budget_s = 0.01};
    for (int64_t items = 1; items <= 1000; items = 3 * items + 1) {
        const struct backend *device = deferred_begin((uint64_t)items);
        struct cluster cluster = kept_profile_machine();
        struct costs costs = {0};
        deferred_fail_after(items);
        expect_status(profile_model(device, graph, &cluster, &options, &costs, NULL), STATUS_FAILED, "planted");
        assert_null(costs.kernels);
        deferred_end();
    }
    graph_free(graph);
}

static int queries;

static enum status count_call(void *payload) {
    const struct work_clock *clock = payload;
    queries++;
    clock->backend->zero(NULL, 0, clock->stream);
    return STATUS_OK;
}

/* A row of calls is timed as one: each that was asked for is done when the time is told. */
static void calls_are_timed_in_rows(void **state) {
    (void)state;
    const struct backend *device = deferred_begin(1);
    struct work_clock clock;
    struct sample sample;
    assert_int_equal(work_clock_open(device, &clock), STATUS_OK);
    int64_t before = deferred_items();
    queries = 0;
    assert_int_equal(work_clock_time(&clock, count_call, &clock, 7, &sample), STATUS_OK);
    assert_int_equal(queries, 7);
    assert_int_equal(deferred_items() - before, 7 + 2);
    assert_true(is_time(sample.seconds));
    work_clock_close(&clock);
    deferred_end();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operator_has_a_cost),
        cmocka_unit_test_setup_teardown(every_way_has_a_rate, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(devices_are_distinguished, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(a_device_that_fails_is_reported, temp_folder_make, temp_folder_drop),
        cmocka_unit_test(calls_are_timed_in_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
