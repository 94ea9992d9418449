/* Operands stay within the available memory, however many copies are requested. */
#include "ir/graph.h"
#include "ir/ops/ops.h"
#include "profile/operator_bench.h"
#include "profile/rate_work.h"
#include "support/unit.h"

enum { ROWS = 64, WIDTH = 1024 };

static int64_t cache_bytes;
static int64_t report_cache_bytes(void) { return cache_bytes; }

/* The processor's, as if its last cache had so many bytes. */
static struct backend with_cache(int64_t bytes) {
    struct backend backend = backend_cpu;
    cache_bytes = bytes;
    backend.cache_bytes = report_cache_bytes;
    return backend;
}

static int64_t memory_of(const struct backend *backend, int64_t max_bytes, bool evicts) {
    struct graph *graph = graph_create(DTYPE_F32, 1, ROWS);
    struct bench_memory memory = {.max_bytes = max_bytes};
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
    assert_int_equal(operator_bench_open(backend, &operands, evicts, &memory, &bench), STATUS_OK);
    for (int call = 0; call < 2; call++) {
        operator_bench_evict(&bench);
        assert_int_equal(operator_bench_run(&bench), STATUS_OK);
    }
    int64_t bytes = memory.arena.bytes;
    operator_bench_close(&bench);
    bench_memory_free(&memory);
    graph_free(graph);
    return bytes;
}

static void copies_fit_the_memory(void **state) {
    (void)state;
    const int64_t weight = (int64_t)WIDTH * WIDTH * 4;
    const struct backend backend = with_cache(32 << 20);
    int64_t unbounded = memory_of(&backend, 0, false);
    /* One copy is what the operator itself takes; below AVX-512 the product has a packed weight next to it. */
    int64_t min = memory_of(&backend, 1, false);
    assert_true(memory_of(&backend, 0, true) <= min);
    assert_in_range(min, weight, 3 * weight);
    assert_true(unbounded > min + 2 * weight);
    for (int64_t max = 8 << 20; max < unbounded; max *= 2)
        assert_true(memory_of(&backend, max, false) <= (max > min ? max : min));
}

/* Two works of each kind are open at once: together some hundred MiB, however large the cache is. */
static void rates_take_no_more_for_a_large_cache(void **state) {
    (void)state;
    const struct backend backend = with_cache((int64_t)1 << 30);
    for (int64_t memory = PROFILE_MEMORY_BYTES_MIN; memory <= PROFILE_MEMORY_BYTES; memory *= 2)
        for (int activity = 0; activity < 2; activity++) {
            const struct rate_machine machine = rate_machine_make(&backend, 1, memory);
            struct rate_work work;
            backend.set_threads(1);
            assert_int_equal(rate_work_open(&machine, activity ? ACTIVITY_STREAMING : ACTIVITY_PRODUCT, 0, &work),
                             STATUS_OK);
            int64_t bytes = work.memory.arena.bytes;
            rate_work_close(&work);
            /* The product takes 6 MiB whatever there is (11 with its packed weight, below AVX-512), the update what is
             * left and a page for each operand. */
            if (bytes > memory / 8 + (64 << 10) && bytes > 12 << 20)
                fail_msg("%lld of %lld", (long long)bytes, (long long)memory);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(copies_fit_the_memory),
                                       cmocka_unit_test(rates_take_no_more_for_a_large_cache)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
