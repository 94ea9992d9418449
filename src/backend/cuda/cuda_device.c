#include "backend/cuda/cuda_device.h"

#include <cublasLt.h>
#include <stdio.h>
#include <string.h>

#include "backend/cuda/attention_cudnn.h"

/* What CUDA itself (module loading, local memory, cuBLAS's workspace) takes beside the arenas. */
#define OWN_BYTES ((int64_t)512 << 20)
/* The least that the kernels are built for: bf16 in hardware came with it. */
enum { LEAST_MAJOR = 8 };

/* Set by cuda_device_select before other threads are started. */
static int selected;
static char isa[CLUSTER_ISA_BYTES]; /* "sm_90"; "" before the device was looked at */

enum status cuda_status(cudaError_t error, const char *what) {
    if (error == cudaSuccess) return STATUS_OK;
    enum status status = status_set(STATUS_FAILED, "CUDA: %s: %s", what, cudaGetErrorString(error));
    bool in_kernel = error == cudaErrorIllegalAddress || error == cudaErrorMisalignedAddress ||
                     error == cudaErrorLaunchFailure || error == cudaErrorIllegalInstruction ||
                     error == cudaErrorAssert || error == cudaErrorHardwareStackError;
    if (!in_kernel) return status;
    return status_hint(status, "what is named may have come after it: CUDA_LAUNCH_BLOCKING=1 names the very one");
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

enum status cuda_device_check(void) {
    struct cudaDeviceProp properties;
    if (isa[0]) return STATUS_OK;
    TRY(look_up(&properties));
    if (properties.major < LEAST_MAJOR)
        return status_set(STATUS_FAILED, "%s is of compute capability %d.%d; %d.0 is the least", properties.name,
                          properties.major, properties.minor, LEAST_MAJOR);
    TRY(cuda_device_enter());
    snprintf(isa, sizeof isa, "sm_%d%d%s", properties.major, properties.minor, attention_cudnn_version());
    return STATUS_OK;
}

const char *cuda_device_isa(void) { return cuda_device_check() == STATUS_OK ? isa : "none"; }

enum status cuda_device_enter(void) { return cuda_status(cudaSetDevice(selected), "cudaSetDevice"); }

enum status cuda_device_capacity(int64_t bytes[TIER_COUNT]) {
    size_t there = 0, all = 0;
    struct cluster_memory memory;
    TRY(cuda_device_enter());
    TRY(cuda_status(cudaMemGetInfo(&there, &all), "cudaMemGetInfo"));
    cluster_find_memory(&memory);
    bytes[TIER_DEVICE] = (int64_t)there > OWN_BYTES ? (int64_t)there - OWN_BYTES : 0;
    bytes[TIER_HOST] = memory.capacity_bytes;
    bytes[TIER_DISK] = 0;
    return STATUS_OK;
}

/* The host's cores and page size stay: they are what its part of the work is done with. */
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

/* Driver and cuBLASLt choose algorithms, so that another version has other speeds; the slot says which link it is. */
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

enum status cuda_device_size(int *multiprocessors, int64_t *bytes) {
    struct cudaDeviceProp properties;
    TRY(look_up(&properties));
    *multiprocessors = properties.multiProcessorCount;
    *bytes = (int64_t)properties.totalGlobalMem;
    return STATUS_OK;
}
