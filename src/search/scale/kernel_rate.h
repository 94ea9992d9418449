/* Seconds of kernels on a GPU that is only described: by shape, by bytes against FLOPs, and by the calibration. */
#ifndef BALLAST_SEARCH_SCALE_KERNEL_RATE_H
#define BALLAST_SEARCH_SCALE_KERNEL_RATE_H

#include "search/scale/calibration.h"
#include "search/scale/training.h"

/* What kernels know of the GPU and the calibration. */
struct gpu {
    double flops_per_s;                 /* in 16 bits, of the data sheet, at the power that the GPU may take */
    double product_per_s;               /* what a large GEMM reaches in training */
    double sheet_bytes_per_s;           /* of memory, of the data sheet */
    double bytes_per_s;                 /* what streaming kernels reach */
    double flash_part[ATTENTION_COUNT]; /* of flops_per_s, forward */
    int64_t multiprocessors;
    const struct calibration *calibration;
};
struct gpu gpu_describe(const struct cluster_device *device, const struct calibration *calibration);

/* `count` GEMMs of m x k by k x n side by side in one kernel (batched), operands and result in 16 bits. The tile is
 * the best of those that libraries have; tiles are counted whole, tile waves as calibration.tile_wave_part says; each
 * tile is multiplied and then written. */
double product_s(const struct gpu *gpu, int64_t count, int64_t m, int64_t n, int64_t k);
/* The same where the result is added to what is in memory, in elements of `sum_bytes`, which is read meanwhile. */
double product_sum_s(const struct gpu *gpu, int64_t count, int64_t m, int64_t n, int64_t k, int64_t sum_bytes);

struct attention_shape {
    int64_t sequences, heads, queries, keys, head_size;
    enum attention_kind kind;
};
/* Causal attention; forward, or the gradient by itself. */
double attention_s(const struct gpu *gpu, const struct attention_shape *shape, bool gradient);

/* One kernel that moves so many bytes. */
double streaming_s(const struct gpu *gpu, double bytes);

#endif
