/* Matrix products: c = a b (+ bias) (+ addend), by oneDNN where it has a fast kernel that keeps its scratch in the
 * workspace (brgemm, from AVX-512 up), with b packed for it where that pays, else by the packed kernels of simd/. Sums
 * are in fp32; the order of a sum depends on the sizes, the instruction set and, for oneDNN, on the number of threads,
 * and on nothing else. */
#ifndef BALLAST_BACKEND_CPU_MATMUL_H
#define BALLAST_BACKEND_CPU_MATMUL_H

#include "backend/matmul_spec.h"
#include "base/status.h"

struct matmul;
/* Made for the number of threads that the caller has set. */
enum status matmul_create(const struct matmul_spec *spec, struct matmul **out);
/* Bytes that matmul_run needs, 64-byte aligned. */
int64_t matmul_workspace_bytes(const struct matmul *matmul);
/* Allocates nothing. Not by two threads at once for one matmul. */
void matmul_run(const struct matmul *matmul, const struct matmul_operands *operands, void *workspace);
/* NULL is fine. */
void matmul_free(struct matmul *matmul);
/* The implementation that computes it: "brg:avx512_core_amx_bf16", "packed". */
const char *matmul_implementation(const struct matmul *matmul);

#endif
