/* Kernels of all operator cases. Results are complete and finite whatever the memory contained, nothing is written
 * outside them, and the bits are the same in every run, in place, and with any number of threads. */
/* ctest: PROCESSORS 2 */
/* ctest-again: avx2 BALLAST_MAX_ISA=avx2 DNNL_MAX_CPU_ISA=AVX2 */
/* ctest-again: cuda BALLAST_TEST_BACKEND=cuda */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "base/mem.h"
#include "support/op_instance.h"
#include "support/op_table.h"
#include "support/unit.h"

static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16};
enum { SEED = 20240607 };

static struct op_instance create(const struct op_case *op_case, enum dtype dtype) {
    struct op_instance instance;
    if (op_instance_create(op_case_build(op_case, dtype, &op_case->sizes), &instance) != STATUS_OK)
        fail_msg("%s in %s: %s", op_case->name, dtype_name(dtype), status_message());
    op_instance_fill(&instance, SEED);
    return instance;
}

static void each_case(void (*check)(const struct op_case *op_case, enum dtype dtype)) {
    for (int i = 0; i < op_case_count; i++)
        for (int d = 0; d < 2 && op_instance_has_kernel(op_cases[i].op) && (d == 1 || unit_part(op_cases[i].name)); d++)
            check(&op_cases[i], dtypes[d]);
}

static void check_complete(const struct op_case *op_case, enum dtype dtype) {
    struct op_instance instance = create(op_case, dtype);
    op_instance_run_all(&instance);
    for (int i = 0; i < OP_OUTPUTS_MAX; i++) {
        const struct tensor *tensor = instance.node->out[i];
        if (!tensor) continue;
        double *values = op_instance_read(&instance, tensor);
        for (int64_t k = 0; k < shape_elements(&tensor->shape); k++)
            if (!isfinite(values[k]))
                fail_msg("%s in %s: element %lld of %s is %g", op_case->name, dtype_name(dtype), (long long)k,
                         tensor->name, values[k]);
        mem_free(values);
    }
    const char *overrun = op_instance_overrun(&instance);
    if (overrun) fail_msg("%s in %s wrote outside %s", op_case->name, dtype_name(dtype), overrun);
    op_instance_free(&instance);
}

static void outputs_are_complete_and_within_bounds(void **state) {
    (void)state;
    each_case(check_complete);
}

/* The name of an output that differs; NULL: none. */
static const char *find_difference(const struct op_instance *a, const struct op_instance *b) {
    const char *found = NULL;
    for (int i = 0; i < OP_OUTPUTS_MAX && !found; i++) {
        const struct tensor *tensor = a->node->out[i];
        if (!tensor) continue;
        double *left = op_instance_read(a, tensor), *right = op_instance_read(b, b->node->out[i]);
        size_t bytes = (size_t)shape_elements(&tensor->shape) * sizeof *left;
        if (memcmp(left, right, bytes) != 0) found = tensor->name;
        mem_free(left);
        mem_free(right);
    }
    return found;
}

/* Ends the test where an output differs. */
static void expect_same(const struct op_case *op_case, const struct op_instance *a, const struct op_instance *b,
                        const char *what) {
    const char *name = find_difference(a, b);
    if (name) fail_msg("%s in %s: %s differs %s", op_case->name, dtype_name(a->graph->dtype), name, what);
}

static void check_repeatable(const struct op_case *op_case, enum dtype dtype) {
    struct op_instance first = create(op_case, dtype), second = create(op_case, dtype);
    op_instance_run_all(&first);
    for (int run = 0; run < 3; run++) {
        op_instance_fill(&second, SEED);
        op_instance_run_all(&second);
        expect_same(op_case, &first, &second, "from run to run");
    }
    op_instance_free(&first);
    op_instance_free(&second);
}

static void the_same_call_gives_the_same_bits(void **state) {
    (void)state;
    each_case(check_repeatable);
}

static void check_threads(const struct op_case *op_case, enum dtype dtype) {
    static const int counts[] = {2, 3, 4, 7, 8, 16};
    backend_cpu.set_threads(1);
    struct op_instance one = create(op_case, dtype);
    op_instance_run_all(&one);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        backend_cpu.set_threads(counts[i]);
        struct op_instance more = create(op_case, dtype);
        op_instance_run_all(&more);
        expect_same(op_case, &one, &more, "with the number of threads");
        op_instance_free(&more);
    }
    op_instance_free(&one);
}

static void threads_change_no_bit(void **state) {
    (void)state;
    if (op_instance_on_cuda()) unit_skip("a GPU has no number of threads; needs the CPU backend");
    each_case(check_threads);
    backend_cpu.set_threads(2);
}

/* Output 0 takes over the buffer of the input that the operator names. Views keep their own place. */
static void check_in_place(const struct op_case *op_case, enum dtype dtype) {
    int input = op_case->op->in_place_input - 1;
    if (input < 0 || (op_case->flags & CASE_VIEWS)) return;
    struct op_instance apart = create(op_case, dtype), together = create(op_case, dtype);
    if (together.node->in[input] && together.node->out[0]) {
        op_instance_run_all(&apart);
        for (int i = 0; i + 1 < together.nodes; i++)
            op_instance_run(&together, i);
        op_instance_run_in_place(&together, together.nodes - 1, input);
        expect_same(op_case, &apart, &together, "in place");
    }
    op_instance_free(&apart);
    op_instance_free(&together);
}

