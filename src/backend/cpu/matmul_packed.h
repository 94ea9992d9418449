/* Matrix products by the kernels of simd/: blocks of c are tasks; each converts its part of a and b to fp32, packed,
 * and sums over k in order. */
#ifndef BALLAST_BACKEND_CPU_MATMUL_PACKED_H
#define BALLAST_BACKEND_CPU_MATMUL_PACKED_H

#include "backend/cpu/matmul.h"

struct packed_matmul {
    struct matmul_spec spec;
    int64_t rows, columns, depth; /* of a block: of c, and along k */
    int64_t thread_bytes;         /* workspace of one thread */
    int threads;
};

void packed_matmul_init(const struct matmul_spec *spec, struct packed_matmul *out);
int64_t packed_matmul_workspace_bytes(const struct packed_matmul *matmul);
void packed_matmul_run(const struct packed_matmul *matmul, const void *a, const void *b, const void *bias, void *c,
                       void *workspace);
const char *packed_matmul_implementation(void);

#endif
