#include "support/search_bench.h"

#include <math.h>
#include <string.h>

#include "search/space.h"
#include "support/random_policy.h"
#include "support/small_graph.h"
#include "support/synthetic_costs.h"
#include "support/unit.h"

void search_bench_open(int layers, enum dtype dtype, int machine, uint64_t seed, struct search_bench *out) {
    struct small_graph_options options = {.layers = layers,
                                          .tied = seed % 2,
                                          .packed_qkv = seed % 3 == 0,
                                          .dtype = dtype,
                                          .micro_batch_sequences = 1,
                                          .sequence_length = 16};
    *out = (struct search_bench){.graph = small_graph_build(&options)};
    out->bytes = small_graph_workspace(out->graph);
    out->workspace = (struct workspace_table){.bytes = out->bytes, .count = (int)out->graph->nodes.count};
    out->plan = small_plan(out->graph, SEARCH_BENCH_MICRO_BATCHES, 1);
    out->costs = synthetic_costs(out->graph, machine, seed);
    out->input = (struct search_input){
        .graph = out->graph, .workspace = &out->workspace, .costs = &out->costs, .recipe = &out->plan.recipe};
}

void search_bench_close(struct search_bench *bench) {
    costs_free(&bench->costs);
    mem_free(bench->bytes);
    graph_free(bench->graph);
}

struct measured search_bench_measure(const struct search_bench *bench, const struct policy *policy) {
    struct plan plan = bench->plan;
    struct program *program;
    struct timeline timeline;
    struct measured measured;
    plan.policy = *policy;
    enum status status = program_compile(bench->graph, &plan, &bench->workspace, NULL, &program);
    if (status != STATUS_OK) print_policy(policy, 0);
    if (status != STATUS_OK) fail_msg("%s", status_message());
    assert_int_equal(simulate(program, &bench->costs, &timeline), STATUS_OK);
    memcpy(measured.bytes, program->tier_bytes, sizeof measured.bytes);
    measured.step_s = timeline.step_s;
    timeline_free(&timeline);
    program_free(program);
    return measured;
}

bool search_bench_fits(const struct search_bench *bench, const struct measured *measured) {
    for (enum tier tier = 0; tier < TIER_COUNT; tier++)
        if (measured->bytes[tier] > bench->input.capacity_bytes[tier]) return false;
    return true;
}

int64_t search_bench_plain_bytes(const struct search_bench *bench) {
    struct policy plain = {.micro_batches_per_wave = 1};
    return search_bench_measure(bench, &plain).bytes[TIER_DEVICE];
}

/* The device that the search says is needed when nothing fits: with it something does. */
static int64_t min_bytes(struct search_bench *bench) {
    struct search_result result;
    bench->input.capacity_bytes[TIER_DEVICE] = 1;
    assert_int_equal(search_policies(&bench->input, &result), STATUS_OK);
    assert_int_equal(result.pareto_front.count, 0);
    int64_t min = result.min_bytes;
    search_result_free(&result);
    return min;
}

void search_bench_limit(struct search_bench *bench, double part, bool host, bool disk) {
    int64_t *capacity = bench->input.capacity_bytes, plain = search_bench_plain_bytes(bench);
    capacity[TIER_HOST] = host ? plain / 2 : 0;
    capacity[TIER_DISK] = disk ? 4 * plain : 0;
    int64_t min = min_bytes(bench);
    capacity[TIER_DEVICE] = min + (int64_t)(part * (double)(plain - min));
}

/* ---- every policy ---- */

struct tries {
    struct brute_force found;
    VEC(double) seconds; /* of those that fit */
};

static void take(struct tries *tries, const struct measured *measured) {
    struct brute_force *found = &tries->found;
    int64_t more = measured->bytes[TIER_DEVICE] - found->smallest.bytes[TIER_DEVICE];
    if (found->fitting++ == 0 || more < 0 || (more == 0 && measured->step_s < found->smallest.step_s))
        found->smallest = *measured;
    if (measured->step_s < found->best_s) found->best_s = measured->step_s;
    assert_int_equal(vec_push(&tries->seconds, measured->step_s), STATUS_OK);
}

static int compare_doubles(const void *a, const void *b) {
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static int64_t count_distinct(double *seconds, size_t count) {
    int64_t distinct = 0;
    if (count > 0) qsort(seconds, count, sizeof *seconds, compare_doubles);
    for (size_t i = 0; i < count; i++)
        distinct += i == 0 || seconds[i] > seconds[i - 1] * (1 + 1e-9);
    return distinct;
}

static void try_policy_class(const struct search_bench *bench, struct space *space,
                             const struct policy_class *policy_class, struct tries *tries) {
    struct candidate_list candidates;
    space_candidates(space, policy_class, &candidates);
    for (int m = 0; m < candidates.count; m++) {
        struct policy policy;
        space_policy(space, policy_class, &candidates.items[m], &policy);
        struct measured measured = search_bench_measure(bench, &policy);
        if (search_bench_fits(bench, &measured)) take(tries, &measured);
        tries->found.tried++;
    }
}

static void list_finer(struct space *space) {
    struct policy_class_numbers near = {0};
    size_t count = space->policy_classes.count;
    for (int32_t f = 0; f < (int32_t)count; f++) {
        near.list.count = 0;
        assert_int_equal(space_list_near(space, f, &near), STATUS_OK);
    }
    vec_free(&near.list);
}

static struct brute_force try_space(const struct search_bench *bench, bool finer) {
    struct space space;
    struct tries tries = {.found.best_s = INFINITY};
    assert_int_equal(space_create(&bench->input, &space), STATUS_OK);
    for (int32_t c = 0; c < (int32_t)space.placements.count; c++)
        assert_int_equal(space_list_placement(&space, c), STATUS_OK);
    if (finer) list_finer(&space);
    for (size_t f = 0; f < space.policy_classes.count; f++)
        try_policy_class(bench, &space, &space.policy_classes.items[f], &tries);
    tries.found.distinct = count_distinct(tries.seconds.items, tries.seconds.count);
    vec_free(&tries.seconds);
    space_free(&space);
    return tries.found;
}

struct brute_force search_bench_try_all(const struct search_bench *bench) {
    return try_space(bench, false);
}
struct brute_force search_bench_try_finer(const struct search_bench *bench) {
    return try_space(bench, true);
}
