/* The operands of a measured node share bytes as in the compiled program of a step. */
#include "profile/operator_bench.h"
#include "support/in_place_graph.h"
#include "support/small_graph.h"
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

static bool is_out(const struct operands *operands, const bool *kept, int operand) {
    int storage = operands->storage[operand];
    return storage >= 0 && operands_out_of_caches(operands, kept) >> storage & 1;
}

/* Parameters and what backward reads of forward are in no cache; gradients of activations, and what was made a moment
 * ago, are. */
static void what_waits_is_out_of_the_caches(void **state) {
    (void)state;
    struct small_graph_options options = {
        .layers = 2, .dtype = DTYPE_F32, .micro_batch_sequences = 1, .sequence_length = 8};
    struct graph *graph = small_graph_build(&options);
    bool *kept = operands_kept(graph);
    int waiting = 0, passing = 0, recent = 0;
    assert_non_null(kept);
    for (size_t n = 0; n < graph->nodes.count; n++) {
        const struct node *node = graph->nodes.items[n];
        struct operands operands;
        operands_find(graph, node, &operands);
        for (int i = 0; i < OP_INPUTS_MAX; i++) {
            const struct tensor *in = node->in[i];
            if (!in) continue;
            bool out = is_out(&operands, kept, i);
            if (in->kind == TENSOR_PARAMETER) assert_true(out);
            if (in->kind == TENSOR_ACTIVATION && in->producer) {
                assert_int_equal(out, in->producer->phase != node->phase);
                recent += !out;
            }
        }
        const struct tensor *made = node->out[0];
        bool in_place = operands.storage[OP_INPUTS_MAX] == operands.storage[0];
        if (!made || made->kind != TENSOR_ACTIVATION || in_place) continue;
        bool out = is_out(&operands, kept, OP_INPUTS_MAX);
        if (node->phase == PHASE_BACKWARD) assert_false(out);
        waiting += node->phase == PHASE_FORWARD && out;
        passing += node->phase == PHASE_FORWARD && !out;
    }
    print_message("%d outputs of forward wait for backward, %d do not; %d inputs are recent\n", waiting, passing,
                  recent);
    assert_true(waiting > 0 && recent > 0);
    mem_free(kept);
    graph_free(graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(in_place), cmocka_unit_test(what_waits_is_out_of_the_caches)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
