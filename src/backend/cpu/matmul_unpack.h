/* A b in a format of fewer bits (ir/weight_format.h): its numbers, a tile at a time, for the packing of a GEMM.
 */
#ifndef BALLAST_BACKEND_CPU_MATMUL_UNPACK_H
#define BALLAST_BACKEND_CPU_MATMUL_UNPACK_H

#include "backend/matmul_spec.h"

/* Steps [k, k + steps) of columns [column, column + columns) of b. */
struct matmul_tile {
    int64_t k, steps, column, columns;
};
/* Each number is code times scale in fp32, rounded to the GEMM's dtype; `out` holds them in `to`, which is that or
 * fp32: [columns][steps] where b_k is 1, else [steps][columns]. */
void matmul_unpack(const struct matmul_spec *spec, const void *b, const struct matmul_tile *tile, enum dtype to,
                   void *out);

#endif
