/* Experts with quantized weights in CUDA kernels, without a device (tests/cuda_emulator). Forward and backward have
 * the bits of an expert with the dequantized weights, in one slab and in several. */
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "base/half.h"
#include "base/mem.h"
#include "ir/ops/ops.h"
#include "profile/operator_bench.h"
#include "support/cuda_kernels.h"
#include "support/quantized_numbers.h"
#include "support/unit.h"

#ifdef BALLAST_CUDA_EMULATED

enum { TOKENS = 13, EXPERTS = 3, CHOSEN = 2, SLOTS = TOKENS * CHOSEN, WEIGHTS_MAX = 3 };

struct subject {
    int64_t columns, inner;
    enum weight_format format;
    enum dtype dtype;
    bool pairs, kn, backward;
};

static struct tensor *weight(const struct subject *of, struct graph *graph, const char *name, int64_t out, int64_t in,
                             bool quantized) {
    int64_t d0 = of->kn ? in : out, d1 = of->kn ? out : in;
    const struct weight_code code = {of->format, shape_make(of->dtype, 2, d0, d1, 1), 0};
    return quantized ? graph_quantized_parameter(graph, name, &code) : graph_parameter(graph, name, 2, d0, d1);
}

static struct node *add_pairs(const struct subject *of, struct graph *graph, struct tensor *in[OP_INPUTS_MAX],
                              struct expert_attributes expert, bool quantized) {
    const struct expert_glu_grad_attributes attributes = {
        .glu = {.expert = expert, .alpha = 1.5, .limit = 0.4, .weights_are_kn = of->kn}, .dx = true};
    struct tensor **weights = in + (of->backward ? 3 : 2);
    weights[0] = weight(of, graph, "gate_up", 2 * of->inner, of->columns, quantized);
    weights[1] = weight(of, graph, "down", of->columns, of->inner, quantized);
    weights[2] = graph_parameter(graph, "gate_up_bias", 1, 2 * of->inner, 1);
    if (of->backward) return graph_add(graph, &op_expert_glu_grad, "expert", in, &attributes, NULL);
    weights[3] = graph_parameter(graph, "down_bias", 1, of->columns, 1);
    return graph_add(graph, &op_expert_glu, "expert", in, &attributes.glu, NULL);
}

static struct node *add_plain(const struct subject *of, struct graph *graph, struct tensor *in[OP_INPUTS_MAX],
                              struct expert_attributes expert, bool quantized) {
    const struct expert_grad_attributes attributes = {.expert = expert, .dx = true};
    struct tensor **weights = in + (of->backward ? 3 : 2);
    weights[0] = weight(of, graph, "gate", of->inner, of->columns, quantized);
    weights[1] = weight(of, graph, "up", of->inner, of->columns, quantized);
    weights[2] = weight(of, graph, "down", of->columns, of->inner, quantized);
    if (of->backward) return graph_add(graph, &op_expert_mlp_grad, "expert", in, &attributes, NULL);
    return graph_add(graph, &op_expert_mlp, "expert", in, &expert, NULL);
}

static struct node *build(const struct subject *of, bool quantized, struct graph *graph) {
    struct expert_attributes expert = {
        .expert = 1, .experts = EXPERTS, .slots = SLOTS, .function = of->pairs ? 0 : ACTIVATION_SILU};
    struct shape rows = shape_make(of->dtype, 3, 1, routing_rows(1, SLOTS, EXPERTS), of->columns);
    struct tensor *in[OP_INPUTS_MAX] = {NULL};
    int x = of->backward ? 1 : 0;
    if (of->backward) in[0] = graph_tensor(graph, TENSOR_ACTIVATION, "dy", rows);
    in[x] = graph_tensor(graph, TENSOR_ACTIVATION, "x", rows);
    in[x + 1] = graph_tensor(graph, TENSOR_ACTIVATION, "ranges", shape_make(DTYPE_I32, 2, EXPERTS, 2, 1));
    struct node *node =
        of->pairs ? add_pairs(of, graph, in, expert, quantized) : add_plain(of, graph, in, expert, quantized);
    if (graph_status(graph) != STATUS_OK) fail_msg("%s", status_message());
    return node;
}

static void *filled(const struct node *node, const struct tensor *tensor) {
    void *values = mem_aligned(64, (size_t)((shape_bytes(&tensor->shape) + 63) / 64 * 64));
    assert_non_null(values);
    operator_values_fill(node, tensor, values);
    if (tensor->code.format == WEIGHT_PLAIN) return values;
    const struct weight_layout layout = weight_code_layout(&tensor->code);
    quantized_vary_scales(&layout, values);
    return values;
}

