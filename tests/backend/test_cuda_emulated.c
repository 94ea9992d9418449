/* CUDA kernels without a device, compiled for the CPU (tests/cuda_emulator). Each operator case gives the results of
 * the CPU's kernels, writes nothing outside its outputs, and gives the same bits in another order of threads and
 * blocks. */
/* ctest-again: part1 BALLAST_TEST_PART=1 */
/* ctest-again: part2 BALLAST_TEST_PART=2 */
/* ctest-again: part3 BALLAST_TEST_PART=3 */
/* ctest-again: part4 BALLAST_TEST_PART=4 */
/* ctest-again: part5 BALLAST_TEST_PART=5 */
/* ctest-again: part6 BALLAST_TEST_PART=6 */
/* ctest-again: part7 BALLAST_TEST_PART=7 */
/* ctest-again: part8 BALLAST_TEST_PART=8 */
/* ctest-again: part9 BALLAST_TEST_PART=9 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "base/mem.h"
#include "base/random.h"
#include "support/op_instance.h"
#include "support/unit.h"

#ifdef BALLAST_CUDA_EMULATED

#include <cuda_runtime_api.h>

/* Each run of the program takes every PARTS-th case. */
enum { SEED = 4711, PARTS = 10 };

/* Besides a case's own sizes, which are odd: sizes that let rows be moved 16 bytes at a time, norms of a whole block's
 * threads, and heads of each width that has a kernel of its own. Lengths are even: parts in zigzag are two runs. */
static const struct op_sizes more_sizes[] = {
    {.sequences = 2,
     .length = 40,
     .columns = 1032,
     .inner = 64,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 64,
     .vocab = 136},
    {.sequences = 1,
     .length = 70,
     .columns = 531,
     .inner = 40,
     .heads = 2,
     .kv_heads = 1,
     .head_dim = 96,
     .window = 37,
     .vocab = 72},
    {.sequences = 1, .length = 66, .columns = 96, .inner = 32, .heads = 2, .kv_heads = 2, .head_dim = 256, .vocab = 48},
};
enum { MORE_SIZES = sizeof more_sizes / sizeof *more_sizes };

/* Features of norms: one for each number that a thread may hold, and more than are held. */
static const int64_t norm_columns[] = {768, 2048, 4104, 8200, 531 * 8};
enum { NORM_COLUMNS = sizeof norm_columns / sizeof *norm_columns };

static struct op_instance create(const struct op_case *op_case, const struct op_sizes *sizes, enum dtype dtype,
                                 const char *backend) {
    struct op_instance instance;
    setenv("BALLAST_TEST_BACKEND", backend, 1);
    if (op_instance_create(op_case_build(op_case, dtype, sizes), &instance) != STATUS_OK)
        fail_msg("%s in %s: %s", op_case->name, dtype_name(dtype), status_message());
    op_instance_fill(&instance, SEED);
    op_instance_run_all(&instance);
    const char *overrun = op_instance_overrun(&instance);
    if (overrun) fail_msg("%s in %s wrote outside %s", op_case->name, dtype_name(dtype), overrun);
    return instance;
}

/* Of sums that cancel (the gradient of scores where there is one key) rounding is all there is: inputs are of size 1,
 * so what is smaller than this in the root of the mean square is 0. */
static const double NOTHING = 1e-6;

static double relative_error(const double *found, const double *expected, int64_t count) {
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < count; i++) {
        difference += (found[i] - expected[i]) * (found[i] - expected[i]);
        norm += expected[i] * expected[i];
    }
    if (norm < NOTHING * NOTHING * (double)count) norm = (double)count;
    return norm > 0 ? sqrt(difference / norm) : sqrt(difference);
}

/* Muon's has products. */
static bool updates_by_element(const struct op *op) {
    enum update_rule rule = update_rule_of(op);
    return rule != UPDATE_RULE_COUNT && rule != UPDATE_MUON;
}

