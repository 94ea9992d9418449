/* GEMMs by the kernels of simd/, in chunks: in fp32, to which bf16 is converted, or by the processor's tiles
 * in bf16. All threads first pack a chunk's part of b; then each task packs rows of a, step by step, and computes a
 * block of c. An element of c is summed over k in order,
 * whatever the chunks, blocks and threads. */
#ifndef BALLAST_BACKEND_CPU_MATMUL_PACKED_H
#define BALLAST_BACKEND_CPU_MATMUL_PACKED_H

#include "backend/cpu/matmul.h"

/* Of vectors or of tiles. Operands are packed in words of 32 bits: a step in fp32, a pair of steps in bf16. */
struct packed_kernel {
    int64_t rows, columns;              /* of panels */
    int64_t word_steps, words_multiple; /* packed steps are filled up with zeros */
    int64_t step, block_rows;           /* at most, of a panel, of a task */
    int64_t chunk_words;                /* of b */
};

struct packed_matmul {
    struct matmul_spec spec; /* of c's transpose where `turned` */
    bool turned;
    bool few_rows; /* what a chunk's b is packed from is read once, and used little */
    struct packed_kernel kernel;
    int64_t rows, columns, depth;      /* of a chunk: of c, and along k */
    int64_t step;                      /* k of a panel */
    int64_t block_rows, block_columns; /* of a task */
    int threads;
};

/* Whether the processor has tiles for it. */
bool packed_matmul_has_tiles(const struct matmul_spec *spec);
void packed_matmul_init(const struct matmul_spec *spec, int threads, struct packed_matmul *out);
int64_t packed_matmul_workspace_bytes(const struct packed_matmul *matmul);
void packed_matmul_run(const struct packed_matmul *matmul, const struct matmul_operands *operands, void *workspace);

#endif
