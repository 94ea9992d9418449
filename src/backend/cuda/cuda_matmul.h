/* Matrix products by cuBLASLt: c = a b (+ bias) (+ addend), sums in fp32 (never TF32). One algorithm for each spec,
 * chosen when the product is made, by a rule that gives the same one in every run on the same card: a sum's order
 * depends on the spec and the card alone. */
#ifndef BALLAST_BACKEND_CUDA_CUDA_MATMUL_H
#define BALLAST_BACKEND_CUDA_CUDA_MATMUL_H

#include "backend/cuda/cuda_kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* a is [m][k], b is [k][n], c is [m][n]; strides in elements, one of a's and one of b's is 1. */
struct cuda_matmul_spec {
    int64_t m, n, k;
    int64_t a_row, a_k;
    int64_t b_k, b_column;
    int64_t c_row;
    int64_t addend_row;                            /* like c; 0: there is no addend */
    int64_t a_alignment, b_alignment, c_alignment; /* bytes that divide the addresses, powers of two */
    int64_t addend_alignment;                      /* where there is one */
    enum dtype dtype;                              /* of a, b and the bias */
    enum dtype out_dtype;                          /* of c and the addend */
    bool bias;                                     /* [n] is added to each row; only where both dtypes are the same */
};

/* bias and addend are NULL when the spec has none; the addend may be c, if their strides are the same. */
struct cuda_matmul_operands {
    const void *a, *b, *bias, *addend;
    void *c;
};

struct cuda_matmul;
/* For the current device. */
enum status cuda_matmul_create(const struct cuda_matmul_spec *spec, struct cuda_matmul **out);
/* Bytes that cuda_matmul_run needs, 64-byte aligned. */
int64_t cuda_matmul_workspace_bytes(const struct cuda_matmul *matmul);
/* Allocates nothing and does not wait. One run of a product at a time. */
void cuda_matmul_run(struct cuda_matmul *matmul, const struct cuda_matmul_operands *operands, void *workspace,
                     cudaStream_t stream);
/* NULL is fine. */
void cuda_matmul_free(struct cuda_matmul *matmul);

#ifdef __cplusplus
}
#endif

#endif
