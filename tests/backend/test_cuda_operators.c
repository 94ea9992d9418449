/* The table of CUDA's kernels: it needs no device to be asked. */
#include <stdio.h>

#include "support/op_instance.h"
#include "support/unit.h"

#ifdef BALLAST_CUDA

#include "backend/backend.h"
#include "support/op_table.h"

static void every_operator_has_a_kernel(void **state) {
    (void)state;
    for (int i = 0; i < op_table_count; i++)
        if (!backend_has_kernel(&backend_cuda, op_table[i])) fail_msg("%s has no kernel", op_table[i]->name);
}

static void an_unknown_operator_has_none(void **state) {
    (void)state;
    struct op unknown = {.name = "unknown"};
    assert_false(backend_has_kernel(&backend_cuda, &unknown));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operator_has_a_kernel),
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
