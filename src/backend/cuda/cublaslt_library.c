/* The functions of cuBLASLt that this backend uses, under their own names; the first call opens the library. Linking it
 * would cost every start 0.2 s and 94 MiB for relocations, even without a GPU, which is more than a process in a small
 * cgroup may have. */
#include <cublasLt.h>
#include <dlfcn.h>
#include <pthread.h>

#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)
#define SONAME "libcublasLt.so." TEXT(CUBLAS_VER_MAJOR)

static pthread_once_t once = PTHREAD_ONCE_INIT;
static void *library;

/* Looks where the system's loader looks, then where the build found it. */
static void open_library(void) {
    library = dlopen(SONAME, RTLD_NOW | RTLD_LOCAL);
    if (!library) library = dlopen(CUBLASLT_FOLDER "/" SONAME, RTLD_NOW | RTLD_LOCAL);
}

static void *find(const char *name) {
    (void)pthread_once(&once, open_library);
    return library ? dlsym(library, name) : NULL;
}

/* POSIX has functions' addresses in objects' pointers. */
#define FORWARD(type, name, parameters, arguments, otherwise)                                                          \
    type name parameters {                                                                                             \
        static _Atomic(void *) found;                                                                                  \
        void *address = found;                                                                                         \
        if (!address) found = address = find(#name);                                                                   \
        type(*function) parameters;                                                                                    \
        *(void **)&function = address;                                                                                 \
        return function ? function arguments : (otherwise);                                                            \
    }
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
