/* Matrix products by the kernels of simd/, in chunks. All threads first pack a chunk's part of b, converted to fp32;
 * then each task packs rows of a, step by step, and computes a block of c. An element of c is summed over k in order,
 * whatever the chunks, blocks and threads. */
#ifndef BALLAST_BACKEND_CPU_MATMUL_PACKED_H
#define BALLAST_BACKEND_CPU_MATMUL_PACKED_H

#include "backend/cpu/matmul.h"

struct packed_matmul {
    struct matmul_spec spec;
    int64_t rows, columns, depth;      /* of a chunk: of c, and along k */
    int64_t step;                      /* k of a panel */
    int64_t block_rows, block_columns; /* of a task */
    int threads;
};

void packed_matmul_init(const struct matmul_spec *spec, struct packed_matmul *out);
int64_t packed_matmul_workspace_bytes(const struct packed_matmul *matmul);
void packed_matmul_run(const struct packed_matmul *matmul, const struct matmul_operands *operands, void *workspace);
const char *packed_matmul_implementation(void);

#endif
