/* Failures of CUDA's runtime and of cuBLASLt, without a device (tests/cuda_emulator): whichever call of a kernel
 * fails, from its creation to the end of its run, the failure is reported, and the process continues. */
/* ctest: LABELS long */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "support/fault_sweep.h"
#include "support/op_instance.h"
#include "support/unit.h"

#ifdef BALLAST_CUDA_EMULATED

#include "cuda_emulator/emulated_faults.h"
#include "support/cuda_kernels.h"

/* Operands of the CPU's kernel, whose memory is that of the emulated device. */
static void open_case(const struct op_case *op_case, enum dtype dtype, struct op_instance *out) {
    setenv("BALLAST_TEST_BACKEND", "cpu", 1);
    if (op_instance_create(op_case_build(op_case, dtype, &op_case->sizes), out) != STATUS_OK)
        fail_msg("%s: %s", op_case->name, status_message());
    op_instance_fill(out, 1);
    op_instance_run_all(out);
}

static enum status create_and_run(void *of) {
    struct op_instance *instance = of;
    struct kernel_call call = instance->calls[instance->nodes - 1];
    struct kernel *kernel;
    TRY(cuda_kernel_create(instance->node, &kernel));
    call.workspace = mem_aligned(256, ((size_t)kernel->workspace_bytes / 256 + 1) * 256);
    enum status status = call.workspace ? kernel->run(kernel, &call) : STATUS_FAILED;
    mem_free(call.workspace);
    kernel->release(kernel);
    return status;
}

static void sweep(const struct op_case *op_case, enum dtype dtype) {
    struct op_instance instance;
    open_case(op_case, dtype, &instance);
    for (int sticky = 0; sticky < 2; sticky++)
        if (fault_sweep(FAULT_DEVICE, sticky, create_and_run, &instance) == 0)
            fail_msg("%s asks the device for nothing", op_case->name);
    op_instance_free(&instance);
}

/* One of each operator: its other cases make the same calls. */
static void every_call_may_fail(void **state) {
    (void)state;
    const struct op *before = NULL;
    for (int i = 0; i < op_case_count; i++) {
        if (op_cases[i].op == before && !unit_sweep(0, 1)) continue;
        if (!backend_has_kernel(&backend_cuda, op_cases[i].op)) continue;
        before = op_cases[i].op;
        sweep(&op_cases[i], DTYPE_BF16);
        if (unit_sweep(0, 1)) sweep(&op_cases[i], DTYPE_F32);
    }
}

static const struct op_case *case_of(const struct op *op) {
    for (int i = 0; i < op_case_count; i++)
        if (op_cases[i].op == op) return &op_cases[i];
    fail_msg("no case of %s", op->name);
    return NULL;
}

/* A product is the first call after a kernel has failed: cuBLASLt has words of its own for that, the device the right
 * ones. */
static void a_failed_device_is_reported(void **state) {
    (void)state;
    struct op_instance instance;
    struct kernel *kernel;
    open_case(case_of(&op_linear), DTYPE_F32, &instance);
    struct kernel_call call = instance.calls[instance.nodes - 1];
    assert_int_equal(cuda_kernel_create(instance.node, &kernel), STATUS_OK);
    call.workspace = mem_aligned(256, ((size_t)kernel->workspace_bytes / 256 + 1) * 256);
    emulated_device_fail(cudaErrorIllegalAddress);
    enum status failed = kernel->run(kernel, &call);
    emulated_device_fail(cudaSuccess);
    assert_int_equal(failed, STATUS_FAILED);
    assert_non_null(strstr(status_message(), "CUDA: "));
    assert_non_null(strstr(status_hint_text(), "CUDA_LAUNCH_BLOCKING"));
    assert_int_equal(kernel->run(kernel, &call), STATUS_OK);
    fault_arm(FAULT_DEVICE, 1, false);
    assert_int_equal(kernel->run(kernel, &call), STATUS_FAILED);
    assert_string_equal(status_message(), "cuBLASLt: a product: bad");
    assert_non_null(strstr(status_hint_text(), "CUBLASLT_LOG_LEVEL"));
    kernel->release(kernel);
    mem_free(call.workspace);
    op_instance_free(&instance);
}

int main(void) {
    backend_cpu.set_threads(1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_call_may_fail),
                                       cmocka_unit_test(a_failed_device_is_reported)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void) {
    unit_skip_all("this build has no CUDA backend; needs the CUDA toolkit, 12 or later, and a C++ compiler");
}

#endif
