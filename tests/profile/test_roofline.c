/* Costs of a described device. */
#include "machine/kernel_cost.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ir/ops/ops.h"
#include "profile/described_device.h"
#include "search/sim/costs.h"
#include "support/small_graph.h"
#include "support/unit.h"

static struct cluster read_h100(void) {
    struct cluster cluster;
    if (cluster_read(BALLAST_SOURCE "/clusters/h100-sxm.json", &cluster) != STATUS_OK) fail_msg("%s", status_message());
    return cluster;
}

static void expect_near(double value, double expected) {
    if (!(fabs(value - expected) <= 1e-9 * expected)) fail_msg("%.12g, not %.12g", value, expected);
}

static struct graph *build(void) {
    return small_graph_build(&(struct small_graph_options){.layers = 2,
                                                           .packed_rotary = true,
                                                           .packed_qkv = true,
                                                           .dtype = DTYPE_BF16,
                                                           .micro_batch_sequences = 4,
                                                           .sequence_length = 64});
}

static void nothing_beats_the_data_sheet(void **state) {
    (void)state;
    struct cluster cluster = read_h100();
    struct graph *graph = build();
    struct costs costs;
    assert_int_equal(roofline_costs(graph, &cluster, ROOFLINE_EXPECTED, &costs), STATUS_OK);
    assert_int_equal(costs.count, graph->nodes.count);
    for (size_t i = 0; i < graph->nodes.count; i++) {
        const struct node *node = graph->nodes.items[i];
        struct roofline cost = roofline_of(node, &cluster.device, ROOFLINE_EXPECTED);
        assert_true(cost.seconds > 0 && cost.limit_s > 0);
        if (cost.limit_s > cost.seconds) fail_msg("%s is faster than the device", node->name);
        assert_true(costs.kernels[i].seconds == cost.seconds);
        struct op_cost work;
        op_cost(node, &work);
        if (cost.limit_s < work.bytes / cluster.device.limits.memory_bytes_per_s * 0.999)
            fail_msg("%s: its limit leaves bytes out", node->name);
    }
    costs_free(&costs);
    graph_free(graph);
}

/* Each rate is used: with one halved, something takes longer and nothing less. */
static void expect_rate_used(const struct graph *graph, const struct cluster_device *all, double *rate,
                             const struct cluster_device *changed) {
    int longer = 0;
    *rate /= 2;
    for (size_t i = 0; i < graph->nodes.count; i++) {
        double before = roofline_of(graph->nodes.items[i], all, ROOFLINE_EXPECTED).seconds;
        double after = roofline_of(graph->nodes.items[i], changed, ROOFLINE_EXPECTED).seconds;
        assert_true(after >= before && after <= 2.001 * before);
        longer += after > 1.5 * before;
    }
    assert_true(longer > 0);
    *rate *= 2;
}

static void every_rate_counts(void **state) {
    (void)state;
    struct cluster cluster = read_h100();
    struct cluster_device device = cluster.device, changed;
    struct graph *graph = build();
    device.limits.memory_bytes_per_s *= 1e4; /* so small a model is bound by memory alone */
    changed = device;
    expect_rate_used(graph, &device, &changed.limits.bf16_flops_per_s, &changed);
    device.limits.memory_bytes_per_s /= 1e4;
    changed = device;
    expect_rate_used(graph, &device, &changed.limits.memory_bytes_per_s, &changed);
    struct costs fast, slow;
    assert_int_equal(roofline_costs(graph, &cluster, ROOFLINE_EXPECTED, &fast), STATUS_OK);
    cluster.device.limits.host_bytes_per_s /= 2;
    assert_int_equal(roofline_costs(graph, &cluster, ROOFLINE_EXPECTED, &slow), STATUS_OK);
    for (size_t i = 0; i < graph->nodes.count; i++) {
        bool update = graph->nodes.items[i]->phase == PHASE_UPDATE;
        expect_near(slow.host_kernels[i].seconds / fast.host_kernels[i].seconds, update ? 2 : 1);
    }
    costs_free(&fast);
    costs_free(&slow);
    graph_free(graph);
}