/* An output's values; the lower halves of masters joined with the upper ones: alone they tell of rounding only. */
static double *values_of(const struct op_instance *instance, int output) {
    const struct tensor *tensor = instance->node->out[output], *parameter = instance->node->out[0];
    double *values = op_instance_read(instance, tensor);
    if (tensor->shape.dtype != DTYPE_U16) return values;
    double *upper = op_instance_read(instance, parameter);
    for (int64_t i = 0; i < shape_elements(&tensor->shape); i++)
        values[i] = (double)float_join(bf16_from_float((float)upper[i]), (uint16_t)values[i]);
    mem_free(upper);
    return values;
}

static void compare(const struct op_case *op_case, int output, const struct op_instance *cpu,
                    const struct op_instance *cuda, const struct op_instance *again) {
    const struct tensor *tensor = cpu->node->out[output];
    int64_t count = shape_elements(&tensor->shape);
    double *expected = values_of(cpu, output), *found = values_of(cuda, output), *second = values_of(again, output);
    bool bf16 = cpu->graph->dtype == DTYPE_BF16, exact = updates_by_element(op_case->op);
    /* fp32: sums of some thousand steps, in blocks of other lengths; the head's largest are off by 2.1e-6. */
    double error = relative_error(found, expected, count), max = exact ? 0 : bf16 ? 5e-3 : 4e-6;
    /* It adds products of both signs with y, which each backend has rounded before. */
    if (bf16 && op_case->op == &op_attention_sinks_grad) max = 3e-2;
    if (!(error <= max))
        fail_msg("%s in %s: %s is off by %.2e, more than %.0e", op_case->name, bf16 ? "bf16" : "fp32", tensor->name,
                 error, max);
    if (memcmp(found, second, (size_t)count * sizeof *found) != 0)
        fail_msg("%s in %s: %s depends on the order of threads", op_case->name, bf16 ? "bf16" : "fp32", tensor->name);
    mem_free(expected);
    mem_free(found);
    mem_free(second);
}

static void check_sizes(const struct op_case *op_case, const struct op_sizes *sizes, enum dtype dtype) {
    struct op_instance cpu = create(op_case, sizes, dtype, "cpu"), cuda = create(op_case, sizes, dtype, "cuda");
    struct op_instance again = create(op_case, sizes, dtype, "cuda");
    for (int i = 0; i < OP_OUTPUTS_MAX; i++)
        if (cpu.node->out[i]) compare(op_case, i, &cpu, &cuda, &again);
    op_instance_free(&cpu);
    op_instance_free(&cuda);
    op_instance_free(&again);
}

/* Decoding has a block of many threads for each token and head: its longer cases are for the long run. */
static bool is_long(const struct op_case *op_case) {
    return op_case->op == &op_attention_cache && op_case->sizes.length > 100;
}

/* Sequences of pairs are an even number. */
static struct op_sizes sizes_of(const struct op_case *op_case, const struct op_sizes *wanted) {
    struct op_sizes sizes = *wanted;
    bool pairs = op_case->op == &op_preference_loss || op_case->op == &op_preference_loss_grad;
    if (pairs) sizes.sequences += sizes.sequences % 2;
    return sizes;
}

static void check_case(const struct op_case *op_case) {
    for (int d = 0; d < 2; d++) {
        enum dtype dtype = d ? DTYPE_BF16 : DTYPE_F32;
        if (!is_long(op_case) || unit_sweep(0, 1)) check_sizes(op_case, &op_case->sizes, dtype);
        for (int i = 0; i < MORE_SIZES; i++) {
            struct op_sizes sizes = sizes_of(op_case, &more_sizes[i]);
            check_sizes(op_case, &sizes, dtype);
        }
        for (int i = 0; i < NORM_COLUMNS && strstr(op_case->op->name, "_norm"); i++) {
            struct op_sizes sizes = op_case->sizes;
            if (op_case->flags & CASE_HEADS) continue;
            sizes.length = 7;
            sizes.columns = norm_columns[i];
            check_sizes(op_case, &sizes, dtype);
        }
    }
}

static void emulated_kernels_are_as_on_the_processor(void **state) {
    (void)state;
    const char *part = getenv("BALLAST_TEST_PART");
    for (int i = part ? atoi(part) : 0; i < op_case_count; i += PARTS)
        if (backend_has_kernel(&backend_cuda, op_cases[i].op)) check_case(&op_cases[i]);
}

