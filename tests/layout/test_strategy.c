/* Strategies of operators: the loops of operands, known costs, and dropped strategies. */
#include "plan/layout/strategy.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "ir/ops/ops.h"
#include "support/fault_sweep.h"
#include "support/op_cases.h"
#include "support/unit.h"

static const struct device_rates rates = {1e12, 1e30, 1}; /* so that only FLOPs count */

static struct tensor *operand_of(const struct node *node, int operand) {
    return operand < OP_INPUTS_MAX ? node->in[operand] : node->out[operand - OP_INPUTS_MAX];
}

static void check_loops(const struct node *node, const struct op_loops *loops) {
    for (int operand = 0; operand < OP_OPERANDS_MAX; operand++) {
        const struct tensor *tensor = operand_of(node, operand);
        for (int d = 0; d < TENSOR_RANK_MAX; d++) {
            int index = loops->of[operand][d];
            if (!tensor || index == OP_INDEX_NONE) continue;
            assert_true(index < loops->count && d < tensor->shape.rank);
            if (tensor->shape.dims[d] % loops->indices[index].size != 0)
                fail_msg("%s: operand %d, dimension %d: %lld", node->op->name, operand, d,
                         (long long)tensor->shape.dims[d]);
        }
    }
    for (int i = 0; i < loops->count; i++) { /* each runs over something */
        bool used = false;
        for (int operand = 0; operand < OP_OPERANDS_MAX; operand++)
            for (int d = 0; d < TENSOR_RANK_MAX; d++)
                used = used || (operand_of(node, operand) && loops->of[operand][d] == i);
        assert_true(used);
    }
}

/* What ranks that share tensors have in their own graphs: it is not cut again. */
static bool is_between_ranks(const struct op *op) {
    return op == &op_convert || op == &op_to_parts || op == &op_from_parts || op == &op_cut || op == &op_copy_in ||
           op == &op_select_heads;
}

/* Each depends on all tokens of a micro-batch, and all ranks do it alike. */
static bool is_of_routing(const struct op *op) {
    return op == &op_route || op == &op_expert_load || op == &op_balanced_loss;
}

/* Every other operator with a gradient rule, the table of positions, logits and attention over caches tell their loops.
 */
static void all_forward_operators_describe_their_loops(void **state) {
    (void)state;
    int known = 0;
    for (int i = 0; i < op_case_count; i++) {
        struct graph *graph = op_case_build(&op_cases[i], DTYPE_F32, &op_cases[i].sizes);
        assert_non_null(graph);
        const struct node *node = graph->nodes.items[graph->nodes.count - 1];
        const struct op *op = node->op;
        struct op_loops loops;
        bool forward = op->differentiate || op->differentiate_loss || op == &op_rope_table || op == &op_head_logits ||
                       op == &op_attention_cache;
        assert_int_equal(op->loops != NULL, forward && !is_between_ranks(op) && !is_of_routing(op));
        for (int way = 0; op_loops_of(node, way, &loops); way++)
            check_loops(node, &loops), known++;
        graph_free(graph);
    }
    assert_true(known >= 12);
}

/* y = x W^t, [S,T,K] by [N,K]. */
struct linear_case {
    struct graph *graph;
    const struct node *node;
};
static struct linear_case make_linear(int64_t sequences, int64_t length, int64_t inputs, int64_t outputs) {
    struct linear_case made = {.graph = graph_create(DTYPE_BF16, sequences, length)};
    struct tensor *x =
        graph_tensor(made.graph, TENSOR_ACTIVATION, "x", shape_make(DTYPE_BF16, 3, sequences, length, inputs));
    struct tensor *weight = graph_parameter(made.graph, "weight", 2, outputs, inputs);
    ops_linear(made.graph, "linear", x, weight, NULL, NULL, (struct linear_attributes){0});
    assert_int_equal(graph_status(made.graph), STATUS_OK);
    made.node = made.graph->nodes.items[0];
    return made;
}

