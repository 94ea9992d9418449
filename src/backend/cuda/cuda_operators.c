#include "backend/cuda/cuda_graphs.h"
#include "backend/cuda/cuda_kernel.h"

const struct cuda_operator cuda_operators[] = {
#define CUDA_ENTRY(name) {&op_##name, cuda_##name##_create},
    OP_LIST(CUDA_ENTRY)
#undef CUDA_ENTRY
};
const int cuda_operator_count = sizeof cuda_operators / sizeof *cuda_operators;

bool cuda_supports(const struct op *op, enum dtype dtype) {
    if (dtype != DTYPE_F32 && dtype != DTYPE_BF16) return false;
    for (int i = 0; i < cuda_operator_count; i++)
        if (cuda_operators[i].op == op) return true;
    return false;
}

enum status cuda_kernel_create(const struct node *node, struct kernel **out) {
    for (int i = 0; i < cuda_operator_count; i++) {
        if (cuda_operators[i].op != node->op) continue;
        enum status status = cuda_operators[i].create(node, out);
        return status == STATUS_OK ? status : status_prefix(status, "%s (%s)", node->name, node->op->name);
    }
    return status_set(STATUS_FAILED, "CUDA has no kernel for %s", node->op->name);
}

static void release(struct kernel *kernel) { mem_free(kernel); }

void *cuda_kernel_new(const struct node *node, size_t bytes,
                      void (*run)(const struct kernel *kernel, const struct kernel_call *call)) {
    struct kernel *kernel = mem_array(1, bytes);
    if (kernel) *kernel = (struct kernel){.run = run, .release = release, .node = node};
    return kernel;
}

enum status cuda_kernel_plain(const struct node *node,
                              void (*run)(const struct kernel *kernel, const struct kernel_call *call),
                              int64_t workspace_bytes, struct kernel **out) {
    struct kernel *kernel = cuda_kernel_new(node, sizeof *kernel, run);
    if (!kernel) return STATUS_FAILED;
    kernel->workspace_bytes = workspace_bytes;
    *out = kernel;
    return STATUS_OK;
}

enum status cuda_failed(cudaError_t error, const char *what) {
    return status_set(STATUS_FAILED, "CUDA: %s: %s", what, cudaGetErrorString(error));
}

void cuda_require(cudaError_t error, const char *what) {
    if (error != cudaSuccess) cuda_refused(what, cudaGetErrorString(error));
}

void cuda_refused(const char *what, const char *words) {
    bool only_captured = cuda_capture_spoil();
    BUG_IF(!only_captured && cudaPeekAtLastError() == cudaSuccess, "CUDA: %s: %s", what, words);
}

void *cuda_row(const struct tensor *tensor, void *data, int64_t row) {
    if (!data) return NULL;
    return (char *)data + row * tensor_row_stride(tensor) * dtype_bytes(tensor->shape.dtype);
}

int64_t cuda_alignment(const struct tensor *tensor) {
    int64_t offset = tensor_storage_offset(tensor) | CUDA_ALIGN;
    return offset & -offset;
}