static double draw(double min, double max, uint64_t *draws) {
    return min + (max - min) * random_uniform(SEED, RANDOM_TEST, 1, (*draws)++);
}

/* The values of a step are rounded by the kernel: whatever they are, its bits are the CPU's. */
static void check_update(const struct op_case *op_case, uint64_t *draws) {
    struct op_instance cpu = create(op_case, &op_case->sizes, DTYPE_BF16, "cpu");
    struct op_instance cuda = create(op_case, &op_case->sizes, DTYPE_BF16, "cuda");
    for (int step = 0; step < 40; step++) {
        double values[SCALAR_COUNT] = {[SCALAR_LEARNING_RATE] = draw(1e-5, 5, draws),
                                       [SCALAR_BIAS_CORRECTION] = draw(1, 10, draws),
                                       [SCALAR_BIAS_CORRECTION_SQ] = draw(1, 30, draws)};
        memcpy(cpu.scalars, values, sizeof values);
        memcpy(cuda.scalars, values, sizeof values);
        op_instance_run_all(&cpu);
        op_instance_run_all(&cuda);
        for (int i = 0; i < OP_OUTPUTS_MAX; i++)
            if (cpu.node->out[i]) compare(op_case, i, &cpu, &cuda, &cuda);
    }
    op_instance_free(&cpu);
    op_instance_free(&cuda);
}

static void updates_have_the_bits_of_the_processor(void **state) {
    (void)state;
    uint64_t draws = 0;
    for (int i = 0; i < op_case_count; i++) {
        const struct op *op = op_cases[i].op;
        if (updates_by_element(op) && backend_has_kernel(&backend_cuda, op)) check_update(&op_cases[i], &draws);
    }
    assert_true(draws > 0);
}

static void expect_output(const struct op_instance *found, const struct op_instance *expected, int output) {
    double *a = op_instance_read(found, found->node->out[output]);
    double *b = op_instance_read(expected, expected->node->out[output]);
    assert_memory_equal(a, b, (size_t)shape_elements(&expected->node->out[output]->shape) * sizeof *b);
    mem_free(a);
    mem_free(b);
}

/* Asked for dx alone and for the rest alone, the kernel of `parted` gives what that of `whole` gave. */
static void check_parted(const struct op_instance *whole, struct op_instance *parted) {
    struct kernel_call *call = &parted->calls[parted->nodes - 1];
    void *dx = call->out[0];
    op_instance_fill(parted, SEED);
    call->out[0] = NULL;
    op_instance_run(parted, parted->nodes - 1);
    for (int i = 1; i < OP_OUTPUTS_MAX; i++)
        if (whole->node->out[i]) expect_output(parted, whole, i);
    memset(call->out, 0, sizeof call->out);
    call->out[0] = dx;
    op_instance_run(parted, parted->nodes - 1);
    expect_output(parted, whole, 0);
}

/* Of norms whose rows a warp holds: dx and the weight's gradient by one kernel, and by one each. */
static void gradients_of_norms_have_the_same_bits_by_one_kernel_and_by_two(void **state) {
    (void)state;
    static const struct op_sizes sizes = {.sequences = 3, .length = 51, .columns = 768};
    int checked = 0;
    for (int i = 0; i < op_case_count; i++) {
        bool norm = op_cases[i].op == &op_rms_norm_grad || op_cases[i].op == &op_layer_norm_grad;
        if (!norm || op_cases[i].flags & (CASE_HEADS | CASE_NO_DX | CASE_FROZEN)) continue;
        for (int d = 0; d < 2; d++) {
            enum dtype dtype = d ? DTYPE_BF16 : DTYPE_F32;
            struct op_instance whole = create(&op_cases[i], &sizes, dtype, "cuda");
            struct op_instance parted = create(&op_cases[i], &sizes, dtype, "cuda");
            check_parted(&whole, &parted);
            op_instance_free(&whole);
            op_instance_free(&parted);
            checked++;
        }
    }
    assert_true(checked >= 8);
}

