/* The search finds what compiling and simulating every policy of its space finds. */
#include <math.h>
#include <string.h>

#include "search/search.h"
#include "search/space.h"
#include "support/random_policy.h"
#include "support/small_graph.h"
#include "support/synthetic_costs.h"
#include "support/unit.h"

enum { GRAINS = 2 };

struct bench {
    struct graph *graph;
    int64_t *bytes;
    struct workspace_table workspace;
    struct plan plan;
    struct costs costs;
    struct search_input input;
};

static void bench_open(struct bench *bench, int layers, enum dtype dtype, int machine, uint64_t seed) {
    struct small_graph_options options = {.layers = layers,
                                          .tied = seed % 2,
                                          .packed_qkv = seed % 3 == 0,
                                          .dtype = dtype,
                                          .grain_sequences = 1,
                                          .sequence_length = 16};
    *bench = (struct bench){.graph = small_graph_build(&options)};
    bench->bytes = small_graph_workspace(bench->graph);
    bench->workspace = (struct workspace_table){bench->bytes, (int)bench->graph->nodes.count};
    bench->plan = small_plan(bench->graph, GRAINS, 1);
    bench->costs = synthetic_costs(bench->graph, machine, seed);
    bench->input = (struct search_input){
        .graph = bench->graph, .workspace = &bench->workspace, .costs = &bench->costs, .recipe = &bench->plan.recipe};
}

static void bench_close(struct bench *bench) {
    costs_free(&bench->costs);
    mem_free(bench->bytes);
    graph_free(bench->graph);
}

struct measured {
    int64_t bytes[TIER_COUNT];
    double step_s;
};

static struct measured measure(const struct bench *bench, const struct policy *policy) {
    struct plan plan = bench->plan;
    struct program *program;
    struct timeline timeline;
    struct measured measured;
    plan.policy = *policy;
    enum status status = program_compile_unproved(bench->graph, &plan, &bench->workspace, &program);
    if (status != STATUS_OK) print_policy(policy, 0);
    if (status != STATUS_OK) fail_msg("%s", status_message());
    assert_int_equal(simulate(program, &bench->costs, &timeline), STATUS_OK);
    memcpy(measured.bytes, program->tier_bytes, sizeof measured.bytes);
    measured.step_s = timeline.step_s;
    timeline_free(&timeline);
    program_free(program);
    return measured;
}

static bool fits(const struct search_input *input, const struct measured *measured) {
    for (enum tier tier = 0; tier < TIER_COUNT; tier++)
        if (measured->bytes[tier] > input->capacity_bytes[tier]) return false;
    return true;
}

/* The fastest that fits: infinite when none does. */
static double brute_force(const struct bench *bench, int64_t *tried) {
    struct space space;
    struct member_list members = {0};
    double best = INFINITY;
    assert_int_equal(space_create(&bench->input, &space), STATUS_OK);
    for (size_t f = 0; f < space.families.count; f++) {
        assert_int_equal(space_members(&space, &space.families.items[f], &members), STATUS_OK);
        for (size_t m = 0; m < members.list.count; m++) {
            struct policy policy;
            space_policy(&space, &space.families.items[f], &members.list.items[m], &policy);
            struct measured measured = measure(bench, &policy);
            if (fits(&bench->input, &measured) && measured.step_s < best) best = measured.step_s;
            ++*tried;
        }
    }
    vec_free(&members.list);
    space_free(&space);
    return best;
}

static int64_t plain_bytes(const struct bench *bench) {
    struct policy plain = {.grains_per_pass = 1};
    return measure(bench, &plain).bytes[TIER_DEVICE];
}

static void check_result(const struct bench *bench, const struct search_result *result, double best) {
    assert_true(result->proved);
    if (result->front.count == 0) {
        assert_true(isinf(best));
        return;
    }
    const struct candidate *winner = &result->front.items[0];
    if (!(fabs(winner->step_s - best) <= 1e-9 * best)) {
        print_policy(&winner->policy, 0);
        fail_msg("the search found %g s, the best is %g s", winner->step_s, best);
    }
    struct measured measured = measure(bench, &winner->policy);
    assert_true(fits(&bench->input, &measured));
    for (size_t i = 1; i < result->front.count; i++) {
        assert_true(result->front.items[i].step_s >= result->front.items[i - 1].step_s);
        assert_true(result->front.items[i].tier_bytes[TIER_DEVICE] <
                    result->front.items[i - 1].tier_bytes[TIER_DEVICE]);
    }
}

/* The device that the search says is needed when nothing fits: with it something does. */
static int64_t find_least(struct bench *bench) {
    struct search_result result;
    bench->input.capacity_bytes[TIER_DEVICE] = 1;
    assert_int_equal(search_policies(&bench->input, &result), STATUS_OK);
    assert_int_equal(result.front.count, 0);
    int64_t least = result.least_bytes;
    search_result_free(&result);
    return least;
}

