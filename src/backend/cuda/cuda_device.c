#include "backend/cuda/cuda_device.h"

#include <cublasLt.h>
#include <stdio.h>
#include <string.h>

#include "backend/cuda/attention_cudnn.h"
#include "backend/cuda/cuda_kernel.h"
#include "backend/cuda/cuda_matmul.h"
#include "backend/cuda_constants.h"
#include "plan/gpu_micro_batch.h"

/* The lowest compute capability that the kernels are built for, the first with bf16 in hardware. */
enum { MAJOR_MIN = 8 };

/* Set by cuda_device_select before other threads are started. */
static int selected;
static char isa[CLUSTER_ISA_BYTES]; /* "" before the device was looked at */

enum status cuda_status(cudaError_t error, const char *what) {
    if (error == cudaSuccess) return STATUS_OK;
    enum status status = status_set(STATUS_FAILED, "CUDA: %s: %s", what, cudaGetErrorString(error));
    bool in_kernel = error == cudaErrorIllegalAddress || error == cudaErrorMisalignedAddress ||
                     error == cudaErrorLaunchFailure || error == cudaErrorIllegalInstruction ||
                     error == cudaErrorAssert || error == cudaErrorHardwareStackError;
    if (!in_kernel) return status;
    return status_hint(
        status, "the call named may be later than the one that failed: CUDA_LAUNCH_BLOCKING=1 names the right one");
}

enum status cuda_device_select(int device) {
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error == cudaErrorInsufficientDriver)
        return status_set(STATUS_BAD_INPUT, "no NVIDIA GPU can be used here: there is no driver, or one for a CUDA "
                                            "older than this build's");
    if (error != cudaSuccess || count == 0)
        return status_set(STATUS_BAD_INPUT, "no NVIDIA GPU can be used here: %s",
                          cudaGetErrorString(error != cudaSuccess ? error : cudaErrorNoDevice));
    if (device >= count)
        return status_set(STATUS_BAD_INPUT, "there is no GPU %d: they are numbered 0 to %d", device, count - 1);
    selected = device;
    isa[0] = '\0';
    return STATUS_OK;
}

static enum status look_up(struct cudaDeviceProp *out) {
    cudaError_t error = cudaGetDeviceProperties(out, selected);
    if (error == cudaSuccess) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "no NVIDIA GPU can be used here: %s", cudaGetErrorString(error));
}

/* cuBLAS gives the same bits only for the same architecture, number of multiprocessors and version. A target device
 * has the first two, "sm_90-132sm"; the rest, "+cublaslt-13.0.2", is known only on the GPU. */
static void name_isa(const struct cudaDeviceProp *properties) {
    size_t version = cublasLtGetVersion();
    snprintf(isa, sizeof isa, "sm_%d%d-%dsm" CUDA_ISA_LIBRARIES "%zu.%zu.%zu%s", properties->major, properties->minor,
             properties->multiProcessorCount, version / 10000, version / 100 % 100, version % 100,
             attention_cudnn_version());
}

/* Makes the context. Threads sleep while they wait for the device: spinning would take a core from updates on the host.
 */
static enum status make_context(void) {
    TRY(cuda_status(cudaInitDevice(selected, cudaDeviceScheduleBlockingSync, cudaInitDeviceFlagsAreValid),
                    "cudaInitDevice"));
    return cuda_device_enter();
}

enum status cuda_device_check(void) {
    struct cudaDeviceProp properties;
    if (isa[0]) return STATUS_OK;
    TRY(look_up(&properties));
    if (properties.major < MAJOR_MIN)
        return status_set(STATUS_FAILED, "%s has compute capability %d.%d; Ballast needs at least %d.0",
                          properties.name, properties.major, properties.minor, MAJOR_MIN);
    TRY(make_context());
    name_isa(&properties);
    return STATUS_OK;
}

const char *cuda_device_isa(void) { return cuda_device_check() == STATUS_OK ? isa : "none"; }