/* Of 4096 tokens and 2048 to 2048 features; a gradient in fp32 that is added to is written and read. */
static void a_linear_layer_is_one_gemm(void **state) {
    (void)state;
    const struct calibration calibration = calibration_default();
    struct cluster cluster = read_h100();
    struct gpu gpu = gpu_describe_own(&cluster.device, &calibration, ROOFLINE_EXPECTED);
    struct tensor x = {.shape = shape_make(DTYPE_BF16, 3, 4, 1024, 2048)}, y = x;
    struct tensor weight = {.shape = shape_make(DTYPE_BF16, 2, 2048, 2048, 1)};
    struct tensor gradient = {.shape = shape_make(DTYPE_F32, 2, 2048, 2048, 1)};
    struct linear_attributes attributes = {0};
    struct node node = {
        .op = &op_linear, .name = "linear", .attributes = &attributes, .in = {&x, &weight}, .out = {&y}};
    expect_near(roofline_of(&node, &cluster.device, ROOFLINE_EXPECTED).seconds, product_s(&gpu, 1, 4096, 2048, 2048));
    node =
        (struct node){.op = &op_linear_dw, .name = "dw", .attributes = &attributes, .in = {&y, &x}, .out = {&gradient}};
    bool adds = op_updates(&node) & 1;
    double expected = gemm_s(&gpu, &(struct product){1, 2048, 2048, 4096, 4, adds ? 4 : 0});
    expect_near(roofline_of(&node, &cluster.device, ROOFLINE_EXPECTED).seconds, expected);
}

/* Seconds that quantized weights add to an expert's node, in passes over one weight's packed bytes and bf16 values. */
static double unpacked_weights(bool gradient, bool dx) {
    struct cluster cluster = read_h100();
    struct weight_code code = {.format = WEIGHT_INT8, .values = shape_make(DTYPE_BF16, 2, 1024, 1024, 1), .block = 0};
    struct tensor rows = {.shape = shape_make(DTYPE_BF16, 3, 1, 4096, 1024)},
                  ranges = {.shape = shape_make(DTYPE_I32, 2, 4, 2, 1)};
    struct tensor plain = {.shape = code.values},
                  quantized = {.shape = shape_make(DTYPE_U8, 1, weight_code_layout(&code).bytes, 0, 0), .code = code};
    struct expert_grad_attributes attributes = {.expert = {.experts = 4, .slots = 4096, .function = ACTIVATION_SILU},
                                                .dx = dx};
    double seconds[2];
    for (int is_quantized = 0; is_quantized < 2; is_quantized++) {
        struct tensor *weight = is_quantized ? &quantized : &plain;
        struct node node = {.op = gradient ? &op_expert_mlp_grad : &op_expert_mlp,
                            .name = "expert",
                            .attributes = &attributes,
                            .out = {&rows}};
        struct tensor *in[OP_INPUTS_MAX] = {&rows, &ranges, weight, weight, weight};
        struct tensor *back[OP_INPUTS_MAX] = {&rows, &rows, &ranges, weight, weight, weight};
        memcpy(node.in, gradient ? back : in, sizeof node.in);
        seconds[is_quantized] = roofline_of(&node, &cluster.device, ROOFLINE_EXPECTED).seconds;
    }
    double bytes = (double)shape_bytes(&quantized.shape) + (double)shape_bytes(&code.values);
    return (seconds[1] - seconds[0]) * cluster.device.limits.memory_bytes_per_s * 0.85 / bytes;
}

/* The node's products are what takes longest, so that fewer bytes of weights change nothing else. */
static void quantized_experts_are_unpacked_for_each_product(void **state) {
    (void)state;
    expect_near(unpacked_weights(false, false), 3);
    expect_near(unpacked_weights(true, false), 3);
    expect_near(unpacked_weights(true, true), 5);
}

static const char *const gpu_files[] = {"h100x8", "h200x8", "a100-80x8", "rtx4090x8", "rtx3090x8", "v100x8"};
enum { GPUS = sizeof gpu_files / sizeof *gpu_files };

