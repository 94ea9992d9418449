/* cuBLASLt is opened at its first use. Needs no device. */
#include "support/unit.h"

#ifdef BALLAST_CUDA
#include <cublasLt.h>

static void it_is_opened_on_first_use(void **state) {
    cublasLtMatrixLayoutOpaque_t layout;
    (void)state;
    assert_int_equal(cublasLtGetVersion() / 10000, CUBLAS_VER_MAJOR);
    assert_int_equal(cublasLtMatrixLayoutInit(&layout, CUDA_R_32F, 2, 3, 2), CUBLAS_STATUS_SUCCESS);
    assert_string_equal(cublasLtGetStatusString(CUBLAS_STATUS_SUCCESS), "success");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(it_is_opened_on_first_use)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
int main(void) { unit_skip_all("this build has no CUDA backend; needs the CUDA toolkit, 12 or later"); }
#endif
