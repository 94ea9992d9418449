/* The search finds the best policy of its space, compared with compiling and simulating every one. */
#include <math.h>
#include <string.h>

#include "search/space.h"
#include "support/random_policy.h"
#include "support/search_bench.h"
#include "support/small_graph.h"
#include "support/synthetic_costs.h"
#include "support/unit.h"

static void check_result(const struct search_bench *bench, const struct search_result *result, double best) {
    assert_true(result->proved);
    assert_int_equal(result->tried.count, result->compiled);
    if (result->pareto_front.count == 0) {
        assert_true(isinf(best));
        return;
    }
    const struct trial *winner = &result->pareto_front.items[0];
    size_t found = 0;
    for (size_t i = 0; i < result->tried.count; i++) {
        const struct trial *tried = &result->tried.items[i];
        assert_true(tried->step_s <= 0 || tried->step_s >= winner->step_s);
        found += memcmp(&tried->policy, &winner->policy, sizeof tried->policy) == 0;
    }
    assert_int_equal(found, 1);
    if (!(fabs(winner->step_s - best) <= 1e-9 * best)) {
        print_policy(&winner->policy, 0);
        fail_msg("the search found %g s, the best is %g s", winner->step_s, best);
    }
    struct measured measured = search_bench_measure(bench, &winner->policy);
    assert_true(search_bench_fits(bench, &measured));
    for (size_t i = 1; i < result->pareto_front.count; i++) {
        assert_true(result->pareto_front.items[i].step_s >= result->pareto_front.items[i - 1].step_s);
        assert_true(result->pareto_front.items[i].tier_bytes[TIER_DEVICE] <
                    result->pareto_front.items[i - 1].tier_bytes[TIER_DEVICE]);
    }
}

struct setting {
    int layers, machine;
    uint64_t seed;
    double part; /* of the device, as search_bench_limit has it */
    bool host, disk;
    int64_t micro_batches; /* in a wave; 0: free */
    struct lane_shape lanes;
    int64_t round_micro_batches;
    struct mesh mesh;
    bool partitions;           /* all legal ones, hierarchical and flat */
    enum tier collective_tier; /* rank_place.tier */
    int64_t capacity_factor;   /* times what the plain policy takes, in place of `part` */
};

static void check(struct setting s) {
    struct search_bench bench;
    struct search_result result;
    search_bench_open(s.layers, s.seed % 2 ? DTYPE_BF16 : DTYPE_F32, s.machine, s.seed, &bench);
    bench.input.micro_batches_per_wave = s.micro_batches;
    bench.plan.recipe.lanes = s.lanes;
    bench.plan.recipe.round_micro_batches = s.round_micro_batches;
    bench.plan.place.mesh = s.mesh;
    bench.plan.place.tier = s.collective_tier;
    bench.costs.rates.links.mesh = (struct mesh){1, 1};
    bench.input.place = bench.plan.place;
    for (int axis = 0; axis < MESH_AXES; axis++)
        bench.costs.rates.links.message[axis] = (struct transfer_rate){1e-5, 1e9};
    struct partition *list = NULL;
    if (s.partitions) {
        assert_int_equal(partition_list(&s.mesh, &list, &bench.input.partition_count), STATUS_OK);
        bench.input.partitions = list;
        bench.input.collectives = COLLECTIVES_EITHER;
    }
    search_bench_limit(&bench, s.part, s.host, s.disk);
    if (s.capacity_factor > 0)
        bench.input.capacity_bytes[TIER_DEVICE] = s.capacity_factor * search_bench_plain_bytes(&bench);
    struct brute_force all = search_bench_try_all(&bench);
    assert_int_equal(search_policies(&bench.input, &result), STATUS_OK);
    print_message("%d layers, %s, %.2f: search compiled %lld of %lld, best %g s\n", s.layers,
                  synthetic_machine_name(s.machine), s.part, (long long)result.compiled, (long long)all.tried,
                  all.best_s);
    assert_true(result.pareto_front.count > 0);
    check_result(&bench, &result, all.best_s);
    assert_true(result.compiled <= all.tried);
    search_result_free(&result);
    mem_free(list);
    search_bench_close(&bench);
}

static void a_disk_is_used(void **state) {
    (void)state;
    check((struct setting){1, 0, 20, .part = 0.1, .disk = true});
    check((struct setting){1, 1, 21, .part = 0.3, .disk = true, .micro_batches = 2});
    check((struct setting){1, 2, 22, .part = 0.5, .disk = true});
}

static void lanes_and_ranks_are_searched(void **state) {
    (void)state;
    check((struct setting){1, 0, 30, .part = 0.2, .disk = true, .micro_batches = 1, .lanes = {1, 3}});
    check((struct setting){1, 1, 31, .part = 0.1, .host = true, .micro_batches = 1, .lanes = {1, 2}, .mesh = {1, 2}});
    check((struct setting){2, 2, 32, .part = 0.3, .lanes = {2, 2}, .round_micro_batches = 1, .mesh = {2, 1}});
}

/* All legal triples on up to 8 ranks, by every choice of the memory engine. */
static void partitions_are_searched(void **state) {
    (void)state;
    check((struct setting){1, 0, 40, .part = 0.4, .host = true, .micro_batches = 1, .lanes = {1, 2}, .mesh = {1, 2},
                           .partitions = true});
    check((struct setting){1, 1, 41, .capacity_factor = 4, .micro_batches = 1, .lanes = {2, 2}, .mesh = {2, 2},
                           .partitions = true});
    check((struct setting){1, 2, 42, .capacity_factor = 4, .lanes = {1, 4}, .mesh = {4, 1}, .partitions = true});
    check((struct setting){1, 0, 43, .capacity_factor = 8, .micro_batches = 1, .lanes = {4, 2}, .mesh = {4, 2},
                           .partitions = true});
    check((struct setting){1, 3, 44, .part = 0.7, .micro_batches = 1, .lanes = {1, 8}, .mesh = {1, 8},
                           .partitions = true, .collective_tier = TIER_HOST, .host = true});
}

