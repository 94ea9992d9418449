/* GEMMs: c = a b (+ bias) (+ addend). Those with a short side by the kernels for words of simd/; others of
 * bf16 by the processor's tiles where it has them (AMX), or in blocks by oneDNN where it has a fast kernel that keeps
 * its scratch in the workspace (brgemm, with instructions for bf16); all others by the packed kernels of simd/. Sums
 * are in fp32; the order of a sum depends on the sizes, the layouts, the instruction set and, for oneDNN, on its
 * release and the processor's caches, and on nothing else: not on the number of threads. A b in a format of fewer bits
 * is unpacked, piece by piece, where it is packed.
 *
 * Files, in the order to read them: matmul: the choice, and what the three ways share (parts); thin: one side is short,
 * by the vector kernels for words; blocks, onednn: oneDNN, block by block; packed: the vector kernels and tiles. */
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

/* Of several GEMMs that use one workspace in turn, any of them NULL. */
int64_t matmul_max_workspace_bytes(struct matmul *const *matmuls, int count);
void matmul_free_all(struct matmul *const *matmuls, int count);
