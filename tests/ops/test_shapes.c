/* Operators refuse wrong shapes and name the input. Their FLOPs follow the formulas. */
#include <string.h>

#include "ir/ops/ops.h"
#include "support/op_table.h"
#include "support/unit.h"

static struct tensor *activation(struct graph *graph, int64_t columns) {
    return graph_tensor(graph, TENSOR_ACTIVATION, "x", shape_make(graph->dtype, 3, 2, 5, columns));
}

static void expect_refusal(struct graph *graph, struct tensor *result, const char *part) {
    assert_null(result);
    assert_int_equal(graph_status(graph), STATUS_BAD_INPUT);
    if (!strstr(status_message(), part)) fail_msg("expected '%s' in '%s'", part, status_message());
    graph_free(graph);
}

static struct tensor *cache_rows(struct graph *graph) {
    return graph_tensor(graph, TENSOR_INPUT, "rows", shape_make(DTYPE_I32, 2, 2, 5, 1));
}

static void wrong_shapes_are_refused(void **state) {
    (void)state;
    struct graph *graph = graph_create(DTYPE_F32, 2, 5);
    struct tensor *w = graph_parameter(graph, "w", 2, 7, 6);
    expect_refusal(graph,
                   ops_linear(graph, "product", activation(graph, 8), w, NULL, NULL, (struct linear_attributes){0}),
                   "product (linear): input 1 (w)");
    graph = graph_create(DTYPE_F32, 2, 5);
    expect_refusal(graph,
                   ops_rms_norm(graph, "norm", activation(graph, 8), graph_parameter(graph, "w", 1, 7, 1),
                                (struct norm_attributes){.epsilon = 1e-5}),
                   "input 1 (w) is fp32 [7], expected fp32 [8] or a divisor");
    graph = graph_create(DTYPE_F32, 2, 5);
    expect_refusal(graph,
                   ops_layer_norm(graph, "norm", activation(graph, 8), graph_parameter(graph, "w", 1, 4, 1),
                                  graph_parameter(graph, "b", 1, 8, 1), 1e-5),
                   "input 2 (b) is fp32 [8], expected fp32 [4]");
    graph = graph_create(DTYPE_F32, 2, 5);
    struct tensor *tokens = graph_tensor(graph, TENSOR_INPUT, "tokens", shape_make(DTYPE_I32, 2, 2, 5, 1));
    expect_refusal(graph, ops_embedding_from(graph, "embedding", tokens, graph_parameter(graph, "w", 2, 7, 6), 7),
                   "no row 7");
    graph = graph_create(DTYPE_F32, 2, 5);
    expect_refusal(graph, ops_add(graph, "sum", activation(graph, 8), activation(graph, 9)), "input 1");
    graph = graph_create(DTYPE_F32, 2, 5);
    struct tensor *q = activation(graph, 18), *k = activation(graph, 8);
    struct attention_attributes odd = {.heads = 9, .kv_heads = 4, .head_dim = 2};
    expect_refusal(graph, ops_attention(graph, "attention", q, k, k, NULL, NULL, odd), "no multiple");
    graph = graph_create(DTYPE_F32, 2, 5);
    struct tensor *positions = graph_tensor(graph, TENSOR_INPUT, "positions", shape_make(DTYPE_I32, 2, 2, 5, 1));
    expect_refusal(graph, ops_rope_table(graph, "rope", positions, (struct rope_table_attributes){.head_dim = 5}),
                   "even");
    graph = graph_create(DTYPE_F32, 2, 5);
    struct attention_attributes even = {.heads = 4, .kv_heads = 4, .head_dim = 2};
    struct tensor *x = activation(graph, 8);
    expect_refusal(graph,
                   ops_attention_cache(graph, "attention", x, x, x, cache_rows(graph), NULL,
                                       (struct attention_cache_attributes){even, 3, 4}),
                   "5 tokens do not fit into a cache");
    graph = graph_create(DTYPE_F32, 2, 5);
    q = activation(graph, 18), k = activation(graph, 8);
    expect_refusal(graph,
                   ops_attention_cache(graph, "attention", q, k, k, cache_rows(graph), NULL,
                                       (struct attention_cache_attributes){odd, 3, 9}),
                   "no multiple");
}

