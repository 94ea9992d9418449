/* The functions of cuBLASLt that Ballast uses, following its documentation, with GEMMs as three loops. */
#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "emulated_faults.h"

/* What the opaque descriptions hold here. */
struct layout {
    cudaDataType_t type;
    uint64_t rows, columns;
    int64_t stride;
};
struct operation {
    int32_t turn_a, turn_b;
    cublasLtEpilogue_t epilogue;
    const void *bias;
};
struct preference {
    uint64_t workspace;
    uint32_t reductions, alignment[4];
};
_Static_assert(sizeof(struct layout) <= sizeof(cublasLtMatrixLayoutOpaque_t), "layout");
_Static_assert(sizeof(struct operation) <= sizeof(cublasLtMatmulDescOpaque_t), "operation");
_Static_assert(sizeof(struct preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t), "preference");

enum { ALGORITHM_WORKSPACE = 1000 };

/* The library's own words for a fault, of which the runtime does not know. */
#define FAULT_CALL()                                                                                                   \
    do {                                                                                                               \
        if (emulated_device_refuses()) return CUBLAS_STATUS_INTERNAL_ERROR;                                            \
    } while (0)

cublasStatus_t cublasLtCreate(cublasLtHandle_t *out) {
    FAULT_CALL();
    *out = malloc(1);
    return *out ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}
const char *cublasLtGetStatusString(cublasStatus_t status) { return status == CUBLAS_STATUS_SUCCESS ? "done" : "bad"; }

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t to, size_t size, cudaDataType type,
                                                 uint64_t rows, uint64_t cols, int64_t ld) {
    FAULT_CALL();
    if (size < sizeof(struct layout) || rows < 1 || cols < 1 || ld < (int64_t)rows) return CUBLAS_STATUS_INVALID_VALUE;
    *(struct layout *)to = (struct layout){type, rows, cols, ld};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t to, size_t size, cublasComputeType_t compute,
                                               cudaDataType_t scale) {
    FAULT_CALL();
    if (size < sizeof(struct operation) || compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F)
        return CUBLAS_STATUS_INVALID_VALUE;
    *(struct operation *)to = (struct operation){.epilogue = CUBLASLT_EPILOGUE_DEFAULT};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t to, cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes) {
    FAULT_CALL();
    struct operation *operation = (struct operation *)to;
    void *field = attribute == CUBLASLT_MATMUL_DESC_TRANSA         ? (void *)&operation->turn_a
                  : attribute == CUBLASLT_MATMUL_DESC_TRANSB       ? (void *)&operation->turn_b
                  : attribute == CUBLASLT_MATMUL_DESC_EPILOGUE     ? (void *)&operation->epilogue
                  : attribute == CUBLASLT_MATMUL_DESC_BIAS_POINTER ? (void *)&operation->bias
                                                                   : NULL;
    if (!field || bytes != (attribute == CUBLASLT_MATMUL_DESC_BIAS_POINTER ? 8 : 4)) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(field, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t to, size_t size) {
    FAULT_CALL();
    if (size < sizeof(struct preference)) return CUBLAS_STATUS_INVALID_VALUE;
    *(struct preference *)to =
        (struct preference){.reductions = CUBLASLT_REDUCTION_SCHEME_MASK, .alignment = {256, 256, 256, 256}};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t to,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
                                                    size_t bytes) {
    FAULT_CALL();
    struct preference *preference = (struct preference *)to;
    if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES && bytes == 8)
        memcpy(&preference->workspace, value, bytes);
    else if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK && bytes == 4)
        memcpy(&preference->reductions, value, bytes);
    else if (attribute >= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES &&
             attribute <= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES && bytes == 4)
        memcpy(&preference->alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, bytes);
    else
        return CUBLAS_STATUS_INVALID_VALUE;
    return CUBLAS_STATUS_SUCCESS;
}

