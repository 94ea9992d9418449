/* Costs of collectives in a program, by the group and the algorithm of each. */
#include <math.h>

#include "compiler/program.h"
#include "search/sim/simulate.h"
#include "support/compile_proved.h"
#include "support/random_policy.h"
#include "support/small_graph.h"
#include "support/synthetic_costs.h"
#include "support/unit.h"

static struct program *compile(const struct graph *graph, const struct partition *partition, bool flat) {
    int64_t *bytes = small_graph_workspace(graph);
    struct workspace_table table = {.bytes = bytes, .count = (int)graph->nodes.count};
    struct program *program = NULL;
    struct plan plan = small_plan(graph, 8, 1);
    plan.recipe.lanes = (struct lane_shape){1, 8};
    plan.policy.lookahead = 1;
    plan.policy.buffers = 4;
    policy_cut(graph, partition, &plan.policy);
    plan.policy.flat = flat;
    plan.place.mesh = (struct mesh){2, 2};
    plan.place.in_place = true;
    if (program_compile_proved(graph, &plan, &table, &program) != STATUS_OK) fail_msg("%s", status_message());
    mem_free(bytes);
    return program;
}

/* A message across nodes takes a second to begin, and nothing else takes any time. */
static struct costs costs_of_messages(const struct graph *graph) {
    struct costs costs = synthetic_costs(graph, 0, 1);
    costs.rates.links = (struct cluster_links){
        .mesh = {4, 4}, /* another one: no operation was measured as a whole */
        .shared = true,
        .message = {[MESH_IN_NODE] = {0, 1e18}, [MESH_ACROSS] = {1, 1e18}},
        .read = {0, 1e18},
    };
    return costs;
}

/* Latencies that follow each other across nodes, one way. */
static double latencies(const struct program_collective *operation, bool flat) {
    static const struct mesh mesh = {2, 2};
    int in_node = mesh_group_per_node(&mesh, &operation->group), ways = operation->kind == COMM_ALL_REDUCE ? 2 : 1;
    if (in_node == operation->group.count) return 0;
    return ways * (flat ? operation->group.count - in_node : 1);
}

static void require_costs(const struct graph *graph, const struct partition *partition, bool flat, int *across) {
    struct program *program = compile(graph, partition, flat);
    struct costs costs = costs_of_messages(graph);
    struct timeline timeline;
    double expected = 0, busy = 0;
    assert_int_equal(simulate(program, &costs, &timeline), STATUS_OK);
    for (size_t i = 0; i < program->instructions.count; i++) {
        const struct instruction *instruction = &program->instructions.items[i];
        if (!opcode_is_collective(instruction->opcode)) continue;
        double own = latencies(&program->collectives.items[instruction->collective], flat);
        double seconds = costs_of(&costs, program, instruction).seconds - costs.rates.issue_s;
        if (fabs(seconds - own) > 1e-6) fail_msg("operation %d: %g s, not %g", instruction->collective, seconds, own);
        expected += own * (double)program->sections.items[instruction->section].repeat;
        *across += own > 0;
    }
    for (size_t e = 0; e < timeline.events.count; e++) {
        const struct timeline_event *event = &timeline.events.items[e];
        bool message = opcode_is_collective(program->instructions.items[event->instruction].opcode);
        if (message) busy += event->end_s - event->start_s;
    }
    assert_true(busy >= expected - 1e-6); /* next to others they may take longer */
    timeline_free(&timeline);
    costs_free(&costs);
    program_free(program);
}

static void operations_cost_by_group_and_algorithm(void **state) {
    (void)state;
    static const struct partition partitions[] = {{1, 1, 1}, {1, 1, 4}, {2, 2, 2}, {2, 4, 4}, {2, 2, 4}, {4, 4, 4}};
    struct graph *graph = small_graph_build(&(struct small_graph_options){
        .layers = 2, .dtype = DTYPE_F32, .micro_batch_sequences = 2, .sequence_length = 4, .vocabulary = 1000});
    for (size_t i = 0; i < sizeof partitions / sizeof *partitions; i++)
        for (int flat = 0; flat < 2; flat++) {
            int across = 0;
            require_costs(graph, &partitions[i], flat, &across);
            assert_true(across > 0);
        }
    graph_free(graph);
}

/* Where a second was measured for each byte of fp32, rounded sums take a second for each byte that travels. */
static void rounded_sums_cost_what_travels(void **state) {
    (void)state;
    const struct mesh mesh = {2, 2};
    const struct comm_group all = mesh_group(&mesh, 0, MESH_ALL);
    static const enum comm_kind kinds[] = {COMM_ALL_REDUCE, COMM_REDUCE_SCATTER, COMM_ALL_GATHER};
    const int64_t bytes = 1024, rounded[] = {bytes / 2 + bytes / 4, bytes / 2, bytes};
    struct cluster_rates rates = {.links = {.mesh = mesh}};
    for (int i = 0; i < 6; i++)
        rates.links.points[rates.links.point_count++] =
            (struct link_point){.kind = kinds[i / 2],
                                .group = MESH_ALL,
                                .bytes = i & 1 ? 2 * bytes : bytes / 4,
                                .seconds = (double)(i & 1 ? 2 * bytes : bytes / 4)};
    for (int i = 0; i < 3; i++) {
        struct rank_place place = {.mesh = mesh};
        const struct program_collective operation = {
            .kind = kinds[i], .group = all, .bytes = bytes, .round_bf16 = kinds[i] != COMM_ALL_GATHER};
        double seconds = costs_collective_s(&rates, &place, false, &operation);
        if (fabs(seconds - (double)rounded[i]) > 1e-6) fail_msg("%s: %g s", link_kind_name(kinds[i]), seconds);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(operations_cost_by_group_and_algorithm),
                                       cmocka_unit_test(rounded_sums_cost_what_travels)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
