/* Initialization of a GPU, its free memory and pinned host memory, on a machine without one: this file defines CUDA's
 * functions. */
#include <string.h>
#include <sys/mman.h>

#include "support/unit.h"

#ifdef BALLAST_CUDA
#include <cublasLt.h>

#include "backend/backend.h"
#include "backend/cuda/kernel.h"
#include "backend/cuda_constants.h"
#include "base/fault.h"
#include "runtime/store/arena.h"
#include "support/temp_folder.h"

enum { MULTIPROCESSORS = 132 };

static struct runtime {
    size_t free_bytes;   /* before the library's handle is there */
    size_t handle_bytes; /* what that takes */
    bool context;        /* there is one, which waits asleep */
    bool handle;
    int kernels;         /* loaded */
    cudaError_t pinning; /* the result of cudaHostRegister */
    void *pinned;        /* the block that is registered, one at a time */
    void *refused;       /* the last block that was not */
} runtime = {.free_bytes = (size_t)79 << 30, .handle_bytes = (size_t)96 << 20};

cudaError_t cudaGetDeviceCount(int *count) {
    *count = 2;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *out, int device) {
    assert_int_equal(device, 1);
    *out = (struct cudaDeviceProp){.name = "a GPU", .major = 9, .minor = 0, .multiProcessorCount = MULTIPROCESSORS};
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

const char *cudaGetErrorString(cudaError_t error) { return error == cudaSuccess ? "no error" : "refused here"; }

cudaError_t cudaGetLastError(void) { return cudaSuccess; }

enum { PAGE = 4096, PAGES_MAX = 4096 };

static int resident_pages(void *base, size_t bytes) {
    static unsigned char pages[PAGES_MAX];
    size_t count = (bytes + PAGE - 1) / PAGE;
    int resident = 0;
    assert_true(count <= PAGES_MAX);
    if (mincore(base, bytes, pages) != 0) return -1;
    for (size_t i = 0; i < count; i++)
        resident += pages[i] & 1;
    return resident;
}

cudaError_t cudaHostRegister(void *base, size_t bytes, unsigned flags) {
    assert_int_equal(flags, cudaHostRegisterPortable);
    assert_int_equal(resident_pages(base, bytes), (bytes + PAGE - 1) / PAGE);
    assert_null(runtime.pinned);
    if (runtime.pinning == cudaSuccess)
        runtime.pinned = base;
    else
        runtime.refused = base;
    return runtime.pinning;
}

cudaError_t cudaHostUnregister(void *base) {
    assert_ptr_equal(base, runtime.pinned);
    assert_int_not_equal(resident_pages(base, PAGE), -1);
    runtime.pinned = NULL;
    return cudaSuccess;
}

static void the_gpu_names_its_instruction_set(void **state) {
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
    int64_t bytes[TIER_COUNT], left;
    assert_int_equal(backend_cuda.capacity(bytes), STATUS_OK);
    assert_true(runtime.handle);
    assert_true(runtime.kernels > 50); /* some thirty templates, most of them for two dtypes */
    assert_int_equal(bytes[TIER_DEVICE],
                     (int64_t)(runtime.free_bytes - taken_bytes()) - CUDA_GRAPH_BYTES - CUDA_CODE_BYTES);
    /* Once every kernel was called, the code is part of what is taken. */
    assert_int_equal(backend_cuda.left_bytes(&left), STATUS_OK);
    assert_int_equal(left, (int64_t)(runtime.free_bytes - taken_bytes()) - CUDA_GRAPH_BYTES);
    runtime.kernels = 0;
    runtime.free_bytes = runtime.handle_bytes + ((size_t)64 << 20);
    assert_int_equal(backend_cuda.capacity(bytes), STATUS_OK);
    assert_int_equal(bytes[TIER_DEVICE], 0);
}

/* Of all sizes: a whole page, less, more, and more than a huge page. */
static const int64_t host_sizes[] = {1, PAGE, PAGE + 1, 3 << 20};
enum { HOST_SIZES = sizeof host_sizes / sizeof *host_sizes };

static void host_arenas_are_pinned_pages(void **state) {
    (void)state;
    const struct arena_settings settings = {.memory = backend_cuda.memory};
    for (int i = 0; i < HOST_SIZES; i++) {
        struct arena arena;
        assert_int_equal(arena_open(TIER_HOST, host_sizes[i], &settings, &arena), STATUS_OK);
        char *base = arena.base;
        assert_ptr_equal(runtime.pinned, base);
        assert_int_equal((uintptr_t)base % PAGE, 0);
        assert_int_equal(base[0] | base[host_sizes[i] - 1], 0);
        memset(base, 1, (size_t)host_sizes[i]);
        arena_close(&arena);
        assert_null(runtime.pinned);
        assert_int_equal(resident_pages(base, PAGE), -1); /* unmapped */
    }
}

/* The disk store refuses addresses that are not aligned to DISK_ALIGNMENT. */
static void the_disk_takes_host_arenas(void **state) {
    const struct arena_settings on_disk = {.folder = *state, .channels = 1}, on_host = {.memory = backend_cuda.memory};
    struct arena disk, host;
    assert_int_equal(arena_open(TIER_DISK, DISK_ALIGNMENT, &on_disk, &disk), STATUS_OK);
    assert_int_equal(arena_open(TIER_HOST, DISK_ALIGNMENT, &on_host, &host), STATUS_OK);
    strcpy(host.base, "state");
    assert_int_equal(arena_write(&disk, 0, host.base, DISK_ALIGNMENT, 0), STATUS_OK);
    memset(host.base, 0, DISK_ALIGNMENT);
    assert_int_equal(arena_read(&disk, 0, host.base, DISK_ALIGNMENT, 0), STATUS_OK);
    assert_string_equal(host.base, "state");
    arena_close(&host);
    arena_close(&disk);
}

static void refused_host_memory_is_released(void **state) {
    (void)state;
    const struct arena_settings settings = {.memory = backend_cuda.memory};
    struct arena arena;
    for (int nth = 1; nth <= 2; nth++) { /* the store, then the pages */
        fault_arm(FAULT_ALLOCATE, nth, false);
        assert_int_equal(arena_open(TIER_HOST, PAGE, &settings, &arena), STATUS_FAILED);
        assert_non_null(strstr(status_message(), "out of memory"));
    }
    fault_arm(FAULT_ALLOCATE, 0, false);
    runtime.pinning = cudaErrorMemoryAllocation;
    assert_int_equal(arena_open(TIER_HOST, PAGE, &settings, &arena), STATUS_FAILED);
    assert_non_null(strstr(status_message(), "does not pin 4096 bytes for the GPU: refused here"));
    assert_int_equal(resident_pages(runtime.refused, PAGE), -1); /* unmapped */
    runtime.pinning = cudaSuccess;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_gpu_names_its_instruction_set), cmocka_unit_test(capacity_is_what_is_free),
        cmocka_unit_test(host_arenas_are_pinned_pages),
        cmocka_unit_test_setup_teardown(the_disk_takes_host_arenas, temp_folder_make, temp_folder_drop),
        cmocka_unit_test(refused_host_memory_is_released)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
int main(void) { unit_skip_all("this build has no CUDA backend; needs the CUDA toolkit, 12 or later"); }
#endif
