/* How a GPU is made ready and what is left of its memory, where there is none: CUDA's functions are this file's. */
#include <string.h>

#include "support/unit.h"

#ifdef BALLAST_CUDA
#include <cublasLt.h>

#include "backend/backend.h"
#include "backend/cuda/cuda_device.h"
#include "backend/cuda_facts.h"

enum { MULTIPROCESSORS = 132 };

static struct runtime {
    size_t free_bytes;   /* before the library's handle is there */
    size_t handle_bytes; /* what that takes */
    bool context;        /* there is one, which waits asleep */
    bool handle;
    int kernels; /* loaded */
} runtime = {.free_bytes = (size_t)79 << 30, .handle_bytes = (size_t)96 << 20};

cudaError_t cudaGetDeviceCount(int *count) {
    *count = 2;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *out, int device) {
    assert_int_equal(device, 1);
    *out = (struct cudaDeviceProp){.name = "a card", .major = 9, .minor = 0, .multiProcessorCount = MULTIPROCESSORS};
    return cudaSuccess;
}

cudaError_t cudaInitDevice(int device, unsigned device_flags, unsigned flags) {
    assert_int_equal(device, 1);
    assert_int_equal(flags, cudaInitDeviceFlagsAreValid);
    assert_int_equal(device_flags, cudaDeviceScheduleBlockingSync);
    runtime.context = true;
    return cudaSuccess;
}

/* Makes the context where there is none, whose threads would spin. */
cudaError_t cudaSetDevice(int device) {
    assert_int_equal(device, 1);
    assert_true(runtime.context);
    return cudaSuccess;
}

enum { KERNEL_BYTES = 1 << 15 };

static size_t taken_bytes(void) {
    return (runtime.handle ? runtime.handle_bytes : 0) + (size_t)runtime.kernels * KERNEL_BYTES;
}

/* Loads the kernel. */
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *out, const void *kernel) {
    assert_true(runtime.context);
    assert_non_null(kernel);
    *out = (struct cudaFuncAttributes){0};
    runtime.kernels++;
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *there, size_t *all) {
    assert_true(runtime.context);
    *there = runtime.free_bytes - taken_bytes();
    *all = (size_t)80 << 30;
    return cudaSuccess;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
    static int place;
    assert_true(runtime.context);
    *handle = (cublasLtHandle_t)&place;
    runtime.handle = true;
    return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion(void) { return 130002; }

static void the_card_names_its_instruction_set(void **state) {
    (void)state;
    assert_int_equal(backend_cuda.select(1), STATUS_OK);
    assert_int_equal(backend_cuda.check(), STATUS_OK);
    assert_true(runtime.context);
    const char *isa = backend_cuda.isa();
    assert_string_equal(isa, "sm_90-132sm+cublaslt-13.0.2");
    assert_ptr_equal(backend_of_isa(isa), &backend_cuda);
}

/* What the library and the code of all kernels take is not offered to arenas. */
static void capacity_is_what_is_free(void **state) {
    (void)state;
    int64_t bytes[TIER_COUNT];
    assert_int_equal(backend_cuda.capacity(bytes), STATUS_OK);
    assert_true(runtime.handle);
    assert_true(runtime.kernels > 50); /* some thirty templates, most of them for two dtypes */
    assert_int_equal(bytes[TIER_DEVICE], (int64_t)(runtime.free_bytes - taken_bytes()) - CUDA_LATER_BYTES);
    runtime.kernels = 0;
    runtime.free_bytes = runtime.handle_bytes + ((size_t)64 << 20);
    assert_int_equal(backend_cuda.capacity(bytes), STATUS_OK);
    assert_int_equal(bytes[TIER_DEVICE], 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_card_names_its_instruction_set),
                                       cmocka_unit_test(capacity_is_what_is_free)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
int main(void) { unit_skip_all("this build has no CUDA backend; needs the CUDA toolkit, 12 or later"); }
#endif
