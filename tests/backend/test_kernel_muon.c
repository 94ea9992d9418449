/* Muon's update of a matrix against plain loops in double, and its bits on any number of threads. */
/* ctest-again: avx2 BALLAST_MAX_ISA=avx2 DNNL_MAX_CPU_ISA=AVX2 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/half.h"
#include "base/mem.h"
#include "support/op_instance.h"
#include "support/unit.h"

static struct op_instance create(const char *name, enum dtype dtype) {
    for (int i = 0; i < op_case_count; i++) {
        struct op_instance instance;
        if (strcmp(op_cases[i].name, name) != 0) continue;
        if (op_instance_create(op_case_build(&op_cases[i], dtype, &op_cases[i].sizes), &instance) != STATUS_OK)
            fail_msg("%s: %s", name, status_message());
        op_instance_fill(&instance, 31);
        return instance;
    }
    fail_msg("no case %s", name);
    return (struct op_instance){0};
}

static double *values_of(const struct op_instance *instance, const char *name) {
    return op_instance_read(instance, op_case_tensor(instance->graph, name));
}

/* |found - expected| / |expected - before| */
static double off_by(int64_t count, const double *found, const double *expected, const double *before) {
    double difference = 0, moved = 0;
    for (int64_t i = 0; i < count; i++) {
        difference += (found[i] - expected[i]) * (found[i] - expected[i]);
        moved += (expected[i] - before[i]) * (expected[i] - before[i]);
    }
    return sqrt(difference / moved);
}

/* c [m][n] = a [m][k] b [k][n] */
static double *product(int64_t m, int64_t n, int64_t k, const double *a, const double *b) {
    double *c = mem_array((size_t)(m * n), sizeof *c);
    assert_non_null(c);
    for (int64_t i = 0; i < m; i++)
        for (int64_t p = 0; p < k; p++)
            for (int64_t j = 0; j < n; j++)
                c[i * n + j] += a[i * k + p] * b[p * n + j];
    return c;
}

static double *transposed(int64_t rows, int64_t columns, const double *x) {
    double *y = mem_array((size_t)(rows * columns), sizeof *y);
    assert_non_null(y);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            y[j * rows + i] = x[i * columns + j];
    return y;
}

/* x = a x + (b g + c g g) x with g = x xt, five times: as the paper has it, without the turn of tall matrices. */
static void plain_orthogonal(int64_t rows, int64_t columns, double *x) {
    double norm = 0;
    for (int64_t i = 0; i < rows * columns; i++)
        norm += x[i] * x[i];
    for (int64_t i = 0; i < rows * columns; i++)
        x[i] /= sqrt(norm);
    for (int step = 0; step < 5; step++) {
        double *xt = transposed(rows, columns, x), *g = product(rows, rows, columns, x, xt);
        double *gx = product(rows, columns, rows, g, x), *ggx = product(rows, columns, rows, g, gx);
        for (int64_t i = 0; i < rows * columns; i++)
            x[i] = 3.4445 * x[i] - 4.775 * gx[i] + 2.0315 * ggx[i];
        double *all[] = {xt, g, gx, ggx};
        for (int i = 0; i < 4; i++)
            mem_free(all[i]);
    }
}

static void plain_muon(const struct op_instance *instance, const double *gradient, double *m, double *w) {
    const struct update_attributes *at = NODE_ATTRIBUTES(instance->node, update_attributes);
    const int64_t *dims = instance->node->in[0]->shape.dims;
    double rate = instance->scalars[SCALAR_LEARNING_RATE], clip = 0.7, *u = mem_array((size_t)(dims[0] * dims[1]), 8);
    assert_non_null(u);
    for (int64_t i = 0; i < dims[0] * dims[1]; i++) {
        m[i] = at->beta1 * m[i] + (1 - at->beta1) * clip * gradient[i];
        u[i] = at->beta1 * m[i] + (1 - at->beta1) * clip * gradient[i];
    }
    plain_orthogonal(dims[0], dims[1], u);
    double factor = 0.2 * sqrt((double)(dims[0] > dims[1] ? dims[0] : dims[1]));
    for (int64_t i = 0; i < dims[0] * dims[1]; i++)
        w[i] -= rate * at->weight_decay * w[i] + rate * factor * u[i];
    mem_free(u);
}

/* Of what an update moves, how much of it may be wrong: in bf16 three operands of each product are rounded to 1 in 512,
 * and what is wrong of small singular values grows with them. */
static void check(const char *name, enum dtype dtype, const char *weight, double max_moment, double max) {
    struct op_instance instance = create(name, dtype);
    int64_t count = shape_elements(&instance.node->in[0]->shape);
    assert_true(((double *)instance.data[instance.node->in[1]->id])[1] == 0.7);
    double *g = values_of(&instance, "gradient"), *w = values_of(&instance, weight),
           *before = values_of(&instance, weight);
    bool quantized = op_case_tensor(instance.graph, "momentum_buffer")->shape.dtype == DTYPE_U8;
    double *m = quantized ? mem_array((size_t)count, sizeof *m) : values_of(&instance, "momentum_buffer");
    double *none = mem_array((size_t)count, sizeof *none);
    assert_true(m && none);
    if (quantized) /* all of them zero */
        memset(instance.data[op_case_tensor(instance.graph, "momentum_buffer_absmax")->id], 0,
               (size_t)(count + 255) / 256 * 4);
    plain_muon(&instance, g, m, w);
    op_instance_run_all(&instance);
    if (op_instance_overrun(&instance)) fail_msg("%s wrote outside %s", name, op_instance_overrun(&instance));
    double *moment = quantized ? NULL : values_of(&instance, "momentum_buffer"), *found = values_of(&instance, weight);
    double moment_off = quantized ? 0 : off_by(count, moment, m, none), off = off_by(count, found, w, before);
    print_message("%-16s %s: moment off by %.1e, weight by %.1e of its change\n", name, dtype_name(dtype), moment_off,
                  off);
    if (!(moment_off <= max_moment && off <= max)) fail_msg("%s: off by %.2e and %.2e", name, moment_off, off);
    double *all[] = {g, w, m, moment, found, before, none};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        mem_free(all[i]);
    op_instance_free(&instance);
}

static void updates_are_those_of_plain_c(void **state) {
    (void)state;
    const char *const shapes[] = {"muon", "muon.wide"};
    for (int i = 0; i < 2; i++) {
        check(shapes[i], DTYPE_F32, "weight", 1e-6, 1e-4);
        check(shapes[i], DTYPE_BF16, "master", 1e-6, 0.03);
    }
    check("muon.int8_state", DTYPE_F32, "weight", 1e-6, 1e-4);
    check("muon.int8_state", DTYPE_BF16, "master", 1e-6, 0.03);
    check("muon.no_master", DTYPE_F32, "weight", 0.01, 1e-4);
}

/* Rounded stochastically, and the parameter is the rounding of its master. */
static void weights_are_rounded_as_those_of_other_rules(void **state) {
    (void)state;
    struct op_instance with = create("muon", DTYPE_BF16);
    op_instance_run_all(&with);
    double *master = values_of(&with, "master"), *weight = values_of(&with, "weight");
    for (int64_t i = 0; i < shape_elements(&with.node->in[0]->shape); i++)
        assert_true(weight[i] == (double)bf16_to_float(bf16_from_float((float)master[i])));
    mem_free(master);
    mem_free(weight);
    op_instance_free(&with);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(updates_are_those_of_plain_c),
        cmocka_unit_test(weights_are_rounded_as_those_of_other_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
