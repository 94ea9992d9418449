/* GEMMs whose b may be a weight in fewer bits (ir/weight_format.h). Such a b is unpacked into the workspace, some
 * of the GEMM's columns at a time (a slab), where a GPU's cache still holds them when that part of the GEMM
 * reads them. Each number is code times scale in fp32, rounded to the GEMM's dtype: the bits are those of the
 * GEMMs of the unpacked slabs. */
#ifndef BALLAST_BACKEND_CUDA_CUDA_SLABS_H
#define BALLAST_BACKEND_CUDA_CUDA_SLABS_H

#include "backend/cuda/cuda_matmul.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_slabs;
/* As cuda_matmul's, of which there is one for each width of a slab. */
enum status cuda_slabs_create(const struct cuda_matmul_spec *spec, struct cuda_slabs **out);
int64_t cuda_slabs_workspace_bytes(const struct cuda_slabs *slabs);
void cuda_slabs_run(struct cuda_slabs *slabs, const struct matmul_operands *operands, void *workspace,
                    cudaStream_t stream);
void cuda_slabs_free(struct cuda_slabs *slabs);

/* Rows [row, row + rows) and columns [column, column + columns) of a weight. */
struct cuda_weight_tile {
    int64_t row, rows, column, columns;
};
/* Their numbers, as `dtype`, to `out` [rows][columns], whose address is a multiple of 16 (unpack.cu). */
void cuda_unpack_weight(cudaStream_t stream, const struct weight_layout *layout, const void *weight,
                        const struct cuda_weight_tile *tile, enum dtype dtype, void *out);

#ifdef __cplusplus
}
#endif

#endif
