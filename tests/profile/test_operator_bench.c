/* Operands in memory: within what there is, whatever copies are wanted. */
#include "graph/graph.h"
#include "ops/ops.h"
#include "profile/operator_bench.h"
#include "support/unit.h"

enum { ROWS = 64, WIDTH = 1024 };

static int64_t memory_of(int64_t most_bytes) {
    struct graph *graph = graph_create(DTYPE_F32, 1, ROWS);
    struct bench_memory memory = {.most_bytes = most_bytes};
    struct operator_bench bench;
    struct operands operands;
    graph_begin_block(graph, "layer");
    struct tensor *x = graph_tensor(graph, TENSOR_INPUT, "x", shape_make(DTYPE_F32, 3, 1, ROWS, WIDTH));
    struct tensor *weight = graph_parameter(graph, "weight", 2, WIDTH, WIDTH);
    struct tensor *y =
        ops_linear(graph, "product", x, weight, NULL, NULL, (struct linear_attributes){.weight_is_kn = false});
    assert_int_equal(graph_status(graph), STATUS_OK);
    operands_find(graph, y->producer, &operands);
    backend_cpu.set_threads(1);
    assert_int_equal(operator_bench_open(&backend_cpu, &operands, &memory, &bench), STATUS_OK);
    operator_bench_run(&bench);
    operator_bench_run(&bench);
    int64_t bytes = memory.arena.bytes;
    operator_bench_close(&bench);
    bench_memory_free(&memory);
    graph_free(graph);
    return bytes;
}

static void test_copies_fit_the_memory(void **state) {
    (void)state;
    const int64_t weight = (int64_t)WIDTH * WIDTH * 4;
    int64_t unbounded = memory_of(0);
    assert_true(unbounded > 3 * weight);
    for (int64_t most = 8 << 20; most < unbounded; most *= 2)
        assert_true(memory_of(most) <= most);
    /* One copy is what the operator itself takes. */
    assert_in_range(memory_of(1), weight, 2 * weight);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_copies_fit_the_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
