/* GEMMs by cuBLASLt: c = a b (+ bias) (+ addend), sums in fp32 (never TF32). One algorithm for each spec,
 * chosen when the GEMM is made: the one that the recipe pins, else the library's own choice without measuring. */
#pragma once

#include "backend/cuda/kernel.h"
#include "backend/kernel_parts.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_matmul_spec {
    struct matmul_spec product;                    /* a bias only where both dtypes are the same; an addend that is c
                                                      only where their strides are */
    int64_t a_alignment, b_alignment, c_alignment; /* bytes that divide the addresses, powers of two */
    int64_t addend_alignment;                      /* where there is one */
};
/* For operands that begin where buffers do. */
static inline struct cuda_matmul_spec cuda_matmul_aligned(struct matmul_spec product) {
    struct cuda_matmul_spec spec = {product, CUDA_ALIGN, CUDA_ALIGN, CUDA_ALIGN, CUDA_ALIGN};
    return spec;
}

struct cuda_matmul;
/* Opens the library on the current device, where it takes its memory at once. It stays open. */
enum status cuda_matmul_open(void);
/* backend.h says what these do. */
enum status cuda_matmul_pin(const char *lines);
enum status cuda_matmul_list(const char **lines);
/* For the current device. */
enum status cuda_matmul_create(const struct cuda_matmul_spec *spec, struct cuda_matmul **out);
/* Bytes that cuda_matmul_run needs, 64-byte aligned; 0 for NULL. */
int64_t cuda_matmul_workspace_bytes(const struct cuda_matmul *matmul);
/* Allocates nothing and does not wait. Not by two threads at once for one GEMM. */
void cuda_matmul_run(struct cuda_matmul *matmul, const struct matmul_operands *operands, void *workspace,
                     cudaStream_t stream);
/* NULL is fine. */
void cuda_matmul_free(struct cuda_matmul *matmul);
/* The largest workspace of several GEMMs that use it in turn; any of them may be NULL. */
int64_t cuda_matmul_max_workspace_bytes(struct cuda_matmul *const *matmuls, int count);
void cuda_matmul_free_all(struct cuda_matmul *const *matmuls, int count);

/* Rows [row, row + rows) and columns [column, column + columns) of a weight. */
struct cuda_weight_tile {
    int64_t row, rows, column, columns;
};
/* Their numbers, as `dtype`, to `out` [rows][columns], whose address is a multiple of 16 (unpack.cu). */
void cuda_unpack_weight(cudaStream_t stream, const struct weight_layout *layout, const void *weight,
                        const struct cuda_weight_tile *tile, enum dtype dtype, void *out);

#ifdef __cplusplus
}
#endif