static const struct strategy *find(const struct strategies *made, const struct node *node, const char *x,
                                   const char *weight, const char *y) {
    char text[LAYOUT_TEXT];
    for (size_t i = 0; i < made->kept.count; i++) {
        const struct strategy *one = &made->kept.items[i];
        if (strcmp(layout_print(&one->operand[0], 3, text), x) == 0 &&
            strcmp(layout_print(&one->operand[1], node->in[1]->shape.rank, text), weight) == 0 &&
            strcmp(layout_print(&one->operand[OP_INPUTS_MAX], 3, text), y) == 0)
            return one;
    }
    fail_msg("no strategy %s x %s = %s", x, weight, y);
    return NULL;
}

/* Of a graph whose last node it is. */
static enum status make(const struct graph *graph, const struct device_mesh *mesh, struct strategies *out) {
    struct symbolic_profile profile;
    size_t last = graph->nodes.count - 1;
    *out = (struct strategies){0};
    enum status status = symbolic_profile_forward(graph, &profile);
    if (status == STATUS_OK)
        status = strategies_make(graph->nodes.items[last], &profile.nodes[last], mesh, &rates, out);
    symbolic_profile_free(&profile);
    return status;
}

static bool near(double a, double b) { return fabs(a - b) <= 1e-12 * fmax(fabs(a), fabs(b)); }

static void linear_layers_cost_the_same_as_in_megatron(void **state) {
    (void)state;
    struct device_mesh mesh = {.axes = 2, .sizes = {2, 4}, .latency_s = {1, 2}, .s_per_byte = {1e-6, 1e-9}};
    struct linear_case made = make_linear(2, 64, 32, 128);
    struct strategies found;
    assert_int_equal(make(made.graph, &mesh, &found), STATUS_OK);
    double x = 2 * 64 * 32 * 2, y = 2 * 64 * 128 * 2, weight = 128 * 32, flops = 3 * 2.0 * 2 * 64 * 32 * 128;
    const struct strategy *one = find(&found, made.node, "RRR", "S1R", "RRS1"); /* by columns */
    assert_true(one->forward_s == 0 && near(one->backward_s, device_mesh_all_reduce_s(&mesh, 2, x)));
    assert_true(near(one->compute_s, flops / 4 / rates.flops_per_s));
    assert_true(one->saved_bytes == 0 && one->parameter_bytes == 128 * 32 * 2 / 4);
    one = find(&found, made.node, "RRS1", "RS1", "RRR"); /* by rows */
    assert_true(one->backward_s == 0 && near(one->forward_s, device_mesh_all_reduce_s(&mesh, 2, y)));
    one = find(&found, made.node, "RRS1", "RS1", "RS1R"); /* by rows, positions cut afterwards */
    assert_true(near(one->forward_s, device_mesh_reduce_scatter_s(&mesh, 2, y)));
    assert_true(near(one->backward_s, device_mesh_all_gather_s(&mesh, 2, y)));
    one = find(&found, made.node, "RS1R", "S1R", "RRS1"); /* by columns, positions cut before */
    assert_true(near(one->forward_s, device_mesh_all_gather_s(&mesh, 2, x)));
    assert_true(near(one->backward_s, device_mesh_reduce_scatter_s(&mesh, 2, x)));
    one = find(&found, made.node, "S0RR", "RR", "S0RR"); /* by sequences: the weight's gradient, in fp32 */
    assert_true(one->forward_s == 0 && near(one->backward_s, device_mesh_all_reduce_s(&mesh, 1, weight * 4)));
    one = find(&found, made.node, "S0RR", "S1R", "S0RS1"); /* both */
    assert_true(near(one->backward_s,
                     device_mesh_all_reduce_s(&mesh, 1, weight * 4 / 4) + device_mesh_all_reduce_s(&mesh, 2, x / 2)));
    one = find(&found, made.node, "RRR", "RR", "RRR");
    assert_true(one == &found.kept.items[0] && one->forward_s == 0 && one->backward_s == 0);
    strategies_free(&found);
    graph_free(made.graph);
}

