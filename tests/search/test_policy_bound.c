/* Lower bounds: no program of a policy is faster or smaller. */
#include "base/random.h"
#include "plan/chunks.h"
#include "search/policy_bound.h"
#include "search/sim/simulate.h"
#include "support/random_policy.h"
#include "support/small_graph.h"
#include "support/synthetic_costs.h"
#include "support/unit.h"

enum { MICRO_BATCHES = 5 };

struct closeness {
    double time, bytes; /* of the bounds, by what they bound */
    double min, quick;  /* of the closed forms, by the bounds */
    int count;
};

static struct program *compile(const struct graph *graph, const struct plan *plan,
                               const struct workspace_table *workspace) {
    struct program *program;
    assert_int_equal(program_compile(graph, plan, workspace, NULL, &program), STATUS_OK);
    return program;
}

/* Of a policy, and of those among which it is. */
struct bounds {
    struct policy_bound bound;
    int64_t quick_bytes;
    struct policy_seconds min, min_of_many; /* with just as much that stays, with more */
};

static struct bounds bounds_of(const struct policy_bound_input *input, const struct policy *policy, uint64_t seed) {
    struct wave_activations activations =
        policy_bound_activations(input->cost, input->cut, policy->micro_batches_per_wave);
    int64_t chunks = states_count(input->states), persistent = policy->persistent_chunks;
    struct policy wide = *policy;
    wide.buffers += (int64_t)(seed % 3);
    return (struct bounds){.bound = policy_bound_of(input, policy, policy_bound_device_bytes(input, policy)),
                           .quick_bytes = policy_bound_quick_device_bytes(input, policy, &activations),
                           .min = policy_bound_min_seconds(input, policy, persistent),
                           .min_of_many = policy_bound_min_seconds(
                               input, &wide, persistent + (int64_t)(seed % 7) * (chunks - persistent) / 6)};
}

static struct bounds find_bounds(const struct graph *graph, const struct plan *plan,
                                 const struct workspace_table *workspace, const struct costs *costs, uint64_t seed) {
    const struct policy *policy = &plan->policy;
    struct states states;
    struct execution_source source;
    struct execution_list executions = {0};
    struct schedule_cost cost;
    assert_int_equal(states_create(graph, costs, policy, &states), STATUS_OK);
    assert_int_equal(execution_source_create(graph, policy, &states.chunks, false, &source), STATUS_OK);
    assert_int_equal(schedule_list_executions(&source, policy->schedule, &executions), STATUS_OK);
    assert_int_equal(schedule_cost_measure(&source, &executions, workspace, costs, policy->lookahead, &cost),
                     STATUS_OK);
    int64_t *scratch = mem_array(policy_bound_scratch(&cost), sizeof *scratch);
    assert_non_null(scratch);
    struct step_cut cut;
    struct collective_seconds collective_seconds;
    assert_int_equal(step_cut_create(graph, &plan->recipe, &plan->place, &cut), STATUS_OK);
    assert_int_equal(
        collective_seconds_measure(&cut, &states, &policy->partition, policy->flat, &costs->rates, &collective_seconds),
        STATUS_OK);
    struct chunk_sum *from = states_divide(&states, &policy->partition, &plan->place, costs->rates.issue_s);
    assert_non_null(from);
    int64_t fixed = policy_bound_fixed_bytes(graph, cut.shares.micro_batches > 0 ? cut.shares.micro_batches : 1);
    bool early = executions_update_early(graph, &policy->partition, rank_place_pipeline_parallel(&plan->place));
    struct policy_bound_input input = {graph, costs, &cost,   &states, from, &collective_seconds,
                                       &cut,  fixed, scratch, early};
    struct bounds bounds = bounds_of(&input, policy, seed);
    mem_free(from);
    step_cut_free(&cut);
    mem_free(scratch);
    schedule_cost_free(&cost);
    vec_free(&executions.list);
    execution_source_free(&source);
    states_free(&states);
    return bounds;
}

static int roll(uint64_t seed, uint64_t *next, int sides) {
    return (int)(random_u64(seed, RANDOM_TEST, 19, (*next)++) % (uint64_t)sides);
}

