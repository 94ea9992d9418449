#include "support/op_device.h"

#ifdef BALLAST_CUDA

#include "backend/cuda/kernel.h"
#include "support/cuda_kernels.h"

static void require(cudaError_t error, const char *what) {
    BUG_IF(error != cudaSuccess, "%s: %s", what, cudaGetErrorString(error));
}

bool op_device_find(const char **why) {
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error == cudaSuccess && count > 0) return true;
    *why = error == cudaSuccess ? "there is no CUDA device" : cudaGetErrorString(error);
    return false;
}

bool op_device_has_kernel(const struct op *op) { return backend_has_kernel(&backend_cuda, op); }

enum status op_device_kernel(const struct node *node, struct kernel **out) { return cuda_kernel_create(node, out); }

void *op_device_allocate(int64_t bytes) {
    void *block = NULL;
    return cudaMalloc(&block, (size_t)bytes) == cudaSuccess ? block : NULL;
}

void op_device_free(void *block) { require(cudaFree(block), "freeing"); }

void op_device_copy(void *device, void *host, int64_t bytes, bool to_device) {
    require(to_device ? cudaMemcpy(device, host, (size_t)bytes, cudaMemcpyHostToDevice)
                      : cudaMemcpy(host, device, (size_t)bytes, cudaMemcpyDeviceToHost),
            "a copy");
}

void op_device_wait(void) {
    require(cudaGetLastError(), "a launch");
    require(cudaDeviceSynchronize(), "a kernel");
}

#else

bool op_device_has_kernel(const struct op *op) { return (void)op, false; }

bool op_device_find(const char **why) {
    *why = "this build has no CUDA";
    return false;
}

enum status op_device_kernel(const struct node *node, struct kernel **out) {
    (void)out;
    return status_set(STATUS_FAILED, "%s: this build has no CUDA", node->name);
}

void *op_device_allocate(int64_t bytes) {
    (void)bytes;
    return NULL;
}

void op_device_free(void *block) { (void)block; }

void op_device_copy(void *device, void *host, int64_t bytes, bool to_device) {
    (void)device, (void)host, (void)bytes, (void)to_device;
}

void op_device_wait(void) {}

#endif
