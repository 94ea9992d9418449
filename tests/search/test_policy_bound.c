/* Bounds: no program of a policy is faster or smaller than they say. */
#include "search/policy_bound.h"
#include "sim/simulate.h"
#include "support/random_policy.h"
#include "support/small_graph.h"
#include "support/synthetic_costs.h"
#include "support/unit.h"

enum { GRAINS = 5, SEEDS = 400 };

struct closeness {
    double time, bytes;  /* of the bounds, by what they bound */
    double least, quick; /* of the closed forms, by the bounds */
    int count;
};

static struct program *compile(const struct graph *graph, const struct plan *plan,
                               const struct workspace_table *workspace) {
    struct program *program;
    assert_int_equal(program_compile_unproved(graph, plan, workspace, &program), STATUS_OK);
    return program;
}

/* Of a policy, and of those among which it is. */
struct bounds {
    struct policy_bound bound;
    int64_t quick_bytes;
    struct policy_seconds least, least_of_many; /* with just as much that stays, with more */
};

static struct bounds bounds_of(const struct policy_bound_input *input, const struct policy *policy, uint64_t seed) {
    struct pass_activations activations = policy_bound_activations(input->cost, GRAINS, policy->grains_per_pass);
    int64_t chunks = states_count(input->states), persistent = policy->persistent_chunks;
    struct policy wide = *policy;
    wide.buffers += (int64_t)(seed % 3);
    return (struct bounds){.bound = policy_bound_of(input, policy, policy_bound_device_bytes(input, policy)),
                           .quick_bytes = policy_bound_quick_device_bytes(input, policy, &activations),
                           .least = policy_bound_least_seconds(input, policy, persistent),
                           .least_of_many = policy_bound_least_seconds(
                               input, &wide, persistent + (int64_t)(seed % 7) * (chunks - persistent) / 6)};
}

static struct bounds find_bounds(const struct graph *graph, const struct plan *plan,
                                 const struct workspace_table *workspace, const struct costs *costs, uint64_t seed) {
    const struct policy *policy = &plan->policy;
    struct states states;
    struct execution_source source;
    struct execution_list executions = {0};
    struct schedule_cost cost;
    assert_int_equal(states_create(graph, costs, policy->chunk_bytes, &states), STATUS_OK);
    assert_int_equal(execution_source_create(graph, policy, &states.chunks, false, &source), STATUS_OK);
    assert_int_equal(schedule_list_executions(&source, policy->schedule, &executions), STATUS_OK);
    assert_int_equal(
        schedule_cost_measure(&source, &executions, workspace, costs, policy->schedule, policy->lookahead, &cost),
        STATUS_OK);
    int64_t *scratch = mem_array(policy_bound_scratch(&cost), sizeof *scratch);
    assert_non_null(scratch);
    struct policy_bound_input input = {graph,  costs, &cost, &states, GRAINS, policy_bound_fixed_bytes(graph, GRAINS),
                                       scratch};
    struct bounds bounds = bounds_of(&input, policy, seed);
    mem_free(scratch);
    schedule_cost_free(&cost);
    vec_free(&executions.list);
    execution_source_free(&source);
    states_free(&states);
    return bounds;
}

