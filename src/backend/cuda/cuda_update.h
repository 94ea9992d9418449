/* What an update of whole matrices (muon.cu) takes from that of elements (optimizer.cu). */
#ifndef BALLAST_BACKEND_CUDA_CUDA_UPDATE_H
#define BALLAST_BACKEND_CUDA_CUDA_UPDATE_H

#include "backend/backend.h"

/* Changes the moment of all of a matrix, and writes the fp32 direction, where the clip factor is a number. */
enum status cuda_muon_move(const struct kernel *kernel, const struct kernel_call *call, float *direction);
/* *out = the sum of the squares of `count` numbers, whose address is a multiple of 16; `sums` gets those of blocks of
 * GRADIENT_NORM_BLOCK. */
void cuda_squared_norm_of(const float *data, int64_t count, double *sums, double *out, void *stream);

#endif
