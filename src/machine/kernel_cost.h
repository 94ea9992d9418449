/* Seconds of kernels on a GPU that is only described. They are computed from operator shapes, the data sheet's rates,
 * and the fractions of these that published measurements reach. Both depths of simulation use it: machine/kernel_cost.h
 * for the operators of a compiled program, search/scale for the layers of a transformer. */
#pragma once

#include "ir/op.h"
#include "machine/cluster.h"

/* Constants that no data sheet gives, fitted together on published steps (build/bench/scale_tables --fit). None belongs
 * to one row of a table or to one source: name, value, meaning. bench/RESULTS.md says how they were fitted. */
#define CALIBRATION_LIST(X)                                                                                            \
    X(product_volta, 0.9, "of the GPU's best product rate, what products reach in training: V100")                     \
    X(product_ampere, 0.8674, "the same: A100, A800")                                                                  \
    X(product_hopper, 0.8041, "the same: H100, H200 and later")                                                        \
    X(tile_wave_part, 0.3876, "of a last wave of tiles that is not full, how much is lost")                            \
    X(flash2_ampere, 0.471, "of the data sheet's rate, FlashAttention 2 forward: A100")                                \
    X(flash2_hopper, 0.2513, "the same: H100")                                                                         \
    X(flash1_part, 0.9311, "FlashAttention 1 and Triton's, of FlashAttention 2")                                       \
    X(flash_backward, 0.65, "rate of flash attention's gradient, of its forward")                                      \
    X(memory_part, 0.6792, "of the data sheet's memory rate, what streaming kernels reach")                            \
    X(elementwise_traffic, 0.8743, "bytes of elementwise kernels, of those counted")                                   \
    X(kernel_s, 8e-06, "seconds of a kernel apart from its work: its launch, beginning and end")                       \
    X(launch_s, 6.428e-05, "seconds from a kernel to the next where launches block")                                   \
    X(collective_slowdown, 0.6, "how much longer kernels take during a collective at the links' full rate")            \
    X(congestion, 0.1533, "of the rate across two nodes, what a doubling of them takes away")                          \
    X(broadcast_s, 0.001702, "seconds of a broadcast of new parameters apart from its bytes")                          \
    X(runtime_bytes, 6.052e+09, "of CUDA, its libraries and NCCL's buffers")                                           \
    X(step_s, 0.04413, "seconds of a step that are neither kernels nor collectives")

struct calibration {
#define CALIBRATION_FIELD(name, value, meaning) double name;
    CALIBRATION_LIST(CALIBRATION_FIELD)
#undef CALIBRATION_FIELD
};

/* The values of the list above. */
struct calibration calibration_default(void);

/* Kernels reach other parts of the rates than expected: the ends of the range that published measurements of
 * comparable kernels allow. */
enum roofline_case { ROOFLINE_SLOW, ROOFLINE_EXPECTED, ROOFLINE_FAST, ROOFLINE_CASES };

/* A GPU with the kernels that a training system has for it. */
struct gpu {
    long capability;                         /* compute capability: 80 for sm_80; 0 where the device names none */
    double flops_per_s;                      /* in 16 bits, by data sheet, at the power that the GPU may take */
    double product_per_s;                    /* FLOPs of a large GEMM in training */
    double sheet_bytes_per_s;                /* of memory, by data sheet */
    double bytes_per_s;                      /* of streaming kernels, and of GEMMs that memory bounds */
    double class_bytes_per_s[OP_WORK_COUNT]; /* the same by class of operator */
    double attention_part[2];                /* of flops_per_s: forward, gradient; of heads of 128 and more */
    double small_head_part;                  /* of that rate, what attention with smaller heads reaches */
    double kernel_s;                         /* of a kernel next to its work */
    int64_t multiprocessors;
    int64_t operand_bytes; /* of an element of a GEMM's operands: 2, in fp32 4 */
    const struct calibration *calibration;
};
/* With Ballast's own kernels and the vendor's GEMMs. kernel_s is 0: cluster_rates.issue_s stands for it. */
struct gpu gpu_describe_own(const struct cluster_device *device, const struct calibration *calibration,
                            enum roofline_case which);

/* The same GPU on fp32 operands. */
void gpu_use_fp32(struct gpu *gpu, const struct cluster_limits *limits);

/* `count` GEMMs of m x k by k x n side by side in one kernel (batched), operands of gpu.operand_bytes. */
struct product {
    int64_t count, m, n, k;
    int64_t written_bytes, read_bytes; /* for an element of the result, which may be a sum that is there already */
};
double gemm_s(const struct gpu *gpu, const struct product *product);
/* `count` GEMMs of m x k by k x n in one batched kernel, operands and result of gpu.operand_bytes. It uses the best
 * tile of those that libraries have. Tiles are counted whole, and tile waves by calibration.tile_wave_part. Each tile
 * is multiplied and then written. */
double product_s(const struct gpu *gpu, int64_t count, int64_t m, int64_t n, int64_t k);
/* GEMMs of a head, whose vocabulary is padded to whole tiles. */
double head_products_s(const struct gpu *gpu, double count, int64_t tokens, int64_t vocabulary, int64_t hidden);
/* The same if the result is added to existing elements of `sum_bytes` in memory, which are read meanwhile. */
double product_sum_s(const struct gpu *gpu, int64_t count, int64_t m, int64_t n, int64_t k, int64_t sum_bytes);

struct attention_shape {
    int64_t sequences, heads, queries, keys, head_size;
};
/* Causal attention that writes no scores; forward, or the gradient by itself. */
double attention_s(const struct gpu *gpu, const struct attention_shape *shape, bool gradient);

/* One kernel of a class of Ballast's operators that moves so many bytes. */
double class_streaming_s(const struct gpu *gpu, enum op_work work, double bytes);
/* The gradient of norms of rows of so many elements. */
double norm_gradient_s(const struct gpu *gpu, int64_t row, double bytes);

/* Costs of operators on a device that is only described (cluster_limits), from a node's shape, by the kernels of
 * machine/kernel_cost.h. An estimate, for planning and for comparison with the first measurement. */

struct roofline {
    const char *class_name; /* "GEMMs", "attention", … */
    double seconds;         /* of a call, expected, its launch not counted */
    double limit_s;         /* of a call at the data sheet's rates: FLOPs and bytes of op_cost, the slower of the two */
};

struct roofline roofline_of(const struct node *node, const struct cluster_device *device, enum roofline_case which);

/* Whether the class is bound by its products, which have kernels of their own in the slowdowns. */
bool roofline_is_product(enum op_work work);
