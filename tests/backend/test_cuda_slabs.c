/* GEMMs with quantized weights in CUDA kernels, without a device (tests/cuda_emulator). They have the bits of a GEMM
 * with the dequantized weight, in one slab and in several. */
#include <stdio.h>
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

struct size {
    int64_t rows, in, out;
};
/* Rows of whole vectors, and such as begin within a pair of codes; several slabs, the last of them narrower. */
static const struct size sizes[] = {{5, 64, 96}, {3, 77, 131}, {2, 8256, 2100}};
enum { LARGEST = 2 };

struct subject {
    const struct size *size;
    bool backward, kn;
    enum weight_format format;
    enum dtype dtype;
    int64_t block; /* of integers */
};

static struct tensor *activation(struct graph *graph, const char *name, int64_t rows, int64_t columns) {
    return graph_tensor(graph, TENSOR_ACTIVATION, name, shape_make(graph->dtype, 3, 1, rows, columns));
}

/* x w (+ residual), or dy w^t (+ what is there). */
static struct node *build(const struct subject *of, bool quantized, struct graph *graph) {
    const struct size *size = of->size;
    int64_t d0 = of->kn ? size->in : size->out, d1 = of->kn ? size->out : size->in;
    const struct weight_code code = {of->format, shape_make(of->dtype, 2, d0, d1, 1), of->block};
    struct tensor *weight =
        quantized ? graph_quantized_parameter(graph, "w.weight", &code) : graph_parameter(graph, "w.weight", 2, d0, d1);
    struct tensor *from = activation(graph, "from", size->rows, of->backward ? size->out : size->in);
    struct tensor *add = activation(graph, "add", size->rows, of->backward ? size->in : size->out);
    struct linear_attributes attributes = {.weight_is_kn = of->kn};
    struct tensor *in[OP_INPUTS_MAX] = {from, weight};
    in[of->backward ? 2 : 3] = add;
    struct node *node = graph_add(graph, of->backward ? &op_linear_dx : &op_linear, "product", in, &attributes, NULL);
    assert_int_equal(graph_status(graph), STATUS_OK);
    return node;
}

static void *filled(const struct node *node, const struct tensor *tensor) {
    void *values = mem_aligned(64, (size_t)((shape_bytes(&tensor->shape) + 63) / 64 * 64));
    assert_non_null(values);
    operator_values_fill(node, tensor, values);
    return values;
}

/* The weight's numbers in the product's dtype. */
static void *numbers_of(const struct subject *of, const struct node *node, const void *weight) {
    const struct shape *values = &node->in[1]->code.values;
    const struct weight_layout layout = weight_code_layout(&node->in[1]->code);
    int64_t count = shape_elements(values);
    void *numbers = mem_aligned(64, (size_t)(count * 4 + 63) / 64 * 64);
    assert_non_null(numbers);
    for (int64_t i = 0; i < count; i++) {
        float number = quantized_number(&layout, weight, i);
        if (of->dtype == DTYPE_BF16)
            ((uint16_t *)numbers)[i] = bf16_from_float(number);
        else
            ((float *)numbers)[i] = number;
    }
    return numbers;
}

static void *run(const struct node *node, void *from, void *weight, void *add) {
    struct kernel *kernel;
    const struct tensor *to = node->out[0];
    if (cuda_kernel_create(node, &kernel) != STATUS_OK) fail_msg("%s", status_message());
    void *workspace = mem_aligned(256, (size_t)((kernel->workspace_bytes + 256) / 256 * 256));
    void *out = mem_aligned(64, (size_t)((shape_bytes(&to->shape) + 63) / 64 * 64));
    assert_non_null(workspace);
    assert_non_null(out);
    struct kernel_call call = {.workspace = workspace};
    bool forward = node->op == &op_linear;
    call.in[0] = from, call.in[1] = weight, call.in[forward ? 3 : 2] = add, call.out[0] = out;
    assert_int_equal(kernel->run(kernel, &call), STATUS_OK);
    kernel->release(kernel);
    mem_free(workspace);
    return out;
}

static void compare(const struct subject *of) {
    struct graph *quantized = graph_create(of->dtype, 1, of->size->rows),
                 *plain = graph_create(of->dtype, 1, of->size->rows);
    assert_non_null(quantized);
    assert_non_null(plain);
    const struct node *node = build(of, true, quantized), *other = build(of, false, plain);
    void *from = filled(node, node->in[0]), *weight = filled(node, node->in[1]);
    const struct weight_layout layout = weight_code_layout(&node->in[1]->code);
    quantized_vary_scales(&layout, weight);
    void *add = filled(node, node->in[of->backward ? 2 : 3]), *numbers = numbers_of(of, node, weight);
    void *found = run(node, from, weight, add), *expected = run(other, from, numbers, add);
    if (memcmp(found, expected, (size_t)shape_bytes(&node->out[0]->shape)) != 0)
        fail_msg("%s in %s, %s%s, %lld x %lld x %lld: other bits", weight_format_name(of->format),
                 dtype_name(of->dtype), of->backward ? "backward" : "forward", of->kn ? " kn" : "",
                 (long long)of->size->rows, (long long)of->size->in, (long long)of->size->out);
    void *blocks[] = {from, weight, add, numbers, found, expected};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        mem_free(blocks[i]);
    graph_free(quantized);
    graph_free(plain);
}

static void products_have_the_bits_of_the_numbers(void **state) {
    (void)state;
    for (enum weight_format format = WEIGHT_NF4; format < WEIGHT_FORMAT_COUNT; format++)
        for (int kind = 0; kind < 8; kind++)
            for (int s = 0; s < LARGEST; s++) {
                struct subject of = {&sizes[s], kind & 1, (kind & 2) != 0, format, kind & 4 ? DTYPE_F32 : DTYPE_BF16,
                                     0};
                int64_t row = of.kn ? of.size->out : of.size->in;
                if (weight_format_has_groups(format)) of.block = row % 4 == 0 ? row / 4 : s ? WEIGHT_BLOCK_WHOLE : 0;
                if (format == WEIGHT_NF4 || format == WEIGHT_NF4_WIDE) of.block = s % 2 ? 128 : 0;
                if (weight_format_fits(of.format, of.block, row)) compare(&of);
            }
}

/* 33 MiB of bf16: three slabs forward; of the narrower side, backward, too. */
static void several_slabs_have_them_too(void **state) {
    (void)state;
    for (int kind = 0; kind < 4; kind++)
        compare(&(struct subject){&sizes[LARGEST], kind & 1, (kind & 2) != 0, WEIGHT_NF4, DTYPE_BF16, 0});
}

int main(void) {
    backend_cpu.set_threads(1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(products_have_the_bits_of_the_numbers),
                                       cmocka_unit_test(several_slabs_have_them_too)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void) {
    unit_skip_all("this build has no CUDA backend; needs the CUDA toolkit, 12 or later, and a C++ compiler");
}

#endif