/* Lanes, rounds and ranks that hold them; any of the ranks. */
static void draw_ranks(uint64_t seed, struct plan *plan, struct costs *costs) {
    static const struct lane_shape shapes[] = {{1, 1}, {1, 2}, {1, 3}, {1, 8}, {2, 4}, {2, 3}};
    uint64_t next = 0;
    plan->recipe.batch = plan->recipe.micro_batch_sequences * (1 + roll(seed, &next, 20));
    plan->recipe.lanes = shapes[roll(seed, &next, sizeof shapes / sizeof *shapes)];
    plan->recipe.round_micro_batches = roll(seed, &next, 3);
    struct lane_tree tree;
    assert_int_equal(lane_tree_of_shape(&plan->recipe.lanes, &tree), STATUS_OK);
    int ranks = 1 + roll(seed, &next, tree.lanes);
    while (!lane_tree_holds(&tree, ranks))
        ranks--;
    lane_tree_free(&tree);
    int nodes = ranks % 2 == 0 ? 1 + roll(seed, &next, 2) : 1;
    plan->place = (struct rank_place){.mesh = {nodes, ranks / nodes},
                                      .rank = roll(seed, &next, ranks),
                                      .in_place = roll(seed, &next, 2),
                                      .tier = roll(seed, &next, 3) == 0 ? TIER_HOST : TIER_DEVICE};
    costs->rates.links.mesh = (struct mesh){1, 1};
    for (int axis = 0; axis < MESH_AXES; axis++)
        costs->rates.links.message[axis] = (struct transfer_rate){1e-5, 1e8 * (1 + roll(seed, &next, 40))};
    costs->rates.links.read = (struct transfer_rate){1e-6, 1e9 * (1 + roll(seed, &next, 9))};
}

enum subject { ONE_RANK, RANKS, PARTITIONS };

static void check(const struct graph *graph, const struct workspace_table *workspace, enum subject subject,
                  uint64_t seed, struct closeness *closeness) {
    struct plan plan = small_plan(graph, MICRO_BATCHES, 1);
    int machine = (int)(seed % SYNTHETIC_MACHINES);
    struct costs costs = synthetic_costs(graph, machine, seed);
    if (subject != ONE_RANK) draw_ranks(seed, &plan, &costs);
    const struct mesh *mesh = subject == PARTITIONS ? &plan.place.mesh : NULL;
    if (mesh) plan.place.rank = 0; /* which has a part of every chunk */
    plan.policy = random_policy(graph, recipe_share_micro_batches(&plan.recipe), mesh, seed);
    struct bounds bounds = find_bounds(graph, &plan, workspace, &costs, seed);
    struct policy_bound bound = bounds.bound;
    struct program *program = compile(graph, &plan, workspace);
    struct timeline timeline;
    assert_int_equal(simulate(program, &costs, &timeline), STATUS_OK);
    double bound_s = bound.seconds.step_s;
    bool held = timeline.step_s >= bound_s && bound_s > 0;
    held &= timeline.step_s >= bounds.min.step_s && timeline.step_s >= bounds.min_of_many.step_s;
    held &= bounds.min_of_many.serial_s <= bound.seconds.serial_s * (1 + 1e-9);
    held &= bounds.quick_bytes <= bound.bytes[TIER_DEVICE];
    for (enum tier tier = 0; tier < TIER_COUNT; tier++)
        held &= program->tier_bytes[tier] >= bound.bytes[tier];
    if (!held) {
        char lanes[LANE_SHAPE_BYTES];
        print_policy(&plan.policy, seed);
        print_message("lanes %s, rounds of %lld, %lld micro-batches, rank %d of %dx%d\n",
                      lane_shape_print(&plan.recipe.lanes, lanes), (long long)plan.recipe.round_micro_batches,
                      (long long)recipe_micro_batches(&plan.recipe), plan.place.rank, plan.place.mesh.nodes,
                      plan.place.mesh.per_node);
        print_message("ranks communicate in the %s tier\n", tier_name(plan.place.tier));
        for (enum tier tier = 0; tier < TIER_COUNT; tier++)
            print_message("%s: %lld bytes, bound %lld\n", tier_name(tier), (long long)program->tier_bytes[tier],
                          (long long)bound.bytes[tier]);
        print_message("quick bound %lld\n", (long long)bounds.quick_bytes);
        print_message("%s: %g s, bounds %g, %g and %g s\n", synthetic_machine_name(machine), timeline.step_s, bound_s,
                      bounds.min.step_s, bounds.min_of_many.step_s);
        fail_msg("a bound above what it bounds");
    }
    closeness->time += bound_s / timeline.step_s;
    closeness->min += bounds.min.step_s / bound_s;
    closeness->quick += (double)bounds.quick_bytes / (double)bound.bytes[TIER_DEVICE];
    closeness->bytes += (double)bound.bytes[TIER_DEVICE] / (double)program->tier_bytes[TIER_DEVICE];
    closeness->count++;
    timeline_free(&timeline);
    program_free(program);
    costs_free(&costs);
}

