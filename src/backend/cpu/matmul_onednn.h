/* Matrix products by oneDNN's C API, releases 2.6 and 3.x. No other file calls oneDNN. */
#ifndef BALLAST_BACKEND_CPU_MATMUL_ONEDNN_H
#define BALLAST_BACKEND_CPU_MATMUL_ONEDNN_H

#include "backend/cpu/matmul.h"

struct onednn_matmul;
/* The layout of b: that of its spec; or panels of columns, [panel][k][column], with zeros after the last column and the
 * last step of k (BA16a64b in oneDNN's words), in which case the spec's strides of b do not count. */
enum onednn_b { ONEDNN_B_IN_PLACE, ONEDNN_B_PANELS };
enum { ONEDNN_PANEL_COLUMNS = 64, ONEDNN_PANEL_STEPS = 16 }; /* b is padded to multiples of these */

/* Sets *out to NULL when oneDNN has no fast kernel for it that keeps its scratch in the workspace. Equal specs share
 * compiled code through oneDNN's cache of primitives. */
enum status onednn_matmul_create(const struct matmul_spec *spec, enum onednn_b b, struct onednn_matmul **out);
int64_t onednn_matmul_workspace_bytes(const struct onednn_matmul *matmul);
void onednn_matmul_run(const struct onednn_matmul *matmul, const struct matmul_operands *operands, void *workspace);
void onednn_matmul_free(struct onednn_matmul *matmul);
const char *onednn_matmul_implementation(const struct onednn_matmul *matmul);

/* Limits oneDNN to AVX2. Must be the first call of this header. */
void onednn_limit_avx2(void);
/* What oneDNN adds to AVX-512 on this processor ("amx", "bf16", or ""), "avx2" when it has no AVX-512. */
const char *onednn_isa_name(void);

#endif
