/* Matrix products whose b lies by rows, in fp32: b is packed into panels as oneDNN's kernels read it fastest, by parts
 * of k that the last cache holds, and the parts are multiplied by oneDNN and add up in c. */
#ifndef BALLAST_BACKEND_CPU_MATMUL_PANELS_H
#define BALLAST_BACKEND_CPU_MATMUL_PANELS_H

#include "backend/cpu/matmul_onednn.h"

struct panels_matmul {
    struct matmul_spec spec;
    int64_t depth;                               /* steps of k in a part; the last may have fewer */
    struct onednn_matmul *first, *middle, *last; /* NULL where k has no such part */
};

/* Whether packing b pays. */
bool panels_matmul_suits(const struct matmul_spec *spec);
/* out->first is NULL when oneDNN has no fast kernel for it. */
enum status panels_matmul_init(const struct matmul_spec *spec, struct panels_matmul *out);
int64_t panels_matmul_workspace_bytes(const struct panels_matmul *matmul);
void panels_matmul_run(const struct panels_matmul *matmul, const struct matmul_operands *operands, void *workspace);
/* A zeroed one is fine. */
void panels_matmul_release(struct panels_matmul *matmul);

#endif
