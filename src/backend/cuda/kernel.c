/* The CUDA backend's list of kernels, loading their code, and failures within a call. */
#include "backend/cuda/kernel.h"

kernel_maker *cuda_maker(const struct op *op) {
#define CUDA_MAKER(name)                                                                                               \
    if (op == &op_##name) return cuda_##name##_create;
    CUDA_OP_LIST(CUDA_MAKER)
    return NULL;
}

enum { KERNELS_MAX = 512 };
static const void *kernels[KERNELS_MAX];
static int kernel_count;

bool cuda_kernels_add(const void *kernel) {
    BUG_IF(kernel_count == KERNELS_MAX, "more kernels than %d", KERNELS_MAX);
    kernels[kernel_count++] = kernel;
    return true;
}

/* Asking for a kernel's attributes loads it (CUDA Programming Guide, "Lazy Loading"). */
enum status cuda_kernels_load(void) {
    struct cudaFuncAttributes attributes;
    for (int i = 0; i < kernel_count; i++)
        TRY(cuda_status(cudaFuncGetAttributes(&attributes, kernels[i]), "loading the kernels"));
    return STATUS_OK;
}

/* The noted failure's text is the thread's status message. */
static _Thread_local bool noted;

void cuda_require(cudaError_t error, const char *what) {
    if (error == cudaSuccess || noted) return;
    noted = true;
    (void)cuda_status(error, what);
}

/* A library reports a device that failed before the call in words of its own; the stream has the device's error. */
void cuda_refused(cudaStream_t stream, const char *what, const char *message) {
    cudaError_t error = cudaStreamQuery(stream);
    if (error != cudaErrorNotReady) cuda_require(error, what);
    if (noted) return;
    noted = true;
    (void)status_hint(status_set(STATUS_FAILED, "%s: %s", what, message),
                      "the GPU itself works: with CUBLASLT_LOG_LEVEL=5 and CUDNN_LOGLEVEL_DBG=3 in the environment "
                      "the libraries say why they refuse");
}

enum status cuda_outcome(void) {
    bool failed = noted;
    noted = false;
    return failed ? STATUS_FAILED : STATUS_OK;
}

int64_t cuda_alignment(const struct tensor *tensor) {
    int64_t offset = tensor_storage_offset(tensor) | CUDA_ALIGN;
    return offset & -offset;
}
