/* The table of CUDA's kernels: it needs no device to be asked. */
#include <stdio.h>

#include "support/op_instance.h"
#include "support/unit.h"

#ifdef BALLAST_CUDA

#include "backend/cuda/cuda_kernel.h"

static void test_every_operator_has_a_kernel(void **state) {
    (void)state;
    assert_int_equal(cuda_operator_count, op_table_count);
    for (int i = 0; i < op_table_count; i++) {
        assert_ptr_equal(cuda_operators[i].op, op_table[i]);
        assert_non_null(cuda_operators[i].create);
        assert_true(cuda_supports(op_table[i], DTYPE_F32));
        assert_true(cuda_supports(op_table[i], DTYPE_BF16));
        assert_false(cuda_supports(op_table[i], DTYPE_I32));
    }
}

static void test_an_unknown_operator_has_none(void **state) {
    (void)state;
    struct op unknown = {.name = "unknown"};
    assert_false(cuda_supports(&unknown, DTYPE_F32));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_operator_has_a_kernel),
        cmocka_unit_test(test_an_unknown_operator_has_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void) {
    printf("skipped: this build has no CUDA backend; needs the CUDA toolkit, 12 or later\n");
    return TEST_SKIPPED;
}

#endif
