/* Large operators are measured on a part, which is legal and runs, and from which the cost of the whole follows. */
#include <math.h>
#include <string.h>

#include "ir/differentiate.h"
#include "model/model.h"
#include "profile/points.h"
#include "profile/profile.h"
#include "support/unit.h"

enum { THREADS = 2 };
static const double LARGE_FLOPS = 40e9;

static struct graph *training_graph(struct model *model, enum dtype dtype, int64_t sequences, int64_t length) {
    static const struct optimizer_options optimizer = {
        .moments = DTYPE_F32, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1, .clip_norm = 1};
    struct graph *graph;
    struct tensor *loss;
    enum status status = model_build_graph(model, MODEL_LOSS_SEGMENTED, dtype, sequences, length, &graph, &loss);
    if (status == STATUS_OK) status = graph_differentiate(graph, loss);
    if (status == STATUS_OK) status = ops_add_optimizer(graph, &optimizer);
    if (status != STATUS_OK) fail_msg("%s", status_message());
    return graph;
}

static struct graph *preset_graph(const struct model_preset *preset, int64_t length) {
    struct model *model;
    assert_int_equal(model_open_preset(preset, &model), STATUS_OK);
    struct graph *graph = training_graph(model, DTYPE_BF16, 1, length);
    model_free(model);
    return graph;
}

static double flops_of(const struct node *node) {
    struct op_cost cost;
    op_cost(node, &cost);
    return cost.flops;
}

/* What the operator would make of the cut inputs is what the cut outputs are. */
static void expect_legal(const struct graph *graph, const struct node *node, double large_flops) {
    struct operands operands;
    struct part_node cut;
    struct parts parts = parts_of(node, large_flops);
    operands_find(graph, node, &operands);
    for (int i = 0; i < parts.count; i++) {
        struct shape shapes[OP_OUTPUTS_MAX] = {0};
        part_node_make(&operands, &parts.part[i], &cut);
        if (node->op->infer(&cut.node, shapes) != STATUS_OK) fail_msg("%s: %s", node->name, status_message());
        for (int k = 0; k < OP_OUTPUTS_MAX; k++)
            if (cut.node.out[k] && !shape_equal(&cut.node.out[k]->shape, &shapes[k]))
                fail_msg("%s: output %d", node->name, k);
        for (int k = 0; k < cut.operands.storage_count; k++)
            assert_null(cut.operands.storages[k].tensor->base);
        if (flops_of(node) > 0) assert_true(flops_of(&cut.node) < flops_of(node));
    }
    if (parts.count == 2) assert_true(parts.part[0].tokens < parts.part[1].tokens);
}

static void parts_are_legal_operators(void **state) {
    (void)state;
    static const char *const names[] = {"llama-3.1-8b", "gpt2-xl", "opt-350m",
                                        "qwen2.5-7b",   "phi-4",   "mistral-7b-v0.1"};
    for (size_t n = 0; n < sizeof names / sizeof *names; n++)
        for (int64_t length = 512; length <= 8192; length *= 4) {
            const struct model_preset *preset = model_preset_find(names[n]);
            if (length > 1024 && n > 0 && n < 3) continue; /* more than their context */
            struct graph *graph = preset_graph(preset, length);
            for (size_t i = 0; i < graph->nodes.count; i++)
                for (double large = 1e6; large < 1e12; large *= 100)
                    expect_legal(graph, graph->nodes.items[i], large);
            graph_free(graph);
        }
}

/* Seconds of a call on a made-up machine: something for the operator itself, something for its arithmetic. */
static double made_up_seconds(const struct node *node) { return 0.01 + flops_of(node) * 1e-11; }

