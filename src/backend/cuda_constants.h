/* Constants of the CUDA backend that need neither a GPU nor CUDA in the build. Plans for target devices
 * (profile/described_device.h) use them. */
#pragma once

#include "backend/kernel_parts.h"

/* The operators that the CUDA backend implements (cpu/kernel.h): all. The kernels of NAME are made by
 * cuda_NAME_create, in cuda/kernels/FILE.cu for the operators of ops/FILE.c. */
#define CUDA_OP_LIST OP_LIST

/* struct backend's kernels_version. */
enum { CUDA_KERNELS_VERSION = 6 };

/* How the part of an instruction set's name begins that names libraries. */
#define CUDA_ISA_LIBRARIES "+cublaslt-"

/* The most workspace that the algorithm of a GEMM may ask for (NVIDIA's advice for compute capability 9.0). */
enum { CUDA_PRODUCT_WORKSPACE_BYTES = 32 << 20 };

/* Columns of a quantized b that a GEMM unpacks at a time (cuda/matmul.h): equal parts of n, in multiples of
 * CUDA_SLAB_UNIT. Their numbers take CUDA_SLAB_BYTES, most or all of which fits a GPU's cache (6 MiB on an RTX 3090, 50
 * on an H100, 72 on an RTX 4090). This size is a judgement, not measured. */
enum { CUDA_SLAB_BYTES = 16 << 20, CUDA_SLAB_UNIT = 64 };
static inline int64_t cuda_slab_columns(const struct matmul_spec *spec) {
    int64_t units = (spec->n + CUDA_SLAB_UNIT - 1) / CUDA_SLAB_UNIT;
    int64_t max = CUDA_SLAB_BYTES / (spec->k * dtype_bytes(spec->dtype) * CUDA_SLAB_UNIT);
    int64_t parts = max > 1 ? (units + max - 1) / max : units, each = (units + parts - 1) / parts;
    return parts > 1 ? each * CUDA_SLAB_UNIT : spec->n;
}
static inline int64_t cuda_slab_bytes(const struct matmul_spec *spec) {
    return cuda_slab_columns(spec) * spec->k * dtype_bytes(spec->dtype);
}

/* The workspace of a loss of pairs: each pair's figures. */
static inline int64_t cuda_preference_bytes(const struct node *node) {
    return node->in[0]->shape.dims[0] / 2 * PREFERENCE_FIGURES * (int64_t)sizeof(double);
}
/* Routing sorts so many slots, and the experts' load sums so many tokens, in a block. */
enum { CUDA_SLOTS_BLOCK = 256, CUDA_LOAD_TOKENS = 64 };
/* An expert's activations in its workspace, each of all rows: gate, up and what they make; its gradient too. */
enum { CUDA_EXPERT_ACTIVATIONS = 3, CUDA_EXPERT_GRAD_ACTIVATIONS = 4 };
/* The GEMM of `k` steps and `n` columns with an expert's weight. */
static inline struct matmul_spec cuda_expert_product(const struct node *node, int64_t n, int64_t k) {
    struct matmul_spec spec = {0};
    spec.n = n, spec.k = k, spec.dtype = node->in[0]->shape.dtype;
    return spec;
}
/* Bytes of a slab of the largest of an expert's quantized weights, in either orientation; it lies behind the
 * activations. */
static inline int64_t cuda_expert_slab_bytes(const struct node *node) {
    if (expert_down(node)->code.format == WEIGHT_PLAIN) return 0;
    bool pairs = node->op == &op_expert_glu || node->op == &op_expert_glu_grad;
    int64_t columns = shape_columns(&node->in[0]->shape), width = expert_width(node), max = 0;
    for (int i = 0; i < 4; i++) {
        int64_t inner = pairs && i < 2 ? 2 * width : width;
        struct matmul_spec spec = cuda_expert_product(node, i % 2 ? columns : inner, i % 2 ? inner : columns);
        max = cuda_slab_bytes(&spec) > max ? cuda_slab_bytes(&spec) : max;
    }
    return max;
}

/* Device memory that CUDA takes besides the arenas. Graphs take some 64 KiB for each of CUDA_GRAPH_NODES calls. Until
 * each kernel has been called once (session/engine.h), CUDA also needs memory for the code of cuBLASLt's and cuDNN's
 * kernels, and for local memory. These kernels load at their first call (some MiB each; a step uses a few dozen). Plans
 * made before those calls assume CUDA_CODE_BYTES. CUDA_MODULE_LOADING=EAGER would load all of cuBLASLt's kernels. */
enum { CUDA_GRAPH_NODES = 2048 };
#define CUDA_GRAPH_BYTES ((int64_t)128 << 20)
#define CUDA_CODE_BYTES ((int64_t)256 << 20)

/* GEMMs are fastest on aligned rows, and few vocabularies are so divisible (GPT-2: 50257). */
static const struct head_limits cuda_head_limits = {
    .logits_bytes = (int64_t)512 << 20, .tile_tokens = 4096, .logits_row = 64};