/* Each token has many rows, more than a block's warps, in vectors and one by one, in part of a block's columns and
 * more.
 */
static void frequent_tokens_have_the_gradients_of_the_processor(void **state) {
    (void)state;
    static const int64_t columns[] = {1032, 1031, 64};
    int checked = 0;
    for (int i = 0; i < op_case_count; i++) {
        if (op_cases[i].op != &op_embedding_grad) continue;
        for (size_t c = 0; c < sizeof columns / sizeof *columns; c++, checked++) {
            const struct op_sizes sizes = {.sequences = 3, .length = 110, .columns = columns[c], .vocab = 8};
            check_sizes(&op_cases[i], &sizes, DTYPE_F32);
            check_sizes(&op_cases[i], &sizes, DTYPE_BF16);
        }
    }
    assert_true(checked >= 9);
}

/* Partial sums of gradients, of sizes that are and are not whole vectors. */
static void sums_are_added_as_on_the_processor(void **state) {
    (void)state;
    enum { COUNT = 5000 };
    static _Alignas(64) float from[COUNT], here[COUNT], there[COUNT];
    static const int64_t counts[] = {1, 16, 1024, 4099, COUNT};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        for (int i = 0; i < COUNT; i++) {
            from[i] = (float)(random_u64(SEED, RANDOM_TEST, 21, (uint64_t)i) % 1000003) * 1e-5f - 5;
            here[i] = there[i] = (float)(random_u64(SEED, RANDOM_TEST, 22, (uint64_t)i) % 1000003) * 1e-2f - 5000;
        }
        backend_cpu.add(here, from, counts[c], c % 2 == 1, NULL);
        backend_cuda.add(there, from, counts[c], c % 2 == 1, NULL);
        assert_memory_equal(here, there, sizeof here);
        assert_true(here[0] != (float)(random_u64(SEED, RANDOM_TEST, 22, 0) % 1000003) * 1e-2f - 5000);
    }
}

/* From one part of the device's memory to another, as a shard is taken out of a sum. */
static void copies_within_the_device_move_every_byte(void **state) {
    (void)state;
    enum { BYTES = 4096 };
    char *block, expected[BYTES];
    assert_int_equal(cudaMalloc((void **)&block, 3 * BYTES), 0);
    memset(block, 1, 3 * BYTES);
    memset(expected, 1, BYTES);
    for (int i = 0; i < 1000; i++)
        block[i] = expected[i + 3] = (char)random_u64(SEED, RANDOM_TEST, 23, (uint64_t)i);
    backend_cuda.copy(block + BYTES + 3, block, 1000, NULL);
    assert_memory_equal(block + BYTES, expected, BYTES);
    assert_int_equal(block[2 * BYTES], 1);
    backend_cpu.copy(block + 2 * BYTES + 3, block, 1000, NULL);
    assert_memory_equal(block + 2 * BYTES, expected, BYTES);
    cudaFree(block);
}

/* The whole lists come with the first part alone. */
int main(void) {
    backend_cpu.set_threads(1);
    const struct CMUnitTest cases[] = {cmocka_unit_test(emulated_kernels_are_as_on_the_processor)};
    const struct CMUnitTest all[] = {cmocka_unit_test(sums_are_added_as_on_the_processor),
                                     cmocka_unit_test(copies_within_the_device_move_every_byte),
                                     cmocka_unit_test(updates_have_the_bits_of_the_processor),
                                     cmocka_unit_test(gradients_of_norms_have_the_same_bits_by_one_kernel_and_by_two),
                                     cmocka_unit_test(frequent_tokens_have_the_gradients_of_the_processor),
                                     cases[0]};
    return getenv("BALLAST_TEST_PART") ? cmocka_run_group_tests(cases, NULL, NULL)
                                       : cmocka_run_group_tests(all, NULL, NULL);
}

#else

int main(void) {
    printf("skipped: this build has no CUDA backend; needs the CUDA toolkit, 12 or later, and a C++ compiler\n");
    return TEST_SKIPPED;
}

#endif
