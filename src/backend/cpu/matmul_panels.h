/* Matrix products in fp32 whose b lies by rows: packs b into panels, the layout that oneDNN's kernels read fastest, and
 * calls oneDNN. */
#ifndef BALLAST_BACKEND_CPU_MATMUL_PANELS_H
#define BALLAST_BACKEND_CPU_MATMUL_PANELS_H

#include "backend/cpu/matmul_onednn.h"

struct panels_matmul {
    struct matmul_spec spec;
    struct onednn_matmul *onednn;
};

/* out->onednn is NULL when oneDNN has no fast kernel for it. */
enum status panels_matmul_init(const struct matmul_spec *spec, struct panels_matmul *out);
int64_t panels_matmul_workspace_bytes(const struct panels_matmul *matmul);
void panels_matmul_run(const struct panels_matmul *matmul, const struct matmul_operands *operands, void *workspace);

#endif