/* Of three ranks: [2, 5, 8] has no three equal parts along any dimension, and parameters are never the data of a
 * collective. */
static void parts_that_do_not_divide_are_refused(void **state) {
    (void)state;
    const struct group_part part = {.parts = 3, .position = 1};
    for (int dimension = 0; dimension < 3; dimension++) {
        struct graph *graph = graph_create(DTYPE_F32, 2, 5);
        expect_refusal(graph, ops_cut(graph, "cut", activation(graph, 8), part, dimension), "no 3 equal parts");
        graph = graph_create(DTYPE_BF16, 2, 5);
        expect_refusal(graph, ops_scatter(graph, "scatter", activation(graph, 8), part, dimension), "no 3 equal parts");
        graph = graph_create(DTYPE_F32, 2, 5);
        expect_refusal(graph, ops_all_to_all(graph, "all_to_all", activation(graph, 8), part, 0, dimension),
                       "no 3 equal parts");
    }
    struct graph *graph = graph_create(DTYPE_F32, 2, 5);
    expect_refusal(graph, ops_copy_in(graph, "copy", graph_parameter(graph, "w", 2, 6, 8), part), "no activation");
}

/* After the first error nothing more is built and the message stays. */
static void errors_stick(void **state) {
    (void)state;
    struct graph *graph = graph_create(DTYPE_F32, 2, 5);
    assert_null(ops_add(graph, "sum", activation(graph, 8), activation(graph, 9)));
    size_t tensors = graph->tensors.count;
    assert_null(ops_activation(graph, "next", NULL, ACTIVATION_RELU));
    assert_null(graph_tensor(graph, TENSOR_INPUT, "more", shape_make(DTYPE_I32, 1, 1, 1, 1)));
    assert_int_equal(graph->tensors.count, tensors);
    assert_int_equal(graph_status(graph), STATUS_BAD_INPUT);
    graph_free(graph);
}

static void costs_are_those_of_the_definition(void **state) {
    (void)state;
    struct graph *graph = graph_create(DTYPE_BF16, 2, 5);
    struct tensor *x = activation(graph, 8), *w = graph_parameter(graph, "w", 2, 7, 8);
    struct tensor *y = ops_linear(graph, "product", x, w, NULL, NULL, (struct linear_attributes){0});
    struct op_cost cost;
    op_cost(y->producer, &cost);
    assert_true(cost.flops == 2.0 * 10 * 7 * 8 && cost.bytes == 2.0 * (10 * 8 + 7 * 8 + 10 * 7));
    struct attention_attributes heads = {.heads = 4, .kv_heads = 4, .head_dim = 2};
    struct tensor *o = ops_attention(graph, "attention", x, x, x, NULL, NULL, heads);
    op_cost(o->producer, &cost);
    assert_true(cost.flops == 4.0 * 2 * 4 * 15 * 2); /* 15 pairs of 5 positions under the causal mask */
    heads.window = 2;
    o = ops_attention(graph, "windowed", x, x, x, NULL, NULL, heads);
    op_cost(o->producer, &cost);
    assert_true(cost.flops == 4.0 * 2 * 4 * 9 * 2); /* 1 + 2 + 2 + 2 + 2 */
    o = ops_attention_cache(graph, "cached", x, x, x, cache_rows(graph), NULL,
                            (struct attention_cache_attributes){heads, 3, 7});
    op_cost(o->producer, &cost);
    assert_true(cost.flops == 4.0 * 2 * 5 * 8 * 2); /* a window of full caches for each token */
    graph_free(graph);
}

static void table_is_complete(void **state) {
    (void)state;
    for (int i = 0; i < op_table_count; i++) {
        const struct op *op = op_table[i];
        assert_non_null(op->infer);
        assert_true(op->inputs <= OP_INPUTS_MAX && op->outputs <= OP_OUTPUTS_MAX && op->in_place_input <= op->inputs);
        for (int k = 0; k < i; k++)
            assert_string_not_equal(op->name, op_table[k]->name);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_shapes_are_refused),
        cmocka_unit_test(parts_that_do_not_divide_are_refused),
        cmocka_unit_test(errors_stick),
        cmocka_unit_test(costs_are_those_of_the_definition),
        cmocka_unit_test(table_is_complete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
