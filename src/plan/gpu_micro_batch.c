#include "plan/gpu_micro_batch.h"

/* What a block of a GEMM's grid makes of the result (cuBLASLt's largest on Hopper). */
static const int64_t TILE_TOKENS = 128, TILE_FEATURES = 256;
/* FLOPs for each byte of the GPU's memory rate (H100: 989 TFLOP/s in bf16, 3.35 TB/s). A weight's gradient is 8 bytes
 * of traffic a micro-batch, and each token takes 6 FLOPs of every weight. */
static const double FLOPS_A_BYTE = 295, GRADIENT_BYTES = 8, FLOPS_A_TOKEN = 6;
/* Activations of a layer that are kept, in bytes for each of its features and a token (Korthikanti et al., arXiv
 * 2205.05198, without dropout and scores), and the most of the memory that those of all layers take. */
static const double LAYER_BYTES = 34, MEMORY_SHARE = 0.25;
/* As good as the best: less memory is worth the rest. */
static const double ENOUGH = 0.97;

/* Part of the GPU's rate that GEMMs of so many tokens reach, by full tile waves and by the gradient's traffic. */
static double rate_of(int multiprocessors, int64_t tokens, int64_t width) {
    int64_t tiles = (tokens + TILE_TOKENS - 1) / TILE_TOKENS * ((width + TILE_FEATURES - 1) / TILE_FEATURES);
    int64_t tile_waves = (tiles + multiprocessors - 1) / multiprocessors;
    double filled = (double)tiles / (double)(tile_waves * multiprocessors);
    return filled / (1 + FLOPS_A_BYTE * GRADIENT_BYTES / (FLOPS_A_TOKEN * (double)tokens));
}

int64_t gpu_micro_batch_tokens(int multiprocessors, int64_t memory_bytes, int64_t layers, int64_t width) {
    double token_bytes = LAYER_BYTES * (double)layers * (double)width, best = 0;
    int64_t max = GPU_MICRO_BATCH_MIN;
    while (max < GPU_MICRO_BATCH_MAX && token_bytes * (double)(2 * max) <= MEMORY_SHARE * (double)memory_bytes)
        max *= 2;
    for (int64_t tokens = GPU_MICRO_BATCH_MIN; tokens <= max; tokens *= 2) {
        double rate = rate_of(multiprocessors, tokens, width);
        if (rate > best) best = rate;
    }
    int64_t tokens = GPU_MICRO_BATCH_MIN;
    while (tokens < max && rate_of(multiprocessors, tokens, width) < ENOUGH * best)
        tokens *= 2;
    return tokens;
}