/* The numbers of a weight in fewer bits. */
static void *numbers_of(const struct tensor *weight, const void *sections) {
    const struct weight_layout layout = weight_code_layout(&weight->code);
    int64_t count = shape_elements(&weight->code.values);
    void *numbers = mem_aligned(64, (size_t)(count * 4 + 63) / 64 * 64);
    assert_non_null(numbers);
    for (int64_t i = 0; i < count; i++) {
        float number = quantized_number(&layout, sections, i);
        if (weight->code.values.dtype == DTYPE_BF16)
            ((uint16_t *)numbers)[i] = bf16_from_float(number);
        else
            ((float *)numbers)[i] = number;
    }
    return numbers;
}

static void *run(const struct node *node, void *const in[OP_INPUTS_MAX]) {
    struct kernel *kernel;
    if (cuda_kernel_create(node, &kernel) != STATUS_OK) fail_msg("%s", status_message());
    size_t bytes = (size_t)((kernel->workspace_bytes + 511) / 256 * 256);
    char *workspace = mem_aligned(256, bytes);
    void *out = mem_aligned(64, (size_t)((shape_bytes(&node->out[0]->shape) + 63) / 64 * 64));
    assert_non_null(workspace);
    assert_non_null(out);
    memset(workspace, 0xff, bytes);
    struct kernel_call call = {.workspace = workspace, .out = {out}};
    memcpy(call.in, in, sizeof call.in);
    assert_int_equal(kernel->run(kernel, &call), STATUS_OK);
    for (size_t i = (size_t)kernel->workspace_bytes; i < bytes; i++)
        assert_int_equal(workspace[i], (char)0xff);
    kernel->release(kernel);
    mem_free(workspace);
    return out;
}

static void compare(const struct subject *of) {
    struct graph *quantized = graph_create(of->dtype, 1, TOKENS), *plain = graph_create(of->dtype, 1, TOKENS);
    assert_non_null(quantized);
    assert_non_null(plain);
    const struct node *node = build(of, true, quantized), *other = build(of, false, plain);
    void *in[OP_INPUTS_MAX] = {NULL}, *numbers[OP_INPUTS_MAX] = {NULL}, *same[OP_INPUTS_MAX] = {NULL};
    for (int i = 0; i < OP_INPUTS_MAX; i++) {
        if (!node->in[i]) continue;
        same[i] = in[i] = filled(node, node->in[i]);
        if (node->in[i]->code.format != WEIGHT_PLAIN) same[i] = numbers[i] = numbers_of(node->in[i], in[i]);
    }
    void *found = run(node, in), *expected = run(other, same);
    if (memcmp(found, expected, (size_t)shape_bytes(&node->out[0]->shape)) != 0)
        fail_msg("%s in %s, %s%s%s, %lld x %lld: other bits", weight_format_name(of->format), dtype_name(of->dtype),
                 of->backward ? "backward" : "forward", of->pairs ? " pairs" : "", of->kn ? " kn" : "",
                 (long long)of->columns, (long long)of->inner);
    for (int i = 0; i < OP_INPUTS_MAX; i++)
        mem_free(in[i]), mem_free(numbers[i]);
    mem_free(found), mem_free(expected);
    graph_free(quantized);
    graph_free(plain);
}

/* Rows of whole blocks, and such as begin within a pair of codes. */
static void experts_have_the_bits_of_the_numbers(void **state) {
    (void)state;
    for (enum weight_format format = WEIGHT_NF4; format <= WEIGHT_MXFP4; format++)
        for (int kind = 0; kind < 12; kind++) {
            bool odd = format != WEIGHT_MXFP4 && kind % 2;
            compare(&(struct subject){.columns = odd ? 37 : 64,
                                      .inner = odd ? 45 : 96,
                                      .format = format,
                                      .dtype = kind % 2 ? DTYPE_F32 : DTYPE_BF16,
                                      .pairs = kind >= 4,
                                      .kn = kind >= 8,
                                      .backward = kind / 2 % 2});
        }
}

/* Rows of 32832 numbers in fp32: slabs of 64 columns and, the last, of 6. */
static void several_slabs_have_them_too(void **state) {
    (void)state;
    compare(&(struct subject){.columns = 32832, .inner = 70, .format = WEIGHT_INT8, .dtype = DTYPE_F32});
}

int main(void) {
    backend_cpu.set_threads(1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(experts_have_the_bits_of_the_numbers),
                                       cmocka_unit_test(several_slabs_have_them_too)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void) {
    unit_skip_all("this build has no CUDA backend; needs the CUDA toolkit, 12 or later, and a C++ compiler");
}

#endif