static void host_and_disk_are_used(void **state) {
    (void)state;
    check((struct setting){1, 3, 4, .part = 0.02, .host = true, .disk = true, .micro_batches = 1});
}

static void the_device_alone_is_searched(void **state) {
    (void)state;
    for (int machine = 0; machine < SYNTHETIC_MACHINES; machine++)
        check((struct setting){4, machine, 7 + (uint64_t)machine, .part = 0.3 * machine});
}

/* Without gradients parameters alone can be elsewhere. */
static void forward_programs_are_searched(void **state) {
    (void)state;
    struct search_bench bench;
    struct search_result result;
    struct small_graph_options options = {
        .layers = 12, .dtype = DTYPE_F32, .micro_batch_sequences = 1, .sequence_length = 4, .forward_only = true};
    search_bench_open(1, DTYPE_F32, 0, 3, &bench);
    struct search_input input = bench.input;
    struct graph *graph = small_graph_build(&options);
    int64_t *bytes = small_graph_workspace(graph);
    struct workspace_table workspace = {.bytes = bytes, .count = (int)graph->nodes.count};
    struct costs costs = synthetic_costs(graph, 0, 3);
    input.graph = graph;
    input.workspace = &workspace;
    input.costs = &costs;
    input.capacity_bytes[TIER_DISK] = 1 << 30;
    struct trial min;
    assert_int_equal(search_min_memory(&input, &min), STATUS_OK);
    input.capacity_bytes[TIER_DEVICE] = min.tier_bytes[TIER_DEVICE];
    if (search_policies(&input, &result) != STATUS_OK) fail_msg("%s", status_message());
    assert_true(result.pareto_front.count > 0);
    assert_int_equal(result.pareto_front.items[0].policy.parameters, TIER_DISK);
    search_result_free(&result);
    costs_free(&costs);
    mem_free(bytes);
    graph_free(graph);
    search_bench_close(&bench);
}

static double compute_s(const struct schedule_cost *cost) {
    double seconds = 0;
    for (int activity = 0; activity < ACTIVITY_COUNT; activity++)
        seconds += cost->compute_s[activity];
    return seconds;
}

/* The solver's schedules: slower than keeping all and smaller, the smallest of them smaller than computing every layer
 * again once. */
static void the_fastest_schedules_are_tried(void **state) {
    (void)state;
    struct search_bench bench;
    struct space space;
    search_bench_open(12, DTYPE_F32, 0, 4, &bench);
    bench.input.capacity_bytes[TIER_DEVICE] = INT64_MAX / 4;
    assert_int_equal(space_create(&bench.input, &space), STATUS_OK);
    int64_t kept = schedule_cost_min_bytes(&space.schedule_costs[0], 1), recomputed = kept, solved = kept;
    for (size_t s = 0; s < space.schedules.list.count; s++) {
        const struct schedule_cost *cost = &space.schedule_costs[s * LOOKAHEADS];
        int64_t bytes = schedule_cost_min_bytes(cost, 1);
        enum schedule_kind kind = space.schedules.list.items[s].kind;
        if (kind == SCHEDULE_RECOMPUTE && bytes < recomputed) recomputed = bytes;
        if (kind != SCHEDULE_FASTEST) continue;
        assert_true(bytes < kept);
        assert_true(compute_s(cost) > compute_s(&space.schedule_costs[0]));
        if (bytes < solved) solved = bytes;
    }
    assert_true(recomputed < kept);
    assert_true(solved < recomputed);
    space_free(&space);
    search_bench_close(&bench);
}

/* What fits as it is stays as it is, without a second program. */
static void a_step_that_fits_stays_plain(void **state) {
    (void)state;
    struct search_bench bench;
    struct search_result result;
    search_bench_open(3, DTYPE_F32, 0, 3, &bench);
    bench.input.capacity_bytes[TIER_DEVICE] = search_bench_plain_bytes(&bench);
    assert_int_equal(search_policies(&bench.input, &result), STATUS_OK);
    assert_int_equal(result.compiled, 1);
    assert_true(result.proved);
    assert_string_equal(result.pareto_front.items[0].policy.schedule, "");
    assert_int_equal(result.pareto_front.items[0].policy.parameters, TIER_DEVICE);
    search_result_free(&result);
    search_bench_close(&bench);
}

/* What a start has time for: about as many nodes whatever the model, but never fewer than 6 programs. */
static void no_more_is_compiled_than_allowed(void **state) {
    (void)state;
    const struct graph six_layers = {.nodes.count = 279}, twelve = {.nodes.count = 546}, many = {.nodes.count = 4242};
    assert_int_equal(search_max_compiled(&six_layers), 57);
    assert_int_equal(search_max_compiled(&twelve), 29);
    assert_int_equal(search_max_compiled(&many), 6);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_disk_is_used),
        cmocka_unit_test(host_and_disk_are_used),
        cmocka_unit_test(lanes_and_ranks_are_searched),
        cmocka_unit_test(partitions_are_searched),
        cmocka_unit_test(the_device_alone_is_searched),
        cmocka_unit_test(a_step_that_fits_stays_plain),
        cmocka_unit_test(forward_programs_are_searched),
        cmocka_unit_test(the_fastest_schedules_are_tried),
        cmocka_unit_test(no_more_is_compiled_than_allowed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