/* The device has `part` of what lies between the least and the plain policy's. `grains`: in a pass; 0: free. */
static void check(int layers, int machine, uint64_t seed, double part, bool host, bool disk, int64_t grains) {
    struct bench bench;
    struct search_result result;
    int64_t tried = 0;
    bench_open(&bench, layers, seed % 2 ? DTYPE_BF16 : DTYPE_F32, machine, seed);
    int64_t plain = plain_bytes(&bench);
    bench.input.grains_per_pass = grains;
    if (host) bench.input.capacity_bytes[TIER_HOST] = plain / 2;
    if (disk) bench.input.capacity_bytes[TIER_DISK] = 4 * plain;
    int64_t least = find_least(&bench);
    bench.input.capacity_bytes[TIER_DEVICE] = least + (int64_t)(part * (double)(plain - least));
    double best = brute_force(&bench, &tried);
    assert_int_equal(search_policies(&bench.input, &result), STATUS_OK);
    print_message("%d layers, %s, %.2f: search compiled %lld of %lld, best %g s\n", layers,
                  synthetic_machine_name(machine), part, (long long)result.compiled, (long long)tried, best);
    assert_true(result.front.count > 0);
    check_result(&bench, &result, best);
    assert_true(result.compiled <= tried);
    search_result_free(&result);
    bench_close(&bench);
}

static void test_disk(void **state) {
    (void)state;
    check(1, 0, 20, 0.1, false, true, 0);
    check(1, 1, 21, 0.3, false, true, 2);
    check(1, 2, 22, 0.5, false, true, 0);
}

static void test_host_and_disk(void **state) {
    (void)state;
    check(1, 3, 4, 0.02, true, true, 1);
}

static void test_six_blocks(void **state) {
    (void)state;
    check(4, 2, 5, 0, false, true, 1); /* embedding, four layers, head */
}

static void test_device_alone(void **state) {
    (void)state;
    for (int machine = 0; machine < SYNTHETIC_MACHINES; machine++)
        check(4, machine, 7 + (uint64_t)machine, 0.3 * machine, false, false, 0);
}

/* Without gradients parameters alone can be elsewhere. */
static void test_forward_alone(void **state) {
    (void)state;
    struct bench bench;
    struct search_result result;
    struct small_graph_options options = {
        .layers = 12, .dtype = DTYPE_F32, .grain_sequences = 1, .sequence_length = 4, .forward_only = true};
    bench_open(&bench, 1, DTYPE_F32, 0, 3);
    struct search_input input = bench.input;
    struct graph *graph = small_graph_build(&options);
    int64_t *bytes = small_graph_workspace(graph);
    struct workspace_table workspace = {bytes, (int)graph->nodes.count};
    struct costs costs = synthetic_costs(graph, 0, 3);
    input.graph = graph;
    input.workspace = &workspace;
    input.costs = &costs;
    input.capacity_bytes[TIER_DISK] = 1 << 30;
    struct candidate least;
    assert_int_equal(search_least(&input, &least), STATUS_OK);
    input.capacity_bytes[TIER_DEVICE] = least.tier_bytes[TIER_DEVICE];
    if (search_policies(&input, &result) != STATUS_OK) fail_msg("%s", status_message());
    assert_true(result.front.count > 0);
    assert_int_equal(result.front.items[0].policy.parameters, TIER_DISK);
    search_result_free(&result);
    costs_free(&costs);
    mem_free(bytes);
    graph_free(graph);
    bench_close(&bench);
}

static double compute_s(const struct way *way) {
    double seconds = 0;
    for (int activity = 0; activity < ACTIVITY_COUNT; activity++)
        seconds += way->compute_s[activity];
    return seconds;
}

/* The solver's schedules: slower than keeping all and smaller, the smallest of them smaller than computing every layer
 * again once. */
static void test_fastest_schedules(void **state) {
    (void)state;
    struct bench bench;
    struct space space;
    bench_open(&bench, 12, DTYPE_F32, 0, 4);
    bench.input.capacity_bytes[TIER_DEVICE] = INT64_MAX / 4;
    assert_int_equal(space_create(&bench.input, &space), STATUS_OK);
    int64_t kept = way_least_bytes(&space.ways[0], 1), recomputed = kept, solved = kept;
    for (size_t s = 0; s < space.schedules.list.count; s++) {
        const struct way *way = &space.ways[s * LOOKAHEADS];
        int64_t bytes = way_least_bytes(way, 1);
        enum schedule_kind kind = space.schedules.list.items[s].kind;
        if (kind == SCHEDULE_RECOMPUTE && bytes < recomputed) recomputed = bytes;
        if (kind != SCHEDULE_FASTEST) continue;
        assert_true(bytes < kept);
        assert_true(compute_s(way) > compute_s(&space.ways[0]));
        if (bytes < solved) solved = bytes;
    }
    assert_true(recomputed < kept);
    assert_true(solved < recomputed);
    space_free(&space);
    bench_close(&bench);
}

/* What fits as it is stays as it is, without a second program. */
static void test_plain(void **state) {
    (void)state;
    struct bench bench;
    struct search_result result;
    bench_open(&bench, 3, DTYPE_F32, 0, 3);
    bench.input.capacity_bytes[TIER_DEVICE] = plain_bytes(&bench);
    assert_int_equal(search_policies(&bench.input, &result), STATUS_OK);
    assert_int_equal(result.compiled, 1);
    assert_true(result.proved);
    assert_string_equal(result.front.items[0].policy.schedule, "");
    assert_int_equal(result.front.items[0].policy.parameters, TIER_DEVICE);
    search_result_free(&result);
    bench_close(&bench);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_disk),
        cmocka_unit_test(test_host_and_disk),
        cmocka_unit_test(test_six_blocks),
        cmocka_unit_test(test_device_alone),
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_forward_alone),
        cmocka_unit_test(test_fastest_schedules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
