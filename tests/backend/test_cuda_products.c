/* GEMM algorithms that a recipe names, without a device (tests/cuda_emulator). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "plan/recipe.h"
#include "support/cuda_kernels.h"
#include "support/op_instance.h"
#include "support/unit.h"

#ifdef BALLAST_CUDA_EMULATED

/* Of the CUDA backend (backend/cuda/matmul.h). */
enum status cuda_matmul_pin(const char *lines);
enum status cuda_matmul_list(const char **lines);

static char lines[4096];

static void open_linear(struct op_instance *out) {
    int i = 0;
    while (op_cases[i].op != &op_linear)
        i++;
    setenv("BALLAST_TEST_BACKEND", "cpu", 1);
    assert_int_equal(op_instance_create(op_case_build(&op_cases[i], DTYPE_F32, &op_cases[i].sizes), out), STATUS_OK);
}

/* Creates the kernel; `lines` are then its products. */
static enum status make(const struct op_instance *instance) {
    struct kernel *kernel;
    TRY(cuda_kernel_create(instance->node, &kernel));
    const char *listed = NULL;
    enum status status = cuda_matmul_list(&listed);
    snprintf(lines, sizeof lines, "%s", listed ? listed : "");
    kernel->release(kernel);
    return status;
}

static void algorithms_are_pinned(void **state) {
    (void)state;
    struct op_instance instance;
    char first[1024], product[256];
    open_linear(&instance);
    assert_int_equal(make(&instance), STATUS_OK);
    snprintf(first, sizeof first, "%.1000s", lines);
    snprintf(product, sizeof product, "%.*s", (int)strcspn(lines, " "), lines);
    assert_int_equal(strncmp(product, "fp32>fp32:", 10), 0);
    assert_int_equal(strcspn(lines, "\n") + 1, strlen(lines));

    /* Another algorithm than the library's first, next to what is of other products. */
    char *algorithm = lines + strlen(product) + 1;
    algorithm[0] = '0', algorithm[1] = '1';
    char given[2048];
    snprintf(given, sizeof given, "%s,0 ffff\n%s", product, lines);
    assert_string_not_equal(lines, first);
    assert_int_equal(cuda_matmul_pin(given), STATUS_OK);
    assert_int_equal(make(&instance), STATUS_OK);
    assert_string_equal(lines, strchr(given, '\n') + 1);

    /* One that the library does not take. */
    snprintf(given, sizeof given, "%s 03\n", product);
    assert_int_equal(cuda_matmul_pin(given), STATUS_OK);
    assert_int_equal(make(&instance), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "recipe: products: "));
    assert_non_null(strstr(status_message(), product));
    assert_non_null(strstr(status_hint_text(), "train anew"));

    assert_int_equal(cuda_matmul_pin(""), STATUS_OK);
    assert_int_equal(make(&instance), STATUS_OK);
    assert_string_equal(lines, first);
    op_instance_free(&instance);
}

static void no_memory(void **state) {
    (void)state;
    struct op_instance instance;
    struct kernel *kernel;
    const char *listed;
    open_linear(&instance);
    assert_int_equal(cuda_matmul_list(&listed), STATUS_OK);
    assert_null(listed);
    assert_int_equal(cuda_kernel_create(instance.node, &kernel), STATUS_OK);
    recipe_lines_forget();
    for (int64_t nth = 1; nth <= 3; nth++) { /* the lines, their copy, its place in the list */
        fault_arm(FAULT_ALLOCATE, nth, false);
        assert_int_equal(cuda_matmul_list(&listed), STATUS_FAILED);
        fault_arm(FAULT_ALLOCATE, 0, false);
    }
    assert_int_equal(cuda_matmul_list(&listed), STATUS_OK);
    assert_non_null(listed);
    kernel->release(kernel);
    op_instance_free(&instance);
}

int main(void) {
    backend_cpu.set_threads(1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(algorithms_are_pinned), cmocka_unit_test(no_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void) {
    unit_skip_all("this build has no CUDA backend; needs the CUDA toolkit, 12 or later, and a C++ compiler");
}

#endif
