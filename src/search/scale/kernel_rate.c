#include "search/scale/kernel_rate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* sm_80-108sm: 80. 0 where the name has none. */
static long compute_capability(const char *isa) {
    const char *digits = strstr(isa, "sm_");
    return digits ? strtol(digits + 3, NULL, 10) : 0;
}

static double training_part(long capability, const struct calibration *calibration) {
    if (capability >= 90) return calibration->product_hopper;
    return capability >= 80 ? calibration->product_ampere : calibration->product_volta;
}

/* Of FlashAttention 2, which uses none of what is new in Hopper (arXiv 2407.08608, figures 5 and 6: causal, at heads of
 * 128 and from 1024 positions on 1.6 times forward; at heads of 64 1.3 times forward and 1.5 times backward). */
static double cudnn_part(long capability) { return capability >= 90 ? 1.6 : 1; }

struct gpu gpu_describe(const struct cluster_device *device, const struct calibration *calibration) {
    const struct cluster_limits *limits = &device->limits;
    long capability = compute_capability(device->isa);
    double best = limits->product_part > 0 ? limits->product_part : 0.8;
    double flash2 = capability >= 90 ? calibration->flash2_hopper : calibration->flash2_ampere;
    return (struct gpu){
        .flops_per_s = limits->bf16_flops_per_s,
        .product_per_s = limits->bf16_flops_per_s * best * training_part(capability, calibration),
        .sheet_bytes_per_s = limits->memory_bytes_per_s,
        .bytes_per_s = limits->memory_bytes_per_s * calibration->memory_part,
        .flash_part = {[ATTENTION_FLASH1] = flash2 * calibration->flash1_part,
                       [ATTENTION_FLASH2] = flash2,
                       [ATTENTION_CUDNN] = flash2 * cudnn_part(capability)},
        .multiprocessors = limits->multiprocessors,
        .calibration = calibration,
    };
}

static int64_t parts_of(int64_t size, int64_t part) { return (size + part - 1) / part; }

/* Tiles of the libraries' kernels, and the rate of a multiprocessor on each, of that on the largest: a smaller tile
 * loads more for each GEMM. */
static const struct {
    int64_t rows, columns;
    double rate;
} tiles[] = {{256, 128, 1}, {128, 256, 1}, {128, 128, 0.95}, {128, 64, 0.8}, {64, 128, 0.8}, {64, 64, 0.6}};

struct product {
    int64_t count, m, n, k;
    int64_t written_bytes, read_bytes; /* for an element of the result, which may be a sum that is there already */
};

/* Rows that do not begin at multiples of 16 bytes are loaded element by element (NVIDIA's guide to matrix
 * multiplication: "Requirements to use Tensor Cores"). */
static double alignment_part(int64_t n, int64_t k) { return n % 8 != 0 || k % 8 != 0 ? 0.25 : 1; }

/* A multiprocessor multiplies a tile and then writes it, at its part of the memory's rate. */
static double product_tiles_s(const struct gpu *gpu, const struct product *product) {
    double each = (double)gpu->multiprocessors, sm_per_s = gpu->product_per_s / each, best = INFINITY;
    double write_s = (double)product->written_bytes / (gpu->sheet_bytes_per_s / each);
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++) {
        double blocks = (double)product->count * (double)parts_of(product->m, tiles[i].rows) *
                        (double)parts_of(product->n, tiles[i].columns);
        double tile_waves = blocks / each, whole = ceil(tile_waves),
               elements = (double)(tiles[i].rows * tiles[i].columns);
        tile_waves += (whole - tile_waves) * (whole <= 1 ? 1 : gpu->calibration->tile_wave_part);
        double tile_s = elements * (2 * (double)product->k / (sm_per_s * tiles[i].rate) + write_s);
        if (tile_waves * tile_s < best) best = tile_waves * tile_s;
    }
    return best / alignment_part(product->n, product->k);
}

static double one_product_s(const struct gpu *gpu, const struct product *product) {
    double m = (double)product->m, n = (double)product->n, k = (double)product->k;
    double result = (double)(product->written_bytes + product->read_bytes) * m * n;
    double bytes = (double)product->count * (2 * (m * k + k * n) + result);
    return fmax(product_tiles_s(gpu, product), bytes / gpu->bytes_per_s) + gpu->calibration->kernel_s;
}

double product_s(const struct gpu *gpu, int64_t count, int64_t m, int64_t n, int64_t k) {
    return one_product_s(gpu, &(struct product){count, m, n, k, 2, 0});
}

double product_sum_s(const struct gpu *gpu, int64_t count, int64_t m, int64_t n, int64_t k, int64_t sum_bytes) {
    return one_product_s(gpu, &(struct product){count, m, n, k, sum_bytes, sum_bytes});
}

/* Bytes moved for a score between the two GEMMs, with dropout, which Megatron's systems have unless they are told
 * otherwise: its kernel reads and writes 2 and a byte of mask, either way. The causal softmax reads the lower triangle
 * and writes all: forward 1 + 2, backward, where it reads its result too, 2 + 2 (NVIDIA/Megatron-LM, fused_kernels/
 * scaled_upper_triang_masked_softmax.h). */
static const double scores_forward_bytes = 8, scores_backward_bytes = 9;

/* Scores go to memory and come back, a GEMM before and one after. */
static double scores_s(const struct gpu *gpu, const struct attention_shape *shape, bool gradient) {
    int64_t pairs = shape->sequences * shape->heads;
    double scores = (double)pairs * (double)shape->queries * (double)shape->keys;
    double products = product_s(gpu, pairs, shape->queries, shape->keys, shape->head_size) +
                      product_s(gpu, pairs, shape->queries, shape->head_size, shape->keys);
    double softmax = streaming_s(gpu, scores * (gradient ? scores_backward_bytes : scores_forward_bytes));
    return gradient ? 2 * products + softmax : products + softmax;
}

/* Half of the tiles at least are left out, those on the diagonal are done whole. */
static double causal_part(const struct attention_shape *shape) {
    const double tile = 128;
    return fmin(1, 0.5 + tile / (2 * (double)shape->queries));
}

/* At head sizes below 128 there are as many exponentials for fewer GEMMs: FlashAttention 2 reaches nine tenths at 64
 * (arXiv 2307.08691, figures 4 to 6). FlashAttention 1 is as fast there, its registers are made for it. */
static double head_part(const struct attention_shape *shape) {
    return shape->head_size >= 128 || shape->kind == ATTENTION_FLASH1 ? 1 : 0.9;
}

double attention_s(const struct gpu *gpu, const struct attention_shape *shape, bool gradient) {
    if (shape->kind == ATTENTION_SCORES) return scores_s(gpu, shape, gradient);
    double flops = 4 * (double)(shape->sequences * shape->heads) * (double)shape->queries * (double)shape->keys *
                   (double)shape->head_size * causal_part(shape);
    double rate = gpu->flops_per_s * gpu->flash_part[shape->kind] * head_part(shape);
    double seconds = gradient ? 2.5 * flops / (rate * gpu->calibration->flash_backward) : flops / rate;
    return seconds + (gradient ? 2 : 1) * gpu->calibration->kernel_s;
}

double streaming_s(const struct gpu *gpu, double bytes) {
    return bytes / gpu->bytes_per_s + gpu->calibration->kernel_s;
}
