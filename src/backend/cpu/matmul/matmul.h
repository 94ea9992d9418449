/* GEMMs: c = a b (+ bias) (+ addend). Sums are in fp32. The order of a sum depends only on the sizes, the layouts, the
 * instruction set and, for oneDNN, on its release and the processor's caches. It does not depend on the number of
 * threads. A quantized b is unpacked, piece by piece, when it is packed. There are three implementations:
 *
 * - GEMMs with a short side use the kernels for words of simd/.
 * - Other bf16 GEMMs use the processor's tiles (AMX), or oneDNN in blocks. oneDNN needs a fast kernel that keeps its
 *   scratch in the workspace (brgemm, with bf16 instructions).
 * - All others use the packed kernels of simd/.
 *
 * Files, in the order to read them:
 *     matmul: the choice, and parts that the three implementations share (parts);
 *     thin: one side is short, by the vector kernels for words;
 *     blocks, onednn: oneDNN, block by block;
 *     packed: the vector kernels and tiles. */
#pragma once

#include "backend/kernel_parts.h"
#include "base/base.h"

struct matmul;
/* Made for the number of threads that the caller has set. */
enum status matmul_create(const struct matmul_spec *spec, struct matmul **out);
/* Bytes that matmul_run needs, 64-byte aligned; 0 for NULL. */
int64_t matmul_workspace_bytes(const struct matmul *matmul);
/* Allocates nothing. Calls by two threads at once, each with its workspace, take turns where oneDNN computes them. */
void matmul_run(const struct matmul *matmul, const struct matmul_operands *operands, void *workspace);
/* Whether a GEMM of the spec's types, and of any sizes, needs nothing made ready (oneDNN's do). Then a spec that is
 * known only when it runs is computed as matmul_create's would be, to the same bits; `threads`: at most so many. */
bool matmul_is_ready(const struct matmul_spec *spec);
int64_t matmul_spec_workspace_bytes(const struct matmul_spec *spec, int threads);
void matmul_run_spec(const struct matmul_spec *spec, int threads, const struct matmul_operands *operands,
                     void *workspace);
/* NULL is fine. */
void matmul_free(struct matmul *matmul);

/* The largest workspace of several GEMMs that use it in turn; any of them may be NULL. */
int64_t matmul_max_workspace_bytes(struct matmul *const *matmuls, int count);
void matmul_free_all(struct matmul *const *matmuls, int count);