/* By rows: bias and residual are added once, after the sum. */
static void what_is_added_after_a_sum_is_not_summed(void **state) {
    (void)state;
    struct device_mesh mesh = {.axes = 1, .sizes = {4}, .latency_s = {1}, .s_per_byte = {1}};
    struct graph *graph = graph_create(DTYPE_BF16, 1, 8);
    struct tensor *x = graph_tensor(graph, TENSOR_ACTIVATION, "x", shape_make(DTYPE_BF16, 3, 1, 8, 16));
    struct tensor *residual = graph_tensor(graph, TENSOR_ACTIVATION, "r", shape_make(DTYPE_BF16, 3, 1, 8, 4));
    ops_linear(graph, "linear", x, graph_parameter(graph, "w", 2, 4, 16), graph_parameter(graph, "b", 1, 4, 1),
               residual, (struct linear_attributes){0});
    struct strategies found;
    const struct node *node = graph->nodes.items[0];
    char text[LAYOUT_TEXT];
    assert_int_equal(make(graph, &mesh, &found), STATUS_OK);
    const struct strategy *one = find(&found, node, "RRS0", "RS0", "RRR");
    assert_true(one->backward_s == 0 && near(one->forward_s, device_mesh_all_reduce_s(&mesh, 1, 64)));
    one = find(&found, node, "RRS0", "RS0", "RS0R");
    assert_string_equal(layout_print(&one->operand[3], 3, text), "RS0R");
    assert_true(near(one->forward_s, device_mesh_reduce_scatter_s(&mesh, 1, 64)));
    assert_true(near(one->backward_s, device_mesh_all_gather_s(&mesh, 1, 64)));
    strategies_free(&found);
    graph_free(graph);
}

/* Frozen weights have no gradient to compute or to sum; what a later backward reads is saved by its maker. */
static void work_is_that_of_the_gradients_that_are_wanted(void **state) {
    (void)state;
    struct device_mesh mesh = {.axes = 1, .sizes = {2}, .latency_s = {1}, .s_per_byte = {1}};
    for (int trains = 0; trains < 2; trains++) {
        struct linear_case made = make_linear(2, 64, 32, 128);
        struct strategies found;
        made.graph->tensors.items[1]->trainable = trains;
        assert_int_equal(make(made.graph, &mesh, &found), STATUS_OK);
        const struct strategy *one = find(&found, made.node, "S0RR", "RR", "S0RR");
        assert_true(near(one->compute_s, (2 + trains) * 2.0 * 2 * 64 * 32 * 128 / 2 / rates.flops_per_s));
        assert_true(trains ? one->backward_s > 0 : one->backward_s == 0);
        strategies_free(&found);
        ops_activation(made.graph, "activation", made.node->out[0], ACTIVATION_SILU);
        struct symbolic_profile profile;
        assert_int_equal(symbolic_profile_forward(made.graph, &profile), STATUS_OK);
        assert_int_equal(profile.nodes[0].saved_outputs, 1);
        symbolic_profile_free(&profile);
        graph_free(made.graph);
    }
}

static void what_does_not_divide_is_dropped_with_its_reason(void **state) {
    (void)state;
    struct device_mesh mesh = {.axes = 1, .sizes = {8}, .latency_s = {1}};
    struct graph *graph = graph_create(DTYPE_BF16, 1, 7);
    struct tensor *q = graph_tensor(graph, TENSOR_ACTIVATION, "q", shape_make(DTYPE_BF16, 3, 1, 7, 12 * 8));
    ops_attention(graph, "attention", q, q, q, NULL, NULL,
                  (struct attention_attributes){.heads = 12, .kv_heads = 12, .head_dim = 8, .scale = 1});
    assert_int_equal(graph_status(graph), STATUS_OK);
    struct strategies found;
    const struct node *node = graph->nodes.items[0];
    char text[STRATEGY_TEXT];
    assert_int_equal(make(graph, &mesh, &found), STATUS_OK);
    assert_int_equal(found.kept.count, 1);
    assert_int_equal(found.dropped.count, 3);
    assert_string_equal(strategy_print_dropped(node, &found.dropped.items[1], text),
                        "12 heads do not divide by the 8 devices of axis 0");
    strategies_free(&found);
    graph_free(graph);
}