enum status cuda_device_enter(void) { return cuda_status(cudaSetDevice(selected), "cudaSetDevice"); }

/* Free memory less `reserve_bytes`. */
static enum status free_bytes(int64_t reserve_bytes, int64_t *out) {
    size_t there = 0, all = 0;
    TRY(cuda_status(cudaMemGetInfo(&there, &all), "cudaMemGetInfo"));
    *out = (int64_t)there > reserve_bytes ? (int64_t)there - reserve_bytes : 0;
    return STATUS_OK;
}

/* Measured after the context, cuBLASLt's handle and the code of all own kernels have taken their memory. */
enum status cuda_device_capacity(int64_t bytes[TIER_COUNT]) {
    struct cluster_memory memory;
    TRY(cuda_device_check());
    TRY(cuda_device_enter());
    TRY(cuda_matmul_open());
    TRY(cuda_kernels_load());
    TRY(free_bytes(CUDA_GRAPH_BYTES + CUDA_CODE_BYTES, &bytes[TIER_DEVICE]));
    cluster_find_memory(&memory);
    bytes[TIER_HOST] = memory.capacity_bytes;
    bytes[TIER_DISK] = 0;
    return STATUS_OK;
}

enum status cuda_device_left_bytes(int64_t *device_bytes) {
    TRY(cuda_device_enter());
    return free_bytes(CUDA_GRAPH_BYTES, device_bytes);
}

/* Keeps the host's cores and page size, which the host's part of the work uses. */
enum status cuda_device_measure(struct cluster *out) {
    struct cudaDeviceProp properties;
    int64_t bytes[TIER_COUNT];
    struct cluster_device *device = &out->device;
    TRY(cluster_measure(out));
    TRY(cuda_device_check());
    TRY(look_up(&properties));
    TRY(cuda_device_capacity(bytes));
    snprintf(device->kind, sizeof device->kind, "cuda");
    snprintf(device->name, sizeof device->name, "%.*s", (int)sizeof device->name - 1, properties.name);
    snprintf(device->isa, sizeof device->isa, "%s", isa);
    device->bf16_matrix = true;
    device->tier_count = 0;
    for (enum tier tier = TIER_DEVICE; tier <= TIER_HOST; tier++) {
        struct cluster_tier *to = &device->tiers[device->tier_count++];
        snprintf(to->name, sizeof to->name, "%s", tier_name(tier));
        to->capacity_bytes = bytes[tier];
    }
    return STATUS_OK;
}

/* Another driver or cuBLASLt chooses other algorithms, of another speed; the slot identifies the link to the host. */
enum status cuda_device_describe(char *text, size_t bytes) {
    struct cudaDeviceProp properties;
    char slot[32] = "";
    int driver = 0;
    TRY(cuda_device_check());
    TRY(look_up(&properties));
    TRY(cuda_status(cudaDeviceGetPCIBusId(slot, sizeof slot, selected), "cudaDeviceGetPCIBusId"));
    TRY(cuda_status(cudaDriverGetVersion(&driver), "cudaDriverGetVersion"));
    snprintf(text, bytes, "%s of %d multiprocessors at %s, driver %d, cuBLASLt %zu", properties.name,
             properties.multiProcessorCount, slot, driver, cublasLtGetVersion());
    return STATUS_OK;
}

int64_t cuda_device_cache_bytes(void) {
    int bytes = 0;
    return cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, selected) == cudaSuccess ? bytes : 0;
}

int64_t cuda_device_micro_batch_tokens(int64_t layers, int64_t width, int64_t device_bytes) {
    struct cudaDeviceProp properties;
    if (look_up(&properties) != STATUS_OK) {
        status_clear();
        return GPU_MICRO_BATCH_MIN;
    }
    int64_t bytes = (int64_t)properties.totalGlobalMem;
    if (device_bytes > 0 && device_bytes < bytes) bytes = device_bytes;
    return gpu_micro_batch_tokens(properties.multiProcessorCount, bytes, layers, width);
}