/* Bounds that hold because they say nothing would be of no use: on average they are near. */
static void check_graph(const struct small_graph_options *options, enum subject subject, uint64_t first_seed) {
    struct graph *graph = small_graph_build(options);
    int64_t *bytes = small_graph_workspace(graph);
    struct workspace_table workspace = {.bytes = bytes, .count = (int)graph->nodes.count};
    struct closeness closeness = {0};
    uint64_t seeds = unit_sweep(400, 5000);
    for (uint64_t seed = first_seed; seed < first_seed + seeds; seed++)
        check(graph, &workspace, subject, seed, &closeness);
    print_message("%d layers: time %.3f, bytes %.3f of what they bound\n", options->layers,
                  closeness.time / closeness.count, closeness.bytes / closeness.count);
    print_message("closed forms: time %.3f, bytes %.3f of the bounds\n", closeness.min / closeness.count,
                  closeness.quick / closeness.count);
    assert_true(closeness.min > 0.8 * closeness.count);
    assert_true(closeness.quick > (subject == PARTITIONS ? 0.5 : 0.6) * closeness.count);
    assert_true(closeness.time > (subject != ONE_RANK ? 0.4 : 0.6) * closeness.count);
    assert_true(closeness.bytes > (options->unclipped ? 0.3 : subject != ONE_RANK ? 0.4 : 0.5) * closeness.count);
    mem_free(bytes);
    graph_free(graph);
}

static void bounds_hold_for_small_models(void **state) {
    (void)state;
    struct small_graph_options options = {
        .layers = 2, .tied = true, .dtype = DTYPE_F32, .micro_batch_sequences = 1, .sequence_length = 16};
    check_graph(&options, ONE_RANK, 1);
}

static void bounds_hold_for_deeper_models(void **state) {
    (void)state;
    struct small_graph_options options = {
        .layers = 5, .packed_qkv = true, .dtype = DTYPE_BF16, .micro_batch_sequences = 1, .sequence_length = 32};
    check_graph(&options, ONE_RANK, 10000);
}

/* A chunk that is larger than all others, and of which two blocks make gradients. */
static void bounds_hold_for_large_tied_embeddings(void **state) {
    (void)state;
    struct small_graph_options options = {.layers = 2,
                                          .tied = true,
                                          .dtype = DTYPE_BF16,
                                          .micro_batch_sequences = 1,
                                          .sequence_length = 16,
                                          .vocabulary = 400};
    check_graph(&options, ONE_RANK, 20000);
}

/* A rank without micro-batches has no forward, so that nothing of a wave bounds it. */
static void bounds_hold_in_lanes_and_on_ranks(void **state) {
    (void)state;
    struct small_graph_options options = {
        .layers = 3, .tied = true, .dtype = DTYPE_BF16, .micro_batch_sequences = 1, .sequence_length = 16};
    check_graph(&options, RANKS, 30000);
    options.tied = false;
    options.packed_qkv = true;
    check_graph(&options, RANKS, 40000);
}

/* Embeddings of several blocks of elements, so that shards cut through them, and other chunks of one. */
static void bounds_hold_under_partitions(void **state) {
    (void)state;
    struct small_graph_options options = {.layers = 3,
                                          .tied = true,
                                          .dtype = DTYPE_BF16,
                                          .micro_batch_sequences = 1,
                                          .sequence_length = 16,
                                          .vocabulary = 1000};
    check_graph(&options, PARTITIONS, 50000);
    options.tied = false;
    options.layers = 2;
    options.dtype = DTYPE_F32;
    check_graph(&options, PARTITIONS, 60000);
}

/* Updates follow their gradients where no state is cut. */
static void bounds_hold_where_nothing_is_clipped(void **state) {
    (void)state;
    struct small_graph_options options = {.layers = 4,
                                          .tied = true,
                                          .dtype = DTYPE_F32,
                                          .micro_batch_sequences = 1,
                                          .sequence_length = 16,
                                          .unclipped = true};
    check_graph(&options, ONE_RANK, 70000);
    options.tied = false;
    options.packed_qkv = true;
    options.dtype = DTYPE_BF16;
    check_graph(&options, RANKS, 80000);
    check_graph(&options, PARTITIONS, 90000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounds_hold_for_small_models),          cmocka_unit_test(bounds_hold_for_deeper_models),
        cmocka_unit_test(bounds_hold_for_large_tied_embeddings), cmocka_unit_test(bounds_hold_in_lanes_and_on_ranks),
        cmocka_unit_test(bounds_hold_under_partitions),          cmocka_unit_test(bounds_hold_where_nothing_is_clipped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
