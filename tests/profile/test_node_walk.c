/* Times nodes one after the other, on shared tensors and within the available memory. Does not check the times. */
#include "profile/graph_walk.h"

#include "ir/graph.h"
#include "ir/ops/ops.h"
#include "profile/profile.h"
#include "support/unit.h"

enum { NODES = 3, ROWS = 8, WIDTH = 16, TABLE = 32 };

/* Rows of a table, a product of them, and the sum of both, which may take over the product's bytes. */
static struct graph *build(struct tensor **rows, struct tensor **product, struct tensor **sum) {
    struct graph *graph = graph_create(DTYPE_F32, 1, ROWS);
    graph_begin_block(graph, "layer");
    struct tensor *ids = graph_tensor(graph, TENSOR_INPUT, "ids", shape_make(DTYPE_I32, 2, 1, ROWS, 0));
    *rows = ops_embedding(graph, "rows", ids, graph_parameter(graph, "table", 2, TABLE, WIDTH));
    *product = ops_linear(graph, "product", *rows, graph_parameter(graph, "weight", 2, WIDTH, WIDTH), NULL, NULL,
                          (struct linear_attributes){.weight_is_kn = false});
    *sum = ops_add(graph, "sum", *product, *rows);
    assert_int_equal(graph_status(graph), STATUS_OK);
    assert_int_equal(graph->nodes.count, NODES);
    return graph;
}

static void find_calls(const struct graph *graph, struct walk_call calls[NODES]) {
    for (int i = 0; i < NODES; i++) {
        calls[i] = (struct walk_call){.count = 0};
        operands_find(graph, graph->nodes.items[i], &calls[i].operands);
    }
}

static const float *operand(const struct node_walk *walk, int call, int index) {
    const struct walk_call *of = &walk->calls[call];
    return (const float *)(const void *)(walk->base + of->offset[of->operands.storage[index]]);
}

/* What a node wrote the next ones read: the sum is that of the rows and of their product. */
static void nodes_read_what_others_wrote(void **state) {
    struct tensor *rows, *product, *sum;
    struct walk_call calls[NODES];
    struct bench_memory memory = {.max_bytes = 0};
    struct node_walk walk;
    int64_t places[16];
    (void)state;
    struct graph *graph = build(&rows, &product, &sum);
    assert_true(graph->tensors.count <= sizeof places / sizeof *places);
    find_calls(graph, calls);
    calls[2].operands.storage[OP_INPUTS_MAX] = calls[2].operands.storage[1]; /* in the place of the rows instead */
    int64_t bytes = node_walk_lay_out(graph, calls, NODES, places);
    assert_int_equal(places[sum->id], places[rows->id]);
    backend_cpu.set_threads(1);
    assert_int_equal(node_walk_open(&backend_cpu, calls, NODES, bytes, 0, &memory, &walk), STATUS_OK);
    for (int i = 0; i < NODES; i++)
        calls[i].evicts = UINT32_MAX; /* values stay */
    for (int pass = 0; pass < 2; pass++) {
        assert_int_equal(node_walk_run(&walk), STATUS_OK);
        const float *y = operand(&walk, 1, OP_INPUTS_MAX), *z = operand(&walk, 2, OP_INPUTS_MAX);
        const float *table = operand(&walk, 0, 1);
        const int32_t *ids = (const int32_t *)(const void *)operand(&walk, 0, 0);
        double moved = 0;
        for (int i = 0; i < ROWS * WIDTH; i++) {
            float x = table[ids[i / WIDTH] * WIDTH + i % WIDTH];
            assert_true(z[i] == y[i] + x);
            moved += y[i] != 0;
        }
        assert_true(moved > ROWS);
    }
    node_walk_close(&walk);
    bench_memory_free(&memory);
    graph_free(graph);
}

/* Ids that are legal for one operator may be out of another's table. */
static void integers_are_each_callers_own(void **state) {
    int64_t places[16];
    struct walk_call calls[2];
    (void)state;
    struct graph *graph = graph_create(DTYPE_F32, 1, ROWS);
    graph_begin_block(graph, "layer");
    struct tensor *ids = graph_tensor(graph, TENSOR_INPUT, "ids", shape_make(DTYPE_I32, 2, 1, ROWS, 0));
    ops_embedding(graph, "many", ids, graph_parameter(graph, "large", 2, TABLE, WIDTH));
    ops_embedding(graph, "few", ids, graph_parameter(graph, "small", 2, 2, WIDTH));
    assert_int_equal(graph_status(graph), STATUS_OK);
    for (int i = 0; i < 2; i++) {
        calls[i] = (struct walk_call){.count = 0};
        operands_find(graph, graph->nodes.items[i], &calls[i].operands);
    }
    node_walk_lay_out(graph, calls, 2, places);
    assert_int_not_equal(calls[0].offset[0], calls[1].offset[0]);
    assert_true(calls[0].fills & 1 && calls[1].fills & 1);
    graph_free(graph);
}

