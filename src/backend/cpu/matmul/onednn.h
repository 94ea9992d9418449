/* GEMMs of small blocks by oneDNN's C API, releases 2.6 and 3.x: c = a b of bf16 on the calling thread alone. No
 * other file calls oneDNN.
 *
 * oneDNN chooses the order of a GEMM's sums by its sizes, the processor and the number of threads that it is made
 * for. A block is made for one thread, whatever the caller has set, so its sums depend on the first two only. */
#pragma once

#include "base/base.h"

/* a is [rows][k] of bf16, c [rows][columns] in fp32, both without gaps. b is [columns][k] of bf16, or panels, each
 * [words][columns of a panel], as pack_steps of simd/kernels.h makes them: the words of k and then zeros, up to a
 * multiple of ONEDNN_PANEL_WORDS. The columns are then a multiple of the panel's. */
struct onednn_shape {
    int64_t rows, columns, k;
    int64_t panel; /* columns of a panel: 16, 32, 48 or 64; 0: there are none */
    int threads;   /* that may call it */
};
enum { ONEDNN_PANEL_COLUMNS = 64, ONEDNN_PANEL_WORDS = 16 };

struct onednn_block;
/* The block of that shape, which all who take it share; give it back as often. *out is NULL when oneDNN has no fast
 * kernel for it that keeps its scratch outside. */
enum status onednn_block_take(const struct onednn_shape *shape, struct onednn_block **out);
/* NULL is fine. */
void onednn_block_give(struct onednn_block *block);
/* Of each thread. */
int64_t onednn_block_scratch_bytes(const struct onednn_block *block);
/* For threads with numbers below shape.threads. Allocates nothing. */
void onednn_block_run(const struct onednn_block *block, int seat, int thread, const void *a, const void *b, float *c,
                      void *scratch);
/* Around all runs of a GEMM by so many threads: blocks are shared, and each caller has a seat of its own at them.
 * There are as many as callers of so many threads have processors, at least one; who finds none waits. */
int onednn_begin(int threads);
void onednn_end(int seat);

/* Limits oneDNN to AVX2. Must be the first call of this header. */
void onednn_limit_avx2(void);
/* oneDNN's extensions of AVX-512 on this processor ("amx", "bf16", or ""); "avx2" without AVX-512. */
const char *onednn_isa_name(void);
