/* A search that runs out of memory reports it and leaves nothing allocated. */
/* ctest: TIMEOUT 3500 */
#include <string.h>

#include "search/search.h"
#include "support/fault_sweep.h"
#include "support/small_graph.h"
#include "support/synthetic_costs.h"
#include "support/unit.h"

enum { MICRO_BATCHES = 2, COMPILED = 2 };

static enum status search(void *payload) {
    struct search_result result;
    TRY(search_policies(payload, &result));
    bool found = result.pareto_front.count > 0;
    search_result_free(&result);
    return found ? STATUS_OK : status_set(STATUS_FAILED, "nothing was found");
}

static enum status search_for_min_memory(void *payload) {
    struct trial min;
    return search_min_memory(payload, &min);
}

static void sweep(enum status (*body)(void *payload), struct search_input *input) {
    const struct fault_subject subject = {.body = body, .payload = input};
    struct fault_tally tally = fault_sweep_bearable(FAULT_ALLOCATE, false, unit_sweep(100, FAULT_EVERY), &subject);
    assert_true(tally.hit >= 100 && tally.reported == tally.hit);
    tally = fault_sweep_bearable(FAULT_ALLOCATE, true, unit_sweep(5, 200), &subject);
    assert_int_equal(tally.reported, tally.hit);
}

static void every_allocation_fails_in_turn(void **state) {
    (void)state;
    const struct small_graph_options options = {
        .layers = 2, .dtype = DTYPE_BF16, .micro_batch_sequences = 1, .sequence_length = 16};
    struct graph *graph = small_graph_build(&options);
    int64_t *bytes = small_graph_workspace(graph);
    struct workspace_table workspace = {.bytes = bytes, .count = (int)graph->nodes.count};
    struct plan plan = small_plan(graph, MICRO_BATCHES, 1);
    struct program *plain = small_program_under(graph, MICRO_BATCHES, &plan.policy);
    struct costs costs = synthetic_costs(graph, 0, 1);
    struct search_input input = {.graph = graph,
                                 .workspace = &workspace,
                                 .costs = &costs,
                                 .recipe = &plan.recipe,
                                 .capacity_bytes = {plain->tier_bytes[TIER_DEVICE] / 2, INT64_MAX / 4, INT64_MAX / 4},
                                 .max_compiled = COMPILED};
    sweep(search, &input);
    sweep(search_for_min_memory, &input);
    costs_free(&costs);
    program_free(plain);
    mem_free(bytes);
    graph_free(graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_allocation_fails_in_turn)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
