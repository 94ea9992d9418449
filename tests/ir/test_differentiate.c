/* Differentiation builds one accumulator per use, nothing for frozen weights, and sums fused into operators. */
#include <string.h>

#include "ir/differentiate.h"
#include "ir/ops/ops.h"
#include "support/fault_sweep.h"
#include "support/small_graph.h"
#include "support/unit.h"

static int count_nodes(const struct graph *graph, const char *op) {
    int count = 0;
    for (size_t i = 0; i < graph->nodes.count; i++)
        count += strcmp(graph->nodes.items[i]->op->name, op) == 0;
    return count;
}

static int count_accumulators(const struct graph *graph, const char *parameter) {
    int count = 0;
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        count += tensor->kind == TENSOR_GRADIENT && strcmp(tensor->parameter->name, parameter) == 0;
    }
    return count;
}

static const struct small_graph_options base = {
    .layers = 2, .dtype = DTYPE_F32, .micro_batch_sequences = 2, .sequence_length = 3};

static void every_parameter_moves(void **state) {
    (void)state;
    for (int variant = 0; variant < 4; variant++) {
        struct small_graph_options options = base;
        options.tied = variant & 1;
        options.packed_qkv = variant & 2;
        struct graph *graph = small_graph_build(&options);
        int parameters = 0;
        for (size_t i = 0; i < graph->tensors.count; i++) {
            const struct tensor *tensor = graph->tensors.items[i];
            if (tensor->kind != TENSOR_PARAMETER) continue;
            parameters++;
            bool tied = options.tied && strcmp(tensor->name, "embedding") == 0;
            assert_int_equal(count_accumulators(graph, tensor->name), tied ? 2 : 1);
        }
        assert_int_equal(count_nodes(graph, "adamw"), parameters);
        assert_int_equal(count_nodes(graph, "squared_sums"), parameters);
        assert_int_equal(count_nodes(graph, "squared_norm"), parameters);
        assert_int_equal(count_nodes(graph, "gradient_sum"), options.tied);
        assert_int_equal(count_nodes(graph, "head_loss"), 0);
        assert_int_equal(count_nodes(graph, "head_loss_grad"), 1);
        graph_free(graph);
    }
}

/* x = a W1; loss over x: with W1 frozen and nothing trainable behind a, its product has no gradient nodes at all. */
static struct tensor *two_products(struct graph *graph, bool first_trains, bool second_trains) {
    graph_begin_block(graph, "all");
    struct shape ids = shape_make(DTYPE_I32, 2, 1, 4, 1);
    struct tensor *tokens = graph_tensor(graph, TENSOR_INPUT, "tokens", ids);
    struct tensor *targets = graph_tensor(graph, TENSOR_INPUT, "targets", ids);
    struct tensor *table = graph_parameter(graph, "table", 2, 9, 6);
    struct tensor *first = graph_parameter(graph, "first", 2, 6, 6),
                  *second = graph_parameter(graph, "second", 2, 9, 6);
    if (graph_status(graph) != STATUS_OK) return NULL;
    table->trainable = false;
    first->trainable = first_trains;
    second->trainable = second_trains;
    struct tensor *x = ops_embedding(graph, "x", tokens, table);
    x = ops_linear(graph, "product", x, first, NULL, x, (struct linear_attributes){0});
    return ops_head_loss(graph, "loss", x, second, targets, NULL, (struct head_attributes){0});
}

static void frozen_parameters_cost_nothing(void **state) {
    (void)state;
    struct optimizer_options optimizer = {.moments = DTYPE_F32, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8};
    for (int variant = 1; variant < 4; variant++) {
        struct graph *graph = graph_create(DTYPE_F32, 1, 4);
        struct tensor *loss = two_products(graph, variant & 1, variant & 2);
        assert_int_equal(graph_differentiate(graph, loss), STATUS_OK);
        assert_int_equal(ops_add_optimizer(graph, &optimizer), STATUS_OK);
        assert_int_equal(count_accumulators(graph, "table"), 0);
        assert_int_equal(count_accumulators(graph, "first"), variant & 1);
        assert_int_equal(count_accumulators(graph, "second"), variant >> 1);
        assert_int_equal(count_nodes(graph, "linear_dw"), variant & 1);
        assert_int_equal(count_nodes(graph, "linear_dx"), 0); /* only the frozen table lies behind */
        graph_free(graph);
    }
    struct graph *graph = graph_create(DTYPE_F32, 1, 4);
    assert_int_equal(graph_differentiate(graph, two_products(graph, false, false)), STATUS_OK);
    assert_int_equal(ops_add_optimizer(graph, &optimizer), STATUS_BAD_INPUT);
    graph_free(graph);
}

