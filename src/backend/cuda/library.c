#include "backend/cuda/library.h"

#include <cublasLt.h>
#include <dlfcn.h>

enum { PATH_BYTES = 1024 };

static void *open_library(const struct opened_library *library) {
    char path[PATH_BYTES];
    void *handle = dlopen(library->name, RTLD_NOW | RTLD_LOCAL);
    snprintf(path, sizeof path, "%s/%s", library->folder, library->name);
    return handle ? handle : dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

void *opened_library_find(struct opened_library *library, const char *function) {
    pthread_mutex_lock(&library->lock);
    if (!library->tried) library->handle = open_library(library);
    library->tried = true;
    void *handle = library->handle;
    pthread_mutex_unlock(&library->lock);
    return handle ? dlsym(handle, function) : NULL;
}

/* The functions of cuBLASLt that this backend uses. */

#define SONAME "libcublasLt.so." OPENED_TEXT(CUBLAS_VER_MAJOR)

static struct opened_library library = OPENED_LIBRARY(SONAME, CUBLASLT_FOLDER);

#define FORWARD(type, name, parameters, arguments, otherwise)                                                          \
    OPENED_FUNCTION(&library, type, name, parameters, arguments, otherwise)
#define FORWARD_CALL(name, parameters, arguments)                                                                      \
    FORWARD(cublasStatus_t, name, parameters, arguments, CUBLAS_STATUS_NOT_INITIALIZED)

FORWARD(size_t, cublasLtGetVersion, (void), (), 0)
FORWARD(const char *, cublasLtGetStatusString, (cublasStatus_t status), (status), SONAME " cannot be opened")
FORWARD_CALL(cublasLtCreate, (cublasLtHandle_t * handle), (handle))
FORWARD_CALL(cublasLtMatrixLayoutInit_internal,
             (cublasLtMatrixLayout_t layout, size_t size, cudaDataType type, uint64_t rows, uint64_t cols, int64_t ld),
             (layout, size, type, rows, cols, ld))
FORWARD_CALL(cublasLtMatmulDescInit_internal,
             (cublasLtMatmulDesc_t operation, size_t size, cublasComputeType_t compute, cudaDataType_t scale),
             (operation, size, compute, scale))
FORWARD_CALL(cublasLtMatmulDescSetAttribute,
             (cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute, const void *value,
              size_t bytes),
             (operation, attribute, value, bytes))
FORWARD_CALL(cublasLtMatmulPreferenceInit_internal, (cublasLtMatmulPreference_t preference, size_t size),
             (preference, size))
FORWARD_CALL(cublasLtMatmulPreferenceSetAttribute,
             (cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
              size_t bytes),
             (preference, attribute, value, bytes))
FORWARD_CALL(cublasLtMatmulAlgoGetHeuristic,
             (cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a,
              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
              cublasLtMatmulPreference_t preference, int wanted, cublasLtMatmulHeuristicResult_t results[], int *count),
             (handle, operation, a, b, c, d, preference, wanted, results, count))
FORWARD_CALL(cublasLtMatmulAlgoCheck,
             (cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a,
              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
              const cublasLtMatmulAlgo_t *algorithm, cublasLtMatmulHeuristicResult_t *result),
             (handle, operation, a, b, c, d, algorithm, result))
FORWARD_CALL(cublasLtMatmul,
             (cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void *alpha, const void *a,
              cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout, const void *beta,
              const void *c, cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t d_layout,
              const cublasLtMatmulAlgo_t *algorithm, void *workspace, size_t workspace_bytes, cudaStream_t stream),
             (handle, operation, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d, d_layout, algorithm, workspace,
              workspace_bytes, stream))