/* The data sheet <= the fast end <= what is expected <= the slow end, for every operator of every GPU. */
static void expectations_lie_within_their_range(void **state) {
    (void)state;
    struct graph *graph = build();
    for (int c = 0; c < GPUS; c++) {
        struct cluster cluster;
        char path[512];
        snprintf(path, sizeof path, BALLAST_SOURCE "/clusters/%s.json", gpu_files[c]);
        assert_int_equal(cluster_read(path, &cluster), STATUS_OK);
        for (size_t i = 0; i < graph->nodes.count; i++) {
            struct roofline cost[ROOFLINE_CASES];
            for (int which = 0; which < ROOFLINE_CASES; which++)
                cost[which] = roofline_of(graph->nodes.items[i], &cluster.device, (enum roofline_case)which);
            if (!(cost[ROOFLINE_FAST].limit_s <= cost[ROOFLINE_FAST].seconds &&
                  cost[ROOFLINE_FAST].seconds < cost[ROOFLINE_EXPECTED].seconds &&
                  cost[ROOFLINE_EXPECTED].seconds < cost[ROOFLINE_SLOW].seconds))
                fail_msg("%s on %s: %g, %g, %g s", graph->nodes.items[i]->name, gpu_files[c],
                         cost[ROOFLINE_FAST].seconds, cost[ROOFLINE_EXPECTED].seconds, cost[ROOFLINE_SLOW].seconds);
        }
    }
    graph_free(graph);
}

/* TFLOP/s of large causal attention, of the FLOPs that FlashAttention counts. */
static double attention_rate(const struct cluster_device *device, bool gradient, enum roofline_case which) {
    enum { SEQUENCES = 16, LENGTH = 1024, HEADS = 16, HEAD = 128 };
    struct tensor x = {.shape = shape_make(DTYPE_BF16, 3, SEQUENCES, LENGTH, HEADS * HEAD)};
    struct attention_attributes attributes = {.heads = HEADS, .kv_heads = HEADS, .head_dim = HEAD};
    struct node node = {.op = gradient ? &op_attention_grad : &op_attention, .attributes = &attributes};
    for (int i = 0; i < OP_INPUTS_MAX; i++)
        node.in[i] = i < (gradient ? 6 : 3) ? &x : NULL;
    for (int i = 0; i < (gradient ? 3 : 1); i++)
        node.out[i] = &x;
    double flops = (gradient ? 10.0 : 4.0) * SEQUENCES * HEADS * (LENGTH * (LENGTH + 1) / 2.0) * HEAD;
    return flops / roofline_of(&node, device, which).seconds * 1e-12;
}

/* FlashAttention-2 on an H100, 1024 positions, heads of 128: 260 TFLOP/s forward; backward 195 to 230. */
static void attention_is_no_faster_than_published_kernels(void **state) {
    (void)state;
    struct cluster cluster = read_h100();
    assert_true(attention_rate(&cluster.device, false, ROOFLINE_FAST) <= 262);
    assert_true(attention_rate(&cluster.device, false, ROOFLINE_SLOW) >= 150);
    assert_true(attention_rate(&cluster.device, true, ROOFLINE_FAST) <= 232);
    assert_true(attention_rate(&cluster.device, true, ROOFLINE_EXPECTED) <= 200);
}

static void only_what_is_elsewhere_is_described(void **state) {
    (void)state;
    struct cluster cluster = read_h100(), lacking = cluster;
    const struct backend *found = NULL;
    assert_int_equal(described_device_find("h100.json", &cluster, &backend_cpu, &found), STATUS_OK);
    assert_ptr_equal(found, &backend_described);
    assert_string_equal(found->isa(), "sm_90-132sm");
    assert_int_equal(found->kernels_version, backend_cuda.kernels_version);
    assert_int_equal(described_device_find("h100.json", &cluster, &backend_cuda, &found), STATUS_OK);
    assert_ptr_equal(found, &backend_cuda);
    lacking.device.limits = (struct cluster_limits){0};
    assert_int_equal(described_device_find("h100.json", &lacking, &backend_cpu, &found), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "h100.json: devices[0].limits: is missing"));
    lacking = cluster;
    lacking.rates.measured = false;
    assert_int_equal(described_device_find("h100.json", &lacking, &backend_cpu, &found), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "h100.json: rates: is missing"));
    snprintf(cluster.device.kind, sizeof cluster.device.kind, "cpu");
    assert_int_equal(described_device_find("cpu.json", &cluster, &backend_cpu, &found), STATUS_OK);
    assert_ptr_equal(found, &backend_cpu);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_beats_the_data_sheet),
        cmocka_unit_test(every_rate_counts),
        cmocka_unit_test(a_linear_layer_is_one_gemm),
        cmocka_unit_test(quantized_experts_are_unpacked_for_each_product),
        cmocka_unit_test(expectations_lie_within_their_range),
        cmocka_unit_test(attention_is_no_faster_than_published_kernels),
        cmocka_unit_test(only_what_is_elsewhere_is_described),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