static void check(const struct graph *graph, const struct workspace_table *workspace, int machine, uint64_t seed,
                  struct closeness *closeness) {
    struct plan plan = small_plan(graph, GRAINS, 1);
    plan.policy = random_policy(graph, GRAINS, seed);
    struct costs costs = synthetic_costs(graph, machine, seed);
    struct bounds bounds = find_bounds(graph, &plan, workspace, &costs, seed);
    struct policy_bound bound = bounds.bound;
    struct program *program = compile(graph, &plan, workspace);
    struct timeline timeline;
    assert_int_equal(simulate(program, &costs, &timeline), STATUS_OK);
    double bound_s = bound.seconds.step_s;
    bool held = timeline.step_s >= bound_s && bound_s > 0;
    held &= timeline.step_s >= bounds.least.step_s && timeline.step_s >= bounds.least_of_many.step_s;
    held &= bounds.least_of_many.serial_s <= bound.seconds.serial_s * (1 + 1e-9);
    held &= bounds.quick_bytes <= bound.bytes[TIER_DEVICE];
    for (enum tier tier = 0; tier < TIER_COUNT; tier++)
        held &= program->tier_bytes[tier] >= bound.bytes[tier];
    if (!held) {
        print_policy(&plan.policy, seed);
        for (enum tier tier = 0; tier < TIER_COUNT; tier++)
            print_message("%s: %lld bytes, bound %lld\n", tier_name(tier), (long long)program->tier_bytes[tier],
                          (long long)bound.bytes[tier]);
        print_message("quick bound %lld\n", (long long)bounds.quick_bytes);
        print_message("%s: %g s, bounds %g, %g and %g s\n", synthetic_machine_name(machine), timeline.step_s, bound_s,
                      bounds.least.step_s, bounds.least_of_many.step_s);
        fail_msg("a bound above what it bounds");
    }
    closeness->time += bound_s / timeline.step_s;
    closeness->least += bounds.least.step_s / bound_s;
    closeness->quick += (double)bounds.quick_bytes / (double)bound.bytes[TIER_DEVICE];
    closeness->bytes += (double)bound.bytes[TIER_DEVICE] / (double)program->tier_bytes[TIER_DEVICE];
    closeness->count++;
    timeline_free(&timeline);
    program_free(program);
    costs_free(&costs);
}

/* Bounds that hold because they say nothing would be of no use: on average they are near. */
static void check_graph(const struct small_graph_options *options, uint64_t first_seed) {
    struct graph *graph = small_graph_build(options);
    int64_t *bytes = small_graph_workspace(graph);
    struct workspace_table workspace = {bytes, (int)graph->nodes.count};
    struct closeness closeness = {0};
    for (uint64_t seed = first_seed; seed < first_seed + SEEDS; seed++)
        check(graph, &workspace, (int)(seed % SYNTHETIC_MACHINES), seed, &closeness);
    print_message("%d layers: time %.3f, bytes %.3f of what they bound\n", options->layers,
                  closeness.time / closeness.count, closeness.bytes / closeness.count);
    print_message("closed forms: time %.3f, bytes %.3f of the bounds\n", closeness.least / closeness.count,
                  closeness.quick / closeness.count);
    assert_true(closeness.least > 0.8 * closeness.count);
    assert_true(closeness.quick > 0.6 * closeness.count);
    assert_true(closeness.time > 0.6 * closeness.count);
    assert_true(closeness.bytes > 0.5 * closeness.count);
    mem_free(bytes);
    graph_free(graph);
}

static void bounds_hold_for_small_models(void **state) {
    (void)state;
    struct small_graph_options options = {
        .layers = 2, .tied = true, .dtype = DTYPE_F32, .grain_sequences = 1, .sequence_length = 16};
    check_graph(&options, 1);
}

static void bounds_hold_for_deeper_models(void **state) {
    (void)state;
    struct small_graph_options options = {
        .layers = 5, .packed_qkv = true, .dtype = DTYPE_BF16, .grain_sequences = 1, .sequence_length = 32};
    check_graph(&options, 10000);
}

/* A chunk that is larger than all others, and of which two blocks make gradients. */
static void bounds_hold_for_large_tied_embeddings(void **state) {
    (void)state;
    struct small_graph_options options = {
        .layers = 2, .tied = true, .dtype = DTYPE_BF16, .grain_sequences = 1, .sequence_length = 16, .vocabulary = 400};
    check_graph(&options, 20000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounds_hold_for_small_models),
        cmocka_unit_test(bounds_hold_for_deeper_models),
        cmocka_unit_test(bounds_hold_for_large_tied_embeddings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