/* The residual stream has two uses a layer; their gradients must meet in an addend, never in nodes of their own. */
static void sums_are_fused(void **state) {
    (void)state;
    struct graph *graph = small_graph_build(&base);
    int addends = 0;
    for (size_t i = 0; i < graph->nodes.count; i++) {
        const struct node *node = graph->nodes.items[i];
        assert_true(node->phase != PHASE_BACKWARD || strcmp(node->op->name, "add") != 0);
        if (strcmp(node->op->name, "rms_norm_grad") == 0) addends += node->in[4] != NULL;
    }
    assert_int_equal(addends, 2 * base.layers);
    graph_free(graph);
}

/* z = x + act(x): x and act(x) share the gradient of z, which is then no addend of the activation's gradient. */
static void a_shared_gradient_is_added(void **state) {
    (void)state;
    struct graph *graph = graph_create(DTYPE_F32, 1, 4);
    graph_begin_block(graph, "all");
    struct shape ids = shape_make(DTYPE_I32, 2, 1, 4, 1);
    struct tensor *tokens = graph_tensor(graph, TENSOR_INPUT, "tokens", ids);
    struct tensor *targets = graph_tensor(graph, TENSOR_INPUT, "targets", ids);
    struct tensor *x = ops_embedding(graph, "x", tokens, graph_parameter(graph, "table", 2, 9, 6));
    struct tensor *z = ops_add(graph, "z", x, ops_activation(graph, "y", x, ACTIVATION_SILU));
    struct tensor *head = graph_parameter(graph, "head", 2, 9, 6);
    struct tensor *loss = ops_head_loss(graph, "loss", z, head, targets, NULL, (struct head_attributes){0});
    assert_int_equal(graph_differentiate(graph, loss), STATUS_OK);
    assert_int_equal(count_nodes(graph, "activation_grad"), 1);
    assert_int_equal(count_nodes(graph, "add"), 2); /* z, and the sum of both gradients of x */
    graph_free(graph);
}

static void nodes_stand_in_order(void **state) {
    (void)state;
    struct graph *graph = small_graph_build(&base);
    for (size_t i = 0; i < graph->nodes.count; i++) {
        const struct node *node = graph->nodes.items[i];
        assert_int_equal(node->id, i);
        for (int k = 0; k < OP_INPUTS_MAX; k++)
            if (node->in[k] && node->in[k]->producer && !node->in[k]->base)
                assert_true(node->in[k]->producer->id < node->id);
    }
    graph_free(graph);
}

static enum status build_once(void *payload) {
    (void)payload;
    struct graph *graph = graph_create(DTYPE_F32, 1, 4);
    if (!graph) return STATUS_FAILED;
    struct optimizer_options optimizer = {.moments = DTYPE_F32, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8};
    struct tensor *loss = two_products(graph, true, true);
    enum status status = loss ? graph_differentiate(graph, loss) : graph_status(graph);
    if (status == STATUS_OK) status = ops_add_optimizer(graph, &optimizer);
    graph_free(graph);
    return status;
}

static void allocations_may_fail(void **state) {
    (void)state;
    assert_true(fault_sweep(FAULT_ALLOCATE, false, build_once, NULL) > 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_parameter_moves), cmocka_unit_test(frozen_parameters_cost_nothing),
        cmocka_unit_test(sums_are_fused),        cmocka_unit_test(a_shared_gradient_is_added),
        cmocka_unit_test(nodes_stand_in_order),  cmocka_unit_test(allocations_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