/* The algorithm remembers the alignments that it was chosen for. */
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t with, int requested,
                                              cublasLtMatmulHeuristicResult_t results[], int *found) {
    FAULT_CALL();
    (void)handle, (void)operation, (void)a, (void)b, (void)c, (void)d;
    const struct preference *preference = (const struct preference *)with;
    if (requested < 1 || (preference->reductions & CUBLASLT_REDUCTION_SCHEME_INPLACE))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    results[0] =
        (cublasLtMatmulHeuristicResult_t){.state = CUBLAS_STATUS_SUCCESS, .workspaceSize = ALGORITHM_WORKSPACE};
    memcpy(results[0].algo.data, preference->alignment, sizeof preference->alignment);
    *found = 1;
    return CUBLAS_STATUS_SUCCESS;
}

/* An algorithm is good for alignments, all of them powers of two. */
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                       cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t *algorithm,
                                       cublasLtMatmulHeuristicResult_t *result) {
    (void)handle, (void)operation, (void)a, (void)b, (void)c, (void)d;
    FAULT_CALL();
    uint32_t alignment[4];
    memcpy(alignment, algorithm->data, sizeof alignment);
    for (int i = 0; i < 4; i++)
        if (alignment[i] == 0 || (alignment[i] & (alignment[i] - 1)) != 0) return CUBLAS_STATUS_NOT_SUPPORTED;
    *result = (cublasLtMatmulHeuristicResult_t){.state = CUBLAS_STATUS_SUCCESS, .workspaceSize = ALGORITHM_WORKSPACE};
    return CUBLAS_STATUS_SUCCESS;
}

static float element(const void *data, const struct layout *layout, uint64_t row, uint64_t column) {
    int64_t at = (int64_t)row + (int64_t)column * layout->stride;
    return layout->type == CUDA_R_16BF ? bf16_to_float(((const uint16_t *)data)[at]) : ((const float *)data)[at];
}

static float bias_at(const struct operation *operation, const struct layout *d, uint64_t row) {
    if (operation->epilogue != CUBLASLT_EPILOGUE_BIAS) return 0;
    return element(operation->bias, &(struct layout){.type = d->type}, row, 0);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t with, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout,
                              const void *beta, const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algorithm, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
    FAULT_CALL();
    (void)handle, (void)stream;
    const struct operation *operation = (const struct operation *)with;
    const struct layout *left = (const struct layout *)a_layout, *right = (const struct layout *)b_layout;
    const struct layout *add = (const struct layout *)c_layout, *out = (const struct layout *)d_layout;
    uint32_t alignment[4];
    memcpy(alignment, algorithm->data, sizeof alignment);
    uint64_t m = operation->turn_a ? left->columns : left->rows, k = operation->turn_a ? left->rows : left->columns;
    uint64_t n = operation->turn_b ? right->rows : right->columns;
    if (m != out->rows || n != out->columns || k != (operation->turn_b ? right->columns : right->rows) ||
        add->rows != m || add->columns != n || add->type != out->type || (c == d && add->stride != out->stride) ||
        (uintptr_t)a % alignment[0] || (uintptr_t)b % alignment[1] || (uintptr_t)c % alignment[2] ||
        (uintptr_t)d % alignment[3] || workspace_bytes < ALGORITHM_WORKSPACE || (uintptr_t)workspace % 256)
        return CUBLAS_STATUS_INVALID_VALUE;
    memset(workspace, 0x5a, workspace_bytes);
    for (uint64_t column = 0; column < n; column++)
        for (uint64_t row = 0; row < m; row++) {
            float sum = 0;
            for (uint64_t i = 0; i < k; i++)
                sum += (operation->turn_a ? element(a, left, i, row) : element(a, left, row, i)) *
                       (operation->turn_b ? element(b, right, column, i) : element(b, right, i, column));
            sum *= *(const float *)alpha;
            if (*(const float *)beta != 0) sum += *(const float *)beta * element(c, add, row, column);
            sum += bias_at(operation, out, row);
            int64_t at = (int64_t)row + (int64_t)column * out->stride;
            if (out->type == CUDA_R_16BF)
                ((uint16_t *)d)[at] = bf16_from_float(sum);
            else
                ((float *)d)[at] = sum;
        }
    return CUBLAS_STATUS_SUCCESS;
}
