/* The search for policies of a rank whose graph has collectives. */
#include <math.h>

#include "search/search.h"
#include "support/collective_graph.h"
#include "support/compile_proved.h"
#include "support/small_graph.h"
#include "support/synthetic_costs.h"
#include "support/unit.h"

enum { MICRO_BATCHES = 4 };

static const struct rank_place place = {.mesh = {1, 2}, .tensor_parallel = 2, .tier = TIER_DEVICE};

static int64_t count_operations(const struct program *program) {
    int64_t count = 0;
    for (size_t i = 0; i < program->instructions.count; i++) {
        const struct instruction *instruction = &program->instructions.items[i];
        if (opcode_is_collective(instruction->opcode)) count += program->sections.items[instruction->section].repeat;
    }
    return count;
}

static struct program *compile(const struct graph *graph, const struct policy *policy) {
    struct plan plan = collective_plan(graph, &place, MICRO_BATCHES);
    struct program *program = NULL;
    int64_t *bytes = small_graph_workspace(graph);
    const struct workspace_table table = {.bytes = bytes, .count = (int)graph->nodes.count};
    if (policy) plan.policy = *policy;
    if (program_compile_proved(graph, &plan, &table, &program) != STATUS_OK) fail_msg("%s", status_message());
    mem_free(bytes);
    return program;
}

/* What the fastest policy's program executes, of operations between ranks for each micro-batch. No compiled program is
 * faster than its bound. */
static int64_t search(const struct graph *graph, const struct costs *costs, const struct program *plain) {
    const struct plan plan = collective_plan(graph, &place, MICRO_BATCHES);
    int64_t *bytes = small_graph_workspace(graph);
    const struct workspace_table table = {.bytes = bytes, .count = (int)graph->nodes.count};
    const struct search_input input = {
        .graph = graph,
        .workspace = &table,
        .costs = costs,
        .recipe = &plan.recipe,
        .place = place,
        .micro_batches_per_wave = 1,
        .capacity_bytes = {
            [TIER_DEVICE] = plain->tier_bytes[TIER_DEVICE] * 85 / 100, [TIER_HOST] = plain->tier_bytes[TIER_DEVICE]}};
    struct search_result result;
    if (search_policies(&input, &result) != STATUS_OK) fail_msg("%s", status_message());
    assert_true(result.pareto_front.count > 0 && result.proved);
    for (size_t i = 0; i < result.tried.count; i++) {
        const struct trial *trial = &result.tried.items[i];
        if (trial->step_s > 0 && !(trial->bound_s <= trial->step_s))
            fail_msg("bound %g s, step %g s", trial->bound_s, trial->step_s);
    }
    struct program *best = compile(graph, &result.pareto_front.items[0].policy);
    int64_t operations = count_operations(best);
    program_free(best);
    search_result_free(&result);
    mem_free(bytes);
    return operations;
}

/* What is not kept is copied to the host or computed again; recomputing it repeats the collective, which costs a second
 * or nothing. */
static void recomputing_is_chosen_by_what_messages_take(void **state) {
    (void)state;
    struct graph *graph = collective_graph_build(DTYPE_F32, (struct group_part){.parts = 2, .position = 0});
    struct program *plain = compile(graph, NULL);
    int64_t operations[2];
    for (int slow = 0; slow < 2; slow++) {
        struct costs costs = synthetic_costs(graph, 3, 1);         /* copies are slow */
        costs.rates.links = (struct cluster_links){.mesh = {1, 4}, /* another one: nothing was measured as a whole */
                                                   .message = {[MESH_IN_NODE] = {slow ? 1 : 0, 1e18}},
                                                   .read = {0, 1e18}};
        costs_set_collectives(&costs, plain);
        operations[slow] = search(graph, &costs, plain);
        costs_free(&costs);
    }
    assert_int_equal(operations[1], count_operations(plain));
    assert_true(operations[0] > operations[1]);
    program_free(plain);
    graph_free(graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(recomputing_is_chosen_by_what_messages_take)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
