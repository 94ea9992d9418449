/* Which operands of a measured node share bytes: as in the program that a step is compiled to. */
#include "profile/operands.h"
#include "support/in_place_graph.h"
#include "support/unit.h"

static void in_place(void **state) {
    (void)state;
    struct graph *graph = in_place_graph();
    assert_int_equal(graph_status(graph), STATUS_OK);
    for (size_t n = 0; n < graph->nodes.count; n++) {
        struct operands operands;
        operands_find(graph, graph->nodes.items[n], &operands);
        bool shared = operands.storage[OP_INPUTS_MAX] == operands.storage[0];
        if (shared != in_place_expected(graph->nodes.items[n])) fail_msg("'%s'", graph->nodes.items[n]->name);
    }
    graph_free(graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(in_place)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