/* Twelve query heads of three groups on four devices: not by groups, but with all keys on each. */
static void grouped_heads_are_cut_with_all_keys(void **state) {
    (void)state;
    struct device_mesh mesh = {.axes = 1, .sizes = {4}, .latency_s = {1}, .s_per_byte = {1}};
    struct graph *graph = graph_create(DTYPE_BF16, 1, 7);
    struct tensor *q = graph_tensor(graph, TENSOR_ACTIVATION, "q", shape_make(DTYPE_BF16, 3, 1, 7, 12 * 8));
    struct tensor *k = graph_tensor(graph, TENSOR_ACTIVATION, "k", shape_make(DTYPE_BF16, 3, 1, 7, 3 * 8));
    ops_attention(graph, "attention", q, k, k, NULL, NULL,
                  (struct attention_attributes){.heads = 12, .kv_heads = 3, .head_dim = 8, .scale = 1});
    struct strategies found;
    assert_int_equal(make(graph, &mesh, &found), STATUS_OK);
    assert_int_equal(found.kept.count, 2);
    const struct strategy *one = &found.kept.items[1];
    assert_int_equal(one->operand[0].dimension[0], 2);
    assert_int_equal(one->operand[1].dimension[0], LAYOUT_REPLICATED);
    assert_true(near(one->backward_s, 2 * device_mesh_all_reduce_s(&mesh, 1, 7 * 24 * 2)));
    strategies_free(&found);
    graph_free(graph);
}

/* Query-key pairs of a part's queries, counted one by one. */
static double count_pairs(int64_t length, int64_t window, int64_t parts, int64_t part, bool zigzag) {
    double pairs = 0;
    int64_t run = length / (zigzag ? 2 * parts : parts);
    for (int64_t t = 0; t < length; t++) {
        int64_t at = t / run, mirror = 2 * parts - 1 - at;
        bool mine = zigzag ? at == part || mirror == part : at == part;
        if (mine) pairs += (double)(window > 0 && window < t + 1 ? window : t + 1);
    }
    return pairs;
}

static struct graph *make_attention(int64_t length, int64_t window) {
    struct graph *graph = graph_create(DTYPE_BF16, 1, length);
    struct tensor *q = graph_tensor(graph, TENSOR_ACTIVATION, "q", shape_make(DTYPE_BF16, 3, 1, length, 6 * 8));
    struct tensor *k = graph_tensor(graph, TENSOR_ACTIVATION, "k", shape_make(DTYPE_BF16, 3, 1, length, 3 * 8));
    struct tensor *v = graph_tensor(graph, TENSOR_ACTIVATION, "v", shape_make(DTYPE_BF16, 3, 1, length, 3 * 8));
    ops_attention(
        graph, "attention", q, k, v, NULL, NULL,
        (struct attention_attributes){.heads = 6, .kv_heads = 3, .head_dim = 8, .scale = 1, .window = window});
    assert_int_equal(graph_status(graph), STATUS_OK);
    return graph;
}

/* The index that axis 0 took. */
static char letter_of(const struct node *node, const struct strategy *one) {
    struct op_loops loops;
    return op_loops_of(node, one->way, &loops) && one->index[0] >= 0 ? loops.indices[one->index[0]].letter : '.';
}

static const struct strategy *find_letter(const struct strategies *made, const struct node *node, char letter,
                                          bool passes) {
    for (size_t i = 0; i < made->kept.count; i++)
        if (letter_of(node, &made->kept.items[i]) == letter && made->kept.items[i].passes[0] == passes)
            return &made->kept.items[i];
    fail_msg("attention is not cut by '%c'", letter);
    return NULL;
}