/* The cost of the whole is read off exactly where costs lie on a line; the head's is in proportion. */
static void the_whole_follows_from_its_parts(void **state) {
    (void)state;
    struct graph *graph = preset_graph(model_preset_find("llama-3.1-8b"), 4096);
    int lines = 0, heads = 0;
    for (size_t i = 0; i < graph->nodes.count; i++) {
        const struct node *node = graph->nodes.items[i];
        struct operands operands;
        struct parts parts = parts_of(node, LARGE_FLOPS);
        double seconds[PARTS_MAX];
        operands_find(graph, node, &operands);
        for (int k = 0; k < parts.count; k++) {
            struct part_node cut;
            part_node_make(&operands, &parts.part[k], &cut);
            seconds[k] = made_up_seconds(&cut.node);
        }
        if (parts.count == 0 || flops_of(node) <= 0) continue;
        double whole = parts_seconds(&operands, &parts, seconds), expected = made_up_seconds(node);
        lines += parts.count == 2;
        heads += parts.count == 1;
        if (parts.count == 2 && fabs(whole / expected - 1) > 1e-9)
            fail_msg("%s: %g, not %g", node->name, whole, expected);
        if (parts.count == 1) assert_true(whole >= expected && whole < expected * 1.1);
    }
    assert_true(lines > 100 && heads == 1);
    graph_free(graph);
}

/* All that is measured of a model of 8 B parameters is less than a seventh of the arithmetic of its operators. */
static void less_is_measured(void **state) {
    (void)state;
    struct graph *graph = preset_graph(model_preset_find("llama-3.1-8b"), 1024);
    double work[2] = {0, 0};
    for (int cut = 0; cut < 2; cut++) {
        struct points points = {.large_flops = cut ? LARGE_FLOPS : 0};
        for (size_t i = 0; i < graph->nodes.count; i++) {
            struct operands operands;
            struct point_set set;
            operands_find(graph, graph->nodes.items[i], &operands);
            assert_int_equal(points_add(&points, &operands, &set), STATUS_OK);
        }
        for (size_t i = 0; i < points.list.count; i++)
            work[cut] += points.list.items[i].work;
        points_free(&points);
    }
    if (work[1] * 7 > work[0]) fail_msg("%g of %g", work[1], work[0]);
    graph_free(graph);
}

/* With next to nothing counting as large, every part runs: views of packed products, ids of a smaller table, sums. */
static void parts_run(void **state) {
    (void)state;
    static const char *const families[] = {"gpt2", "llama"};
    for (int f = 0; f < 2; f++) {
        struct model_config config;
        struct model *model;
        struct profile_cache cache;
        struct points points = {.large_flops = 1};
        const struct profile_options options = {.threads = THREADS};
        int32_t measured = 0;
        assert_int_equal(model_config_init(families[f], &config), STATUS_OK);
        config.vocab_size = 2100;
        config.hidden = 32;
        config.layers = 1;
        config.heads = 4;
        config.context = 512;
        if (model_create(&config, &model) != STATUS_OK) fail_msg("%s", status_message());
        struct graph *graph = training_graph(model, DTYPE_F32, 2, 512);
        backend_cpu.set_threads(THREADS);
        assert_int_equal(profile_cache_open(&backend_cpu, &options, 0, &cache), STATUS_OK);
        int parts = 0;
        for (size_t i = 0; i < graph->nodes.count; i++) {
            struct operands operands;
            struct point_set set;
            operands_find(graph, graph->nodes.items[i], &operands);
            assert_int_equal(points_add(&points, &operands, &set), STATUS_OK);
            parts += set.parts.count > 0;
        }
        assert_true(parts > 10);
        assert_int_equal(points_measure(&points, &backend_cpu, &cache, 0, &measured), STATUS_OK);
        assert_true(measured >= parts);
        for (size_t i = 0; i < points.list.count; i++)
            assert_true(points.list.items[i].measurement.seconds > 0);
        profile_cache_close(&cache);
        points_free(&points);
        graph_free(graph);
        model_free(model);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_legal_operators),
        cmocka_unit_test(the_whole_follows_from_its_parts),
        cmocka_unit_test(less_is_measured),
        cmocka_unit_test(parts_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
