#include "backend/cuda/cuda_device.h"

#include <inttypes.h>
#include <string.h>

#include "base/size.h"

/* What is asked for outside of programs goes on the calling thread's own stream, which neither waits for the streams of
 * programs nor holds them back; whoever asks waits for it, since both a copy from pageable memory and a fill may come
 * back before the GPU has done them. */
static enum status finish(cudaError_t asked, const char *what) {
    if (asked == cudaSuccess) asked = cudaStreamSynchronize(cudaStreamPerThread);
    return cuda_status(asked, what);
}

static enum status refuse(cudaError_t error) {
    size_t there = 0, all = 0;
    char text[SIZE_TEXT];
    (void)cudaGetLastError(); /* a failed allocation is no failure of what comes later */
    if (error != cudaErrorMemoryAllocation || cudaMemGetInfo(&there, &all) != cudaSuccess)
        return cuda_status(error, "memory");
    return status_set(STATUS_FAILED, "the GPU has not so much: %s are free", size_print((int64_t)there, text));
}

static enum status take_device(int64_t bytes, void **out) {
    cudaError_t error = cudaMalloc(out, (size_t)bytes);
    if (error != cudaSuccess) return refuse(error);
    enum status status = finish(cudaMemsetAsync(*out, 0, (size_t)bytes, cudaStreamPerThread), "cudaMemset");
    if (status != STATUS_OK) (void)cudaFree(*out);
    return status;
}

/* By all threads: one clears some 10 GB/s. */
static void clear(char *base, int64_t bytes) {
    enum { BLOCK = 1 << 22 };
#pragma omp parallel for schedule(static)
    for (int64_t at = 0; at < bytes; at += BLOCK)
        memset(base + at, 0, (size_t)(bytes - at < BLOCK ? bytes - at : BLOCK));
}

static enum status take_host(int64_t bytes, void **out) {
    cudaError_t error = cudaHostAlloc(out, (size_t)bytes, cudaHostAllocPortable);
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        return status_set(STATUS_FAILED, "the system pins no %" PRId64 " bytes for the GPU: %s", bytes,
                          cudaGetErrorString(error));
    }
    clear(*out, bytes);
    return STATUS_OK;
}

static enum status take(enum tier tier, int64_t bytes, void **out) {
    TRY(cuda_device_enter());
    return tier == TIER_DEVICE ? take_device(bytes, out) : take_host(bytes, out);
}

/* What fails here failed before, and was told then. */
static void give_back(enum tier tier, void *base) {
    if (cuda_device_enter() != STATUS_OK) return;
    if (tier == TIER_DEVICE)
        (void)cudaFree(base);
    else
        (void)cudaFreeHost(base);
}

static enum status copy(void *to, const void *from, int64_t bytes, enum cudaMemcpyKind kind) {
    TRY(cuda_device_enter());
    return finish(cudaMemcpyAsync(to, from, (size_t)bytes, kind, cudaStreamPerThread), "cudaMemcpy");
}

static enum status read_device(void *to, const void *from_device, int64_t bytes) {
    return copy(to, from_device, bytes, cudaMemcpyDeviceToHost);
}

static enum status write_device(void *to_device, const void *from, int64_t bytes) {
    return copy(to_device, from, bytes, cudaMemcpyHostToDevice);
}

const struct backend_memory cuda_memory = {
    .take = take, .give_back = give_back, .read = read_device, .write = write_device};
