/* Matrix products: c = a b (+ bias) (+ addend), by oneDNN where it has a fast kernel that keeps its scratch in the
 * workspace (brgemm, from AVX-512 up), with b packed for it where that pays, else by the packed kernels of simd/. Sums
 * are in fp32; the order of a sum depends on the sizes, the instruction set and, for oneDNN, on the number of threads,
 * never on the run. */
#ifndef BALLAST_BACKEND_CPU_MATMUL_H
#define BALLAST_BACKEND_CPU_MATMUL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "graph/tensor.h"

/* a is [m][k], b is [k][n], c is [m][n]; strides in elements, one of each operand's is 1. */
struct matmul_spec {
    int64_t m, n, k;
    int64_t a_row, a_k;
    int64_t b_k, b_column;
    int64_t c_row;
    int64_t addend_row;   /* like c; 0: there is no addend */
    enum dtype dtype;     /* of a, b and the bias */
    enum dtype out_dtype; /* of c and the addend */
    bool bias;            /* [n] is added to each row */
};

/* bias and addend are NULL when the spec has none; the addend may be c. */
struct matmul_operands {
    const void *a, *b, *bias, *addend;
    void *c;
};

struct matmul;
/* Made for the number of threads that the caller has set. */
enum status matmul_create(const struct matmul_spec *spec, struct matmul **out);
/* Bytes that matmul_run needs, 64-byte aligned. */
int64_t matmul_workspace_bytes(const struct matmul *matmul);
/* Allocates nothing. One run of a matmul at a time. */
void matmul_run(const struct matmul *matmul, const struct matmul_operands *operands, void *workspace);
/* NULL is fine. */
void matmul_free(struct matmul *matmul);
/* "brg:avx512_core_amx_bf16", "packed": who computes it. */
const char *matmul_implementation(const struct matmul *matmul);

#endif
