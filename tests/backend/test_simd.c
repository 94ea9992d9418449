/* Elementary functions of the vector kernels: rounding, exponentials and activations against the C library in
 * double. Some must be the same on every instruction set. */
/* ctest-again: avx2 BALLAST_MAX_ISA=avx2 DNNL_MAX_CPU_ISA=AVX2 */
#include <math.h>
#include <string.h>

#include "backend/cpu/kernel.h"
#include "base/half.h"
#include "base/mem.h"
#include "base/random.h"
#include "support/unit.h"

enum { COUNT = 1 << 16 };

static float *floats(size_t count) {
    float *values = mem_array(count, sizeof *values);
    assert_non_null(values);
    return values;
}

/* From `min` to `max` in equal steps. */
static void sweep(float *values, double min, double max) {
    for (int i = 0; i < COUNT; i++)
        values[i] = (float)(min + (max - min) * i / (COUNT - 1));
}

/* Upper halves of all kinds, with lower halves around the tie. */
static void bf16_is_rounded_to_nearest_even(void **state) {
    (void)state;
    const uint32_t lower[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
    float *values = floats(COUNT);
    uint16_t *rounded = mem_array(COUNT, sizeof *rounded);
    assert_non_null(rounded);
    for (unsigned k = 0; k < sizeof lower / sizeof *lower; k++) {
        for (uint32_t i = 0; i < COUNT; i++)
            values[i] = float_from_bits(i << 16 | lower[k]);
        cpu_simd()->scale(COUNT, DTYPE_F32, values, 1, DTYPE_BF16, rounded);
        for (uint32_t i = 0; i < COUNT; i++) {
            /* a signalling NaN is made quiet by the multiplication, in its highest fraction bit */
            uint16_t expected = bf16_from_float(values[i]);
            if (isnan(values[i])) expected |= 0x40;
            if (rounded[i] != expected)
                fail_msg("%08x rounds to %04x, not %04x", float_bits(values[i]), rounded[i], expected);
        }
    }
    mem_free(values);
    mem_free(rounded);
}

/* Distance in units of the last place of the expected value. */
static double ulps(float found, double expected) {
    int exponent;
    frexp(expected, &exponent);
    return fabs((double)found - expected) / ldexp(1, exponent - 24);
}

static void exponentials_are_within_bounds(void **state) {
    (void)state;
    float *x = floats(COUNT), *y = floats(COUNT);
    sweep(x, -87.3, 88.7);
    cpu_simd()->softmax(DTYPE_F32, COUNT, x, 0, 1, 0, y);
    for (int i = 0; i < COUNT; i++)
        if (ulps(y[i], exp((double)x[i])) > 1.5) fail_msg("exp(%.9g) = %.9g", (double)x[i], (double)y[i]);
    const float ends[] = {-87.5f, -1e3f, -1e30f, -INFINITY, 88.8f, 1e30f, INFINITY, NAN, 0.0f};
    enum { ENDS = sizeof ends / sizeof *ends };
    cpu_simd()->softmax(DTYPE_F32, ENDS, ends, 0, 1, 0, y);
    for (int i = 0; i < 4; i++)
        assert_true(y[i] == 0);
    for (int i = 4; i < 7; i++)
        assert_true(isinf(y[i]) && y[i] > 0);
    assert_true(isnan(y[7]) && y[8] == 1);
    mem_free(x);
    mem_free(y);
}

static void soft_caps_are_within_bounds(void **state) {
    (void)state;
    float *x = floats(COUNT), *y = floats(COUNT);
    for (double max = 1e-3; max < 30; max *= 9) {
        sweep(x, -max, max);
        memcpy(y, x, COUNT * sizeof *y);
        cpu_simd()->soft_cap(COUNT, 1, y);
        for (int i = 0; i < COUNT; i++)
            if (ulps(y[i], tanh((double)x[i])) > 2) fail_msg("tanh(%.9g) = %.9g", (double)x[i], (double)y[i]);
    }
    float ends[] = {-INFINITY, -1e30f, 1e30f, INFINITY, 0.0f, NAN};
    cpu_simd()->soft_cap(sizeof ends / sizeof *ends, 1, ends);
    assert_true(ends[0] == -1 && ends[1] == -1 && ends[2] == 1 && ends[3] == 1 && ends[4] == 0 && isnan(ends[5]));
    mem_free(x);
    mem_free(y);
}

static double plain_activation(enum activation function, double x) {
    switch (function) {
    case ACTIVATION_GELU_TANH: return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
    case ACTIVATION_GELU_ERF: return 0.5 * x * (1 + erf(x * 0.70710678118654752440));
    case ACTIVATION_RELU: return x > 0 ? x : 0;
    case ACTIVATION_SILU: return x / (1 + exp(-x));
    }
    return 0;
}

/* Near the tail of -x the value is small compared with x: errors are measured against the larger of both. */
static void activations_are_within_bounds(void **state) {
    (void)state;
    float *x = floats(COUNT), *y = floats(COUNT);
    sweep(x, -12, 12);
    for (int k = 0; k < ACTIVATION_COUNT; k++) {
        cpu_simd()->activation(DTYPE_F32, (enum activation)k, COUNT, x, y);
        for (int i = 0; i < COUNT; i++) {
            double expected = plain_activation((enum activation)k, (double)x[i]);
            if (fabs((double)y[i] - expected) > 3e-7 * fmax(fabs((double)x[i]), fabs(expected)))
                fail_msg("%s(%.9g) is %.9g, not %.9g", activation_name((enum activation)k), (double)x[i], (double)y[i],
                         expected);
        }
    }
    mem_free(x);
    mem_free(y);
}

#if defined(__x86_64__)
/* Sums of squares and updates are the same whatever the instruction set. */
static void instruction_sets_give_the_same_bits(void **state) {
    (void)state;
    if (strcmp(cpu_simd()->name, "avx512") != 0) unit_skip("only one instruction set here; needs AVX-512");
    enum { ODD_COUNT = 1003 };
    const struct update_step step = {0.999f, 0.7f, 0.9f, 0.95f, 0.1f, 0.05f, 3e-3f, 1.7f, 1e-8f, 77, 3, 12};
    const struct simd_kernels *const tables[] = {&simd_kernels_avx512, &simd_kernels_avx2};
    float *values[2];
    for (int t = 0; t < 2; t++) {
        values[t] = floats((size_t)4 * ODD_COUNT);
        for (int i = 0; i < 4 * ODD_COUNT; i++)
            values[t][i] = (float)random_normal(9, RANDOM_TEST, 0, (uint64_t)i);
        for (int i = 3 * ODD_COUNT; i < 4 * ODD_COUNT; i++)
            values[t][i] = fabsf(values[t][i]);
        float direction[ODD_COUNT] = {0};
        const struct update_run run = {.gradient = values[t],
                                       .direction = direction,
                                       .weight = values[t] + ODD_COUNT,
                                       .moments = {values[t] + 2 * ODD_COUNT, values[t] + 3 * ODD_COUNT}};
        uint8_t codes[2][ODD_COUNT] = {{0}};
        float scales[2][(ODD_COUNT + UPDATE_SCALE_BLOCK - 1) / UPDATE_SCALE_BLOCK] = {{1e-3f, 2, 0, 3},
                                                                                      {0.5f, 0, 1, 4}};
        struct update_run packed = run;
        for (int i = 0; i < 2; i++) {
            packed.moments[i] = codes[i];
            packed.scales[i] = scales[i];
        }
        for (int rule = 0; rule < UPDATE_RULE_COUNT; rule++) {
            tables[t]->update((enum update_rule)rule, ODD_COUNT, &step, &run);
            for (int i = update_rule_moments((enum update_rule)rule); i < 2; i++)
                packed.scales[i] = NULL;
            tables[t]->update((enum update_rule)rule, ODD_COUNT, &step, &packed);
        }
        tables[t]->follow(DTYPE_F32, ODD_COUNT, &step, &run, direction);
        tables[t]->mix(DTYPE_F32, ODD_COUNT, 0.3f, -1.7f, direction, values[t] + 2 * ODD_COUNT);
        /* The weights depend on all of them; so do these. */
        for (int i = 0; i < ODD_COUNT; i++)
            values[t][i] += (float)codes[0][i] + 256 * (float)codes[1][i];
    }
    assert_memory_equal(values[0], values[1], (size_t)4 * ODD_COUNT * sizeof(float));
    assert_true(tables[0]->squared_sum(ODD_COUNT, values[0]) == tables[1]->squared_sum(ODD_COUNT, values[0]));
    mem_free(values[0]);
    mem_free(values[1]);
}
#endif

static int check_isa(void **state) {
    (void)state;
    return cpu_isa_check() == STATUS_OK ? 0 : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bf16_is_rounded_to_nearest_even),
        cmocka_unit_test(exponentials_are_within_bounds),
        cmocka_unit_test(soft_caps_are_within_bounds),
        cmocka_unit_test(activations_are_within_bounds),
#if defined(__x86_64__)
        cmocka_unit_test(instruction_sets_give_the_same_bits),
#endif
    };
    return cmocka_run_group_tests(tests, check_isa, NULL);
}
