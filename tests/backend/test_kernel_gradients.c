/* Gradients against finite differences, in fp32. For random directions d, computes the derivative of sum(dy * y)
 * along d from f(x + h d), f(x - h d), f(x + 2h d) and f(x - 2h d), with an error of order h^4. Sums the projection
 * in double. Covers every operator case, also those that the reference tensors lack: windows, views, addends,
 * nonzero accumulators. */
/* ctest-again: avx2 BALLAST_MAX_ISA=avx2 DNNL_MAX_CPU_ISA=AVX2 */
/* ctest-again: cuda BALLAST_TEST_BACKEND=cuda */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/random.h"
#include "support/op_instance.h"
#include "support/unit.h"

enum { SEED = 77, DIRECTIONS = 3 };
static const double step = 1.0 / 128, tolerance = 2e-3, smallest = 1e-2; /* gradients below are taken for rounding */

static double *read_tensor(const struct op_instance *instance, const struct tensor *tensor) {
    double *values = op_instance_read(instance, tensor);
    assert_non_null(values);
    return values;
}

static double dot(const double *a, const double *b, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

/* f: the forward node's first output times dy; of a loss, the loss times its scale. */
static double projection(struct op_instance *instance) {
    const struct tensor *y = instance->graph->nodes.items[instance->nodes - 2]->out[0];
    const struct tensor *dy = op_case_tensor(instance->graph, "dy");
    if (!dy) *(double *)instance->data[y->id] = 0;
    for (int i = 0; i + 1 < instance->nodes; i++)
        op_instance_run(instance, i);
    double *values = read_tensor(instance, y), result;
    if (dy) {
        double *factors = read_tensor(instance, dy);
        result = dot(values, factors, shape_elements(&y->shape));
        mem_free(factors);
    } else {
        result = values[0] * instance->scalars[SCALAR_LOSS_SCALE];
    }
    mem_free(values);
    return result;
}

/* The gradient that the kernel gave: without what it was added to. */
static double *kernel_gradient(struct op_instance *instance, const struct tensor *gradient) {
    op_instance_fill(instance, SEED);
    double *before = gradient->kind == TENSOR_GRADIENT ? read_tensor(instance, gradient) : NULL;
    const struct tensor *addend = op_case_tensor(instance->graph, "addend");
    if (!before && addend) before = read_tensor(instance, addend);
    op_instance_run_all(instance);
    double *after = read_tensor(instance, gradient);
    for (int64_t i = 0; before && i < shape_elements(&gradient->shape); i++)
        after[i] -= before[i];
    mem_free(before);
    return after;
}

static double shifted(struct op_instance *instance, const struct tensor *x, const double *values,
                      const double *direction, double by) {
    int64_t count = shape_elements(&x->shape);
    double *moved = mem_array((size_t)count, sizeof *moved);
    assert_non_null(moved);
    for (int64_t i = 0; i < count; i++)
        moved[i] = values[i] + by * direction[i];
    op_instance_write(instance, x, moved);
    mem_free(moved);
    return projection(instance);
}

static void check_tensor(const struct op_case *op_case, struct op_instance *instance, const struct tensor *x,
                         const struct tensor *gradient) {
    int64_t count = shape_elements(&x->shape);
    double *analytic = kernel_gradient(instance, gradient), *values = read_tensor(instance, x);
    double *direction = mem_array((size_t)count, sizeof *direction);
    assert_non_null(direction);
    double size = sqrt(dot(analytic, analytic, count));
    for (uint32_t d = 0; d < DIRECTIONS; d++) {
        for (int64_t i = 0; i < count; i++)
            direction[i] = random_uniform(SEED + 1, RANDOM_TEST, d, (uint64_t)i) < 0.5 ? -1 : 1;
        double near = shifted(instance, x, values, direction, step) - shifted(instance, x, values, direction, -step);
        double far =
            shifted(instance, x, values, direction, 2 * step) - shifted(instance, x, values, direction, -2 * step);
        double numeric = (8 * near - far) / (12 * step), expected = dot(analytic, direction, count);
        if (!(fabs(numeric - expected) <= tolerance * (size + smallest)))
            fail_msg("%s: the gradient %s (norm %g) along direction %u of seed %d is %g, by differences %g",
                     op_case->name, gradient->name, size, d, SEED, expected, numeric);
    }
    op_instance_write(instance, x, values);
    mem_free(analytic);
    mem_free(values);
    mem_free(direction);
}

/* Every tensor X that has a gradient named "d.X". Returns how many there are. */
static int check_case(const struct op_case *op_case) {
    struct op_instance instance;
    if (op_instance_create(op_case_build(op_case, DTYPE_F32, &op_case->sizes), &instance) != STATUS_OK)
        fail_msg("%s: %s", op_case->name, status_message());
    int checked = 0;
    for (size_t i = 0; i < instance.graph->tensors.count; i++) {
        const struct tensor *gradient = instance.graph->tensors.items[i];
        bool is_output = false;
        for (int k = 0; k < OP_OUTPUTS_MAX; k++)
            is_output = is_output || instance.node->out[k] == gradient;
        if (!is_output || strncmp(gradient->name, "d.", 2) != 0) continue;
        check_tensor(op_case, &instance, op_case_tensor(instance.graph, gradient->name + 2), gradient);
        checked++;
    }
    op_instance_free(&instance);
    return checked;
}

static void gradients_are_those_of_differences(void **state) {
    (void)state;
    int checked = 0;
    for (int i = 0; i < op_case_count; i++)
        if (unit_part(op_cases[i].name) && op_instance_has_kernel(op_cases[i].op)) checked += check_case(&op_cases[i]);
    assert_true(checked >= 40 || getenv("BALLAST_TEST_PART"));
}

int main(void) {
    const char *why;
    if (!op_instance_can_run(&why)) unit_skip_all("%s", why);
    const struct CMUnitTest tests[] = {cmocka_unit_test(gradients_are_those_of_differences)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
