/* All that is oneDNN's: matrix products by its C API, releases 2.6 and 3.x. */
#ifndef BALLAST_BACKEND_CPU_MATMUL_ONEDNN_H
#define BALLAST_BACKEND_CPU_MATMUL_ONEDNN_H

#include "backend/cpu/matmul.h"

struct onednn_matmul;
/* How b lies: as its spec says; or in panels of columns, [panel][k][column], with zeros after its last column and its
 * last step of k (BA16a64b in oneDNN's words), whatever its strides say. */
enum onednn_b { ONEDNN_B_IN_PLACE, ONEDNN_B_PANELS };
enum { ONEDNN_PANEL_COLUMNS = 64, ONEDNN_PANEL_STEPS = 16 }; /* b is padded to multiples of these */

/* *out is NULL when oneDNN has no kernel of this kind that is fast and keeps its scratch in the workspace. Equal specs
 * share their code by oneDNN's own cache of primitives. */
enum status onednn_matmul_create(const struct matmul_spec *spec, enum onednn_b b, struct onednn_matmul **out);
int64_t onednn_matmul_workspace_bytes(const struct onednn_matmul *matmul);
void onednn_matmul_run(const struct onednn_matmul *matmul, const struct matmul_operands *operands, void *workspace);
void onednn_matmul_free(struct onednn_matmul *matmul);
const char *onednn_matmul_implementation(const struct onednn_matmul *matmul);

/* Keeps oneDNN to AVX2; before anything else of it is called. */
void onednn_limit_avx2(void);
/* What oneDNN adds to AVX-512 on this processor ("amx", "bf16", or ""), "avx2" when it has no AVX-512. */
const char *onednn_isa_name(void);

#endif
