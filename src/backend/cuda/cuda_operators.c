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

int64_t cuda_alignment(const struct tensor *tensor) {
    int64_t offset = tensor_storage_offset(tensor) | CUDA_ALIGN;
    return offset & -offset;
}
