#include "backend/cuda/cuda_device.h"

#include "base/pages.h"
#include "base/size.h"
#include <inttypes.h>

/* Copies and fills outside of programs use the calling thread's own stream, which does not wait for the streams of
 * programs, nor they for it. Then the caller waits for that stream, since a copy from pageable memory or a fill may
 * return before the GPU has done it. */
static enum status finish(cudaError_t error, const char *what) {
    if (error == cudaSuccess) error = cudaStreamSynchronize(cudaStreamPerThread);
    return cuda_status(error, what);
}

static enum status refuse(cudaError_t error) {
    size_t there = 0, all = 0;
    char text[SIZE_TEXT];
    (void)cudaGetLastError(); /* so that later calls do not report the failed allocation */
    if (error != cudaErrorMemoryAllocation || cudaMemGetInfo(&there, &all) != cudaSuccess)
        return cuda_status(error, "memory");
    return status_set(STATUS_FAILED, "the GPU has only %s of free memory", size_print((int64_t)there, text));
}

static enum status take_device(int64_t bytes, void **out) {
    cudaError_t error = cudaMalloc(out, (size_t)bytes);
    if (error != cudaSuccess) return refuse(error);
    enum status status = finish(cudaMemsetAsync(*out, 0, (size_t)bytes, cudaStreamPerThread), "cudaMemset");
    if (status != STATUS_OK) (void)cudaFree(*out);
    return status;
}

/* A host block lies behind a page that records its size. */
enum { PAGE_BYTES = 4096 };
struct host_block {
    int64_t bytes; /* without this page */
};

static struct host_block *host_block_of(void *base) { return (void *)((char *)base - PAGE_BYTES); }

static void release_host(struct host_block *block) { pages_release(block, (size_t)block->bytes + PAGE_BYTES); }

/* cudaHostAlloc would take 4 KiB pages on one thread, and carves small blocks at 512 bytes, where the disk tier needs
 * 4096. */
static enum status take_host(int64_t bytes, void **out) {
    struct host_block *block = pages_take((size_t)bytes + PAGE_BYTES);
    if (!block) return status_no_memory((size_t)bytes, "the GPU's copies");
    block->bytes = bytes;
    void *base = (char *)block + PAGE_BYTES;
    cudaError_t error = cudaHostRegister(base, (size_t)bytes, cudaHostRegisterPortable);
    if (error == cudaSuccess) {
        *out = base;
        return STATUS_OK;
    }
    release_host(block);
    (void)cudaGetLastError();
    return status_set(STATUS_FAILED, "the system does not pin %" PRId64 " bytes for the GPU: %s", bytes,
                      cudaGetErrorString(error));
}

static enum status take(enum tier tier, int64_t bytes, void **out) {
    TRY(cuda_device_enter());
    return tier == TIER_DEVICE ? take_device(bytes, out) : take_host(bytes, out);
}

/* A failure here is an earlier one, which was reported then; the host's memory is released all the same. */
static void give_back(enum tier tier, void *base) {
    bool entered = cuda_device_enter() == STATUS_OK;
    if (tier == TIER_DEVICE) {
        if (entered) (void)cudaFree(base);
        return;
    }
    if (entered) (void)cudaHostUnregister(base);
    release_host(host_block_of(base));
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
