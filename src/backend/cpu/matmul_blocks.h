/* GEMMs of bf16 by oneDNN's blocks (matmul_onednn.h), in chunks. All threads first pack a chunk's parts of a
 * and b where oneDNN needs that; then each task computes a few blocks of c. With few rows a task packs its part of b
 * itself. How c and the sums are cut into blocks depends on the GEMM's spec alone, and a block is computed by one
 * thread, so the bits are the same on any number of threads.
 */
#ifndef BALLAST_BACKEND_CPU_MATMUL_BLOCKS_H
#define BALLAST_BACKEND_CPU_MATMUL_BLOCKS_H

#include "backend/cpu/matmul.h"
#include "backend/cpu/matmul_onednn.h"

struct blocks_matmul {
    struct matmul_spec spec;
    int threads;
    bool pack_a, pack_b;                      /* else oneDNN reads them where they are */
    bool pack_b_alone;                        /* a task packs its own part of b */
    int64_t rows, columns, depth;             /* of a chunk: of c, and along k */
    int64_t block_rows, block_columns, panel; /* columns of a panel; a block has several where k is small */
    int64_t scratch_bytes;                    /* oneDNN's, of a thread */
    struct onednn_block *blocks[2][2][2];     /* by whether rows, columns and steps are the last ones, and fewer */
};

/* The spec's dtype is bf16. *usable is false when oneDNN has no fast kernel for some block. */
enum status blocks_matmul_create(const struct matmul_spec *spec, struct blocks_matmul *out, bool *usable);
int64_t blocks_matmul_workspace_bytes(const struct blocks_matmul *matmul);
void blocks_matmul_run(const struct blocks_matmul *matmul, const struct matmul_operands *operands, void *workspace);
void blocks_matmul_release(struct blocks_matmul *matmul);

#endif