static void all_nodes_are_timed(void **state) {
    struct tensor *rows, *product, *sum;
    struct walk_call calls[NODES];
    struct bench_memory memory = {.max_bytes = 0};
    struct node_walk walk;
    int64_t places[16];
    (void)state;
    struct graph *graph = build(&rows, &product, &sum);
    find_calls(graph, calls);
    int64_t bytes = node_walk_lay_out(graph, calls, NODES, places), flush_bytes = 1 << 16;
    backend_cpu.set_threads(1);
    assert_int_equal(node_walk_open(&backend_cpu, calls, NODES, bytes, flush_bytes, &memory, &walk), STATUS_OK);
    assert_true(memory.arena.bytes >= bytes + flush_bytes);
    for (int enough = 0; enough < 2; enough++) {
        assert_int_equal(node_walk_measure(&walk, enough ? 60 : 0), STATUS_OK);
        for (int i = 0; i < NODES; i++) {
            assert_in_range(calls[i].count, WALK_PASSES_MIN, enough ? WALK_PASSES_MAX : WALK_PASSES_MIN);
            assert_true(!enough || calls[i].settled || calls[i].count == WALK_PASSES_MAX);
            for (int n = 0; n < calls[i].count; n++)
                assert_true(calls[i].samples[n].seconds > 0);
        }
    }
    node_walk_close(&walk);
    bench_memory_free(&memory);
    graph_free(graph);
}

static int64_t memory_of_points(struct graph *graph, int64_t memory_bytes, int32_t *measured) {
    struct points points = {.graph = graph};
    struct profile_options options = {.threads = 1};
    struct profile_cache cache;
    struct bench_memory memory = {.max_bytes = memory_bytes};
    assert_int_equal(profile_cache_open(&backend_cpu, &options, memory_bytes, &cache), STATUS_OK);
    for (size_t i = 0; i < graph->nodes.count; i++) {
        struct operands operands;
        struct point_set set;
        operands_find(graph, graph->nodes.items[i], &operands);
        assert_int_equal(points_add(&points, &operands, &set), STATUS_OK);
    }
    cache.memory_bytes = memory_bytes;
    const struct walk_options walk = {&backend_cpu, &cache, &memory, 0, 0};
    *measured = 0;
    assert_int_equal(walk_points_measure(&points, &walk, measured), STATUS_OK);
    for (size_t i = 0; i < points.list.count; i++)
        assert_true(points.list.items[i].measurement.seconds > 0);
    int64_t bytes = memory.arena.bytes;
    assert_int_equal(*measured, points.list.count);
    bench_memory_free(&memory);
    profile_cache_close(&cache);
    points_free(&points);
    return bytes;
}

/* A chain of products, each of other sizes; where there is less memory each walk is shorter. */
static void walks_fit_the_memory(void **state) {
    enum { PRODUCTS = 6, FIRST = 128, STEP = 16 };
    int32_t measured;
    (void)state;
    struct graph *graph = graph_create(DTYPE_F32, 1, FIRST);
    graph_begin_block(graph, "layer");
    struct tensor *x = graph_tensor(graph, TENSOR_INPUT, "x", shape_make(DTYPE_F32, 3, 1, FIRST, FIRST));
    for (int i = 1; i <= PRODUCTS; i++) {
        char name[16];
        snprintf(name, sizeof name, "w%d", i);
        x = ops_linear(graph, name, x, graph_parameter(graph, name, 2, FIRST + i * STEP, FIRST + (i - 1) * STEP), NULL,
                       NULL, (struct linear_attributes){.weight_is_kn = false});
    }
    assert_int_equal(graph_status(graph), STATUS_OK);
    backend_cpu.set_threads(1);
    int64_t all = memory_of_points(graph, 64 << 20, &measured);
    assert_int_equal(measured, PRODUCTS);
    int64_t less = memory_of_points(graph, all / 2, &measured);
    assert_int_equal(measured, PRODUCTS);
    if (less > all * 3 / 4) fail_msg("%lld of %lld bytes", (long long)less, (long long)all);
    graph_free(graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_read_what_others_wrote),
        cmocka_unit_test(integers_are_each_callers_own),
        cmocka_unit_test(all_nodes_are_timed),
        cmocka_unit_test(walks_fit_the_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