/* The busiest part's pairs are the work: in zigzag as good as even, in runs the last one's. */
static void zigzag_shares_balance_a_causal_mask(void **state) {
    (void)state;
    static const struct device_rates work = {1, 1e30, 1};
    for (int64_t parts = 2; parts <= 8; parts *= 2)
        for (int64_t window = 0; window <= 40; window += 20) {
            const int64_t length = 64;
            struct device_mesh mesh = {.axes = 1, .sizes = {parts}, .latency_s = {0}, .s_per_byte = {0}};
            struct graph *graph = make_attention(length, window);
            const struct node *node = graph->nodes.items[0];
            struct symbolic_profile profile;
            struct strategies found;
            double largest[2] = {0, 0}, all = 0;
            for (int64_t part = 0; part < parts; part++) {
                all += count_pairs(length, window, parts, part, true);
                for (int zigzag = 0; zigzag < 2; zigzag++)
                    largest[zigzag] = fmax(largest[zigzag], count_pairs(length, window, parts, part, zigzag));
            }
            assert_int_equal(symbolic_profile_forward(graph, &profile), STATUS_OK);
            assert_int_equal(strategies_make(node, &profile.nodes[0], &mesh, &work, &found), STATUS_OK);
            double whole = profile.nodes[0].forward.flops + profile.nodes[0].backward.flops;
            double zigzag = find_letter(&found, node, 'z', false)->compute_s;
            double runs = find_letter(&found, node, 't', false)->compute_s;
            if (fabs(zigzag - whole * largest[1] / all) > 1e-9 * whole ||
                fabs(runs - whole * largest[0] / all) > 1e-9 * whole)
                fail_msg("%lld parts, a window of %lld: %g and %g of %g", (long long)parts, (long long)window, zigzag,
                         runs, whole);
            if (window == 0) assert_true(near(largest[1], all / (double)parts) && runs > 1.4 * zigzag);
            assert_true(zigzag <= runs * (1 + 1e-12));
            strategies_free(&found);
            symbolic_profile_free(&profile);
            graph_free(graph);
        }
}

/* Gathered: all-gathers and reduce-scatters, and space for all. Passed round: what the work does not cover. */
static void keys_and_values_are_gathered_or_passed_round(void **state) {
    (void)state;
    struct device_mesh mesh = {.axes = 1, .sizes = {4}, .latency_s = {3}, .s_per_byte = {1}};
    struct graph *graph = make_attention(64, 0);
    const struct node *node = graph->nodes.items[0];
    struct symbolic_profile profile;
    struct strategies found;
    const double kv = 2 * 64 * 24 * 2; /* bytes of both */
    assert_int_equal(symbolic_profile_forward(graph, &profile), STATUS_OK);
    assert_int_equal(strategies_make(node, &profile.nodes[0], &mesh, &rates, &found), STATUS_OK);
    const struct strategy *gathered = find_letter(&found, node, 'z', false);
    assert_int_equal(gathered->operand[1].dimension[0], 1);
    assert_true(near(gathered->forward_s, 2 * device_mesh_all_gather_s(&mesh, 1, kv / 2)));
    assert_true(near(gathered->backward_s, 2 * gathered->forward_s));
    assert_int_equal(gathered->gathered_bytes, (int64_t)(kv * 3 / 4));
    const struct strategy *passed = find_letter(&found, node, 'z', true); /* the work takes next to nothing */
    assert_true(fabs(passed->forward_s - 3 * (3 + kv / 4)) < 1e-3);
    assert_true(fabs(passed->backward_s - 3 * (3 + 3 * kv / 4)) < 1e-3); /* with sums in fp32 */
    strategies_free(&found);
    const struct device_rates slow = {1, 1e30, 1}; /* the work covers all */
    assert_int_equal(strategies_make(node, &profile.nodes[0], &mesh, &slow, &found), STATUS_OK);
    passed = find_letter(&found, node, 'z', true);
    assert_true(passed->forward_s == 0 && passed->backward_s == 0);
    strategies_free(&found);
    symbolic_profile_free(&profile);
    graph_free(graph);
}

