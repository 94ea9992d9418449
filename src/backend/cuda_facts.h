/* What of the CUDA backend holds whether or not there is a card, or even CUDA in the build: plans for described cards
 * (profile/described_device.h) are made with it. */
#ifndef BALLAST_BACKEND_CUDA_FACTS_H
#define BALLAST_BACKEND_CUDA_FACTS_H

#include "backend/head_tiles.h"

/* struct backend's kernels_version. */
enum { CUDA_KERNELS_VERSION = 4 };

/* How the part of an instruction set's name begins that names libraries. */
#define CUDA_ISA_LIBRARIES "+cublaslt-"

/* The most workspace that the algorithm of a product may ask for (NVIDIA's advice for compute capability 9.0). */
enum { CUDA_PRODUCT_WORKSPACE_BYTES = 32 << 20 };

/* Of a card's memory, what CUDA still takes after the free part was measured: graphs (some 64 KiB for each of
 * CUDA_GRAPH_NODES calls: 128 MiB), and the code of cuBLASLt's and cuDNN's kernels, which are loaded one by one when
 * they are first used (some MiB each; a step uses a few dozen: 256 MiB). CUDA_MODULE_LOADING=EAGER would load all that
 * cuBLASLt has. */
enum { CUDA_GRAPH_NODES = 2048 };
#define CUDA_LATER_BYTES ((int64_t)384 << 20)

/* Products are fastest on aligned rows, and few vocabularies are so divisible (GPT-2: 50257). */
static const struct head_limits cuda_head_limits = {
    .logits_bytes = (int64_t)512 << 20, .tile_tokens = 4096, .logits_row = 64};

#endif