static void results_in_place_are_the_same(void **state) {
    (void)state;
    each_case(check_in_place);
}

static void every_operator_has_a_case(void **state) {
    (void)state;
    for (int i = 0; i < op_table_count; i++) {
        bool found = false;
        for (int k = 0; k < op_case_count; k++)
            found = found || op_cases[k].op == op_table[i];
        if (!found) fail_msg("no case of %s (tests/support/op_cases.c)", op_table[i]->name);
        assert_true(backend_has_kernel(&backend_cpu, op_table[i]));
    }
}

/* Forward and gradient, so that a new function is compared with differences too (test_kernel_gradients.c). */
static void every_activation_has_cases(void **state) {
    (void)state;
    for (int function = 0; function < ACTIVATION_COUNT; function++) {
        bool forward = false, gradient = false;
        for (int k = 0; k < op_case_count; k++) {
            if (op_cases[k].function != (enum activation)function) continue;
            forward |= op_cases[k].op == &op_activation;
            gradient |= op_cases[k].op == &op_activation_grad;
        }
        if (!forward || !gradient)
            fail_msg("no case of %s (tests/support/op_cases.c)", activation_name((enum activation)function));
    }
}

/* Instances have NULL for the values of a step where the operator does not say that it reads them, so that no test of a
 * kernel that reads them all the same gets past it. What says so does read them. */
static void check_scalars(const struct op_case *op_case, enum dtype dtype) {
    struct op_instance plain = create(op_case, dtype), other = create(op_case, dtype);
    other.scalars[SCALAR_LOSS_SCALE] *= 2;
    other.scalars[SCALAR_LEARNING_RATE] *= 2;
    if (other.scalars[SCALAR_NEW_TOKENS] > 1) other.scalars[SCALAR_NEW_TOKENS] -= 1;
    assert_true((other.calls[other.nodes - 1].scalars != NULL) == op_case->op->reads_scalars);
    op_instance_run_all(&plain);
    op_instance_run_all(&other);
    if ((find_difference(&plain, &other) != NULL) != op_case->op->reads_scalars)
        fail_msg("%s in %s: reads_scalars is wrong", op_case->name, dtype_name(dtype));
    op_instance_free(&plain);
    op_instance_free(&other);
}

static void scalars_are_read_where_declared(void **state) {
    (void)state;
    each_case(check_scalars);
}

/* Each allocation of a kernel that is created fails in turn: a message, no kernel, no leak. */
static void check_out_of_memory(const struct op_case *op_case, enum dtype dtype) {
    struct op_instance instance = create(op_case, dtype);
    for (int64_t nth = 1; nth < 100; nth++) {
        struct kernel *kernel = NULL;
        fault_arm(FAULT_ALLOCATE, nth, false);
        enum status status = op_instance_kernel(instance.node, &kernel);
        fault_arm(FAULT_ALLOCATE, 0, false);
        if (status == STATUS_OK) {
            kernel->release(kernel);
            break;
        }
        assert_int_equal(status, STATUS_FAILED);
        assert_null(kernel);
        assert_non_null(strstr(status_message(), "out of memory"));
    }
    op_instance_free(&instance);
}

static void allocations_may_fail(void **state) {
    (void)state;
    each_case(check_out_of_memory);
}

static void zeroes_are_written(void **state) {
    (void)state;
    enum { BYTES = (3 << 20) + 17 };
    unsigned char *bytes = mem_array(BYTES + 1, 1);
    assert_non_null(bytes);
    memset(bytes, 7, BYTES + 1);
    backend_cpu.zero(bytes, BYTES, NULL);
    for (int i = 0; i < BYTES; i++)
        assert_int_equal(bytes[i], 0);
    assert_int_equal(bytes[BYTES], 7);
    mem_free(bytes);
}

/* A run that is asked to keep to an instruction set says so. */
static void the_instruction_set_is_held(void **state) {
    (void)state;
    const char *max = getenv("BALLAST_MAX_ISA");
    if (max) assert_string_equal(backend_cpu.isa(), max);
    assert_string_not_equal(backend_cpu.isa(), "none");
}

int main(void) {
    const char *why;
    if (!op_instance_can_run(&why)) unit_skip_all("%s", why);
    backend_cpu.set_threads(2);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operator_has_a_case),
        cmocka_unit_test(every_activation_has_cases),
        cmocka_unit_test(outputs_are_complete_and_within_bounds),
        cmocka_unit_test(the_same_call_gives_the_same_bits),
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(results_in_place_are_the_same),
        cmocka_unit_test(scalars_are_read_where_declared),
        cmocka_unit_test(allocations_may_fail),
        cmocka_unit_test(zeroes_are_written),
        cmocka_unit_test(the_instruction_set_is_held),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