/* By rows of the vocabulary the logits are made twice: statistics first, then gradients. */
static void a_cut_vocabulary_costs_a_second_product(void **state) {
    (void)state;
    struct device_mesh mesh = {.axes = 1, .sizes = {4}, .latency_s = {1}, .s_per_byte = {1}};
    struct graph *graph = graph_create(DTYPE_BF16, 4, 8);
    struct shape ids = shape_make(DTYPE_I32, 2, 4, 8, 1);
    struct tensor *tokens = graph_tensor(graph, TENSOR_INPUT, "tokens", ids);
    struct tensor *x = ops_embedding(graph, "x", tokens, graph_parameter(graph, "table", 2, 64, 16));
    ops_head_loss(graph, "loss", x, graph_parameter(graph, "head", 2, 64, 16),
                  graph_tensor(graph, TENSOR_INPUT, "targets", ids), NULL, (struct head_attributes){0});
    struct strategies found;
    assert_int_equal(make(graph, &mesh, &found), STATUS_OK);
    const struct node *node = graph->nodes.items[1];
    double product = 2.0 * 4 * 8 * 64 * 16;
    assert_true(near(find_letter(&found, node, 's', false)->compute_s, 3 * product / 4 / rates.flops_per_s));
    assert_true(near(find_letter(&found, node, 'v', false)->compute_s, 4 * product / 4 / rates.flops_per_s));
    assert_true(near(find_letter(&found, node, 'v', false)->forward_s,
                     device_mesh_all_reduce_s(&mesh, 1, 3 * 4 * 4 * 8) + device_mesh_all_reduce_s(&mesh, 1, 8)));
    strategies_free(&found);
    graph_free(graph);
}

/* Some axis took an index whose parts are filled up. */
static bool is_padded(const struct node *node, const struct strategy *strategy) {
    struct op_loops loops;
    bool padded = false;
    for (int axis = 0; op_loops_of(node, strategy->way, &loops) && axis < DEVICE_MESH_AXES_MAX; axis++)
        padded |= strategy->index[axis] != OP_INDEX_NONE && loops.indices[strategy->index[axis]].padded;
    return padded;
}

/* One device an axis, sizes of one, a prime vocabulary: each layout fits its tensor, or its parts are filled up. */
static void odd_sizes_have_strategies(void **state) {
    (void)state;
    static const int64_t sizes[][2] = {{1, 1}, {2, 1}, {1, 3}, {7, 2}};
    for (int i = 0; i < op_case_count; i++) {
        struct graph *graph = op_case_build(&op_cases[i], DTYPE_F32, &op_cases[i].sizes);
        const struct node *node = graph->nodes.items[graph->nodes.count - 1];
        for (size_t m = 0; m < sizeof sizes / sizeof *sizes; m++) {
            struct device_mesh mesh = {.axes = 2, .sizes = {sizes[m][0], sizes[m][1]}, .latency_s = {1, 1}};
            struct strategies found;
            assert_int_equal(make(graph, &mesh, &found), STATUS_OK);
            assert_true(found.kept.count >= 1);
            for (size_t k = 0; k < found.kept.count; k++)
                for (int operand = 0; operand < OP_OPERANDS_MAX; operand++) {
                    struct tensor *tensor = operand_of(node, operand);
                    struct layout_shape shape = tensor ? strategy_shape(tensor) : (struct layout_shape){0};
                    assert_true(!tensor || is_padded(node, &found.kept.items[k]) ||
                                layout_fits(&found.kept.items[k].operand[operand], &mesh, &shape));
                }
            strategies_free(&found);
        }
        graph_free(graph);
    }
}

static enum status make_and_free(void *payload) {
    struct device_mesh mesh = {.axes = 2, .sizes = {2, 3}};
    struct strategies found;
    enum status status = make(payload, &mesh, &found);
    strategies_free(&found);
    return status;
}

static void faults_are_reported(void **state) {
    (void)state;
    struct linear_case made = make_linear(1, 4, 8, 16);
    assert_true(fault_sweep(FAULT_ALLOCATE, false, make_and_free, made.graph) >= 2);
    graph_free(made.graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_forward_operators_describe_their_loops),
        cmocka_unit_test(linear_layers_cost_the_same_as_in_megatron),
        cmocka_unit_test(what_is_added_after_a_sum_is_not_summed),
        cmocka_unit_test(work_is_that_of_the_gradients_that_are_wanted),
        cmocka_unit_test(what_does_not_divide_is_dropped_with_its_reason),
        cmocka_unit_test(grouped_heads_are_cut_with_all_keys),
        cmocka_unit_test(zigzag_shares_balance_a_causal_mask),
        cmocka_unit_test(keys_and_values_are_gathered_or_passed_round),
        cmocka_unit_test(a_cut_vocabulary_costs_a_second_product),
        cmocka_unit_test(odd_sizes_have_strategies),
        cmocka_unit_test(faults_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
