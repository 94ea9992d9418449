/* The list of operators that the CUDA backend implements. Needs no device. */
#include <stdio.h>

#include "support/op_instance.h"
#include "support/unit.h"

#ifdef BALLAST_CUDA

#include "backend/backend.h"
#include "profile/described_device.h"
#include "support/op_table.h"

static void a_described_gpu_implements_the_same(void **state) {
    (void)state;
    int count = 0;
    for (int i = 0; i < op_table_count; i++) {
        bool here = backend_has_kernel(&backend_cuda, op_table[i]);
        if (here != backend_has_kernel(&backend_described, op_table[i])) fail_msg("%s", op_table[i]->name);
        count += here;
    }
    assert_true(count > 0);
}

static void an_unknown_operator_has_none(void **state) {
    (void)state;
    struct op unknown = {.name = "unknown"};
    assert_false(backend_has_kernel(&backend_cuda, &unknown));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_described_gpu_implements_the_same),
        cmocka_unit_test(an_unknown_operator_has_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void) {
    printf("skipped: this build has no CUDA backend; needs the CUDA toolkit, 12 or later\n");
    return TEST_SKIPPED;
}

#endif
