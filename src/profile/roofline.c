#include "profile/roofline.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ir/ops/ops.h"

/* Parts of the data sheet's bf16 rate, from published measurements of comparable kernels. Attention is counted as
 * FlashAttention counts it: causal pairs, two GEMMs forward, five backward; heads of 128. */
static const struct architecture {
    long capability; /* and later ones, up to the next row */
    double product[ROOFLINE_CASES], attention[ROOFLINE_CASES], attention_grad[ROOFLINE_CASES];
} architectures[] = {
    /* GEMMs, of the rate of the best shape (cluster_limits.product_part): 0.80 is what steps of published training runs
     * reach (search/scale/calibration.h, product_hopper); 0.95 is an H200's sustained rate, 755 TFLOP/s, over its burst
     * of 794 (stas00/ml-engineering, maximum sustainable and achievable matmul FLOPS). Attention: FlashAttention-2,
     * which uses mma.sync as the own kernels do, reaches 260 of 989 TFLOP/s forward on an H100, causal, at 1024
     * positions, and 260 backward, not causal (arXiv 2407.08608, figures 5 and 6); causal costs forward a quarter of
     * the rate (350 to 260), and backward is taken to lose as much: 195. The own kernels are read as a little slower,
     * by exponentials and tiles at the diagonal. */
    {90, {0.80, 0.85, 0.95}, {0.18, 0.22, 0.26}, {0.17, 0.20, 0.23}},
    /* An RTX 4090: 178.5 TFLOP/s by the best shape, at a clock above the data sheet's 165.2 (mag-/gpu_benchmark). No
     * published attention at 1024 positions was found: as on Ampere. */
    {89, {0.84, 0.93, 1.00}, {0.33, 0.40, 0.47}, {0.21, 0.26, 0.31}},
    /* An A100: GEMMs of published steps reach 0.87 of the best shape's 271 TFLOP/s, FlashAttention-2 forward 0.47 of
     * the data sheet, and backward 0.65 of that (search/scale/calibration.h, fitted on such steps). */
    {0, {0.80, 0.87, 0.97}, {0.33, 0.40, 0.47}, {0.21, 0.26, 0.31}},
};
/* Of the part of the memory's rate that streaming kernels are expected to reach; copies in an H100's memory reach 0.90
 * to 0.93 of the data sheet. */
static const double streaming[ROOFLINE_CASES] = {0.88, 1, 1.06};
/* The best shape's rate, where the cluster file has none: an H100's 792 of 989 TFLOP/s. */
static const double PRODUCT_PART = 0.80;

/* Parts of the data sheet's rates. Where the reason is another's measurement, it says whose; where it is a reading of
 * the own kernels' machine code, it is that of bench/results/2026-11-22-gpu-expected.md. Those wait for a GPU. */
static const struct {
    const char *name;
    double flops, bytes;
} classes[OP_WORK_COUNT] = {
    /* FLOPs by `architectures`, less what a shape leaves idle (`filled`). Bytes as elementwise operators. */
    [OP_WORK_PRODUCT] = {"GEMMs", 1, 0.85},
    [OP_WORK_ATTENTION] = {"attention", 1, 0.70},
    [OP_WORK_ATTENTION_CACHED] = {"attention", 1, 0.70},
    [OP_WORK_ATTENTION_GRAD] = {"attention's gradient", 1, 0.70},
    /* A row is read once, a warp or block each: the latency of one sum and a second pass over registers. */
    [OP_WORK_NORM] = {"norms", 0, 0.75},
    /* dx, and the weight's gradient in kernels of its own, which read dy and x again. Of narrow rows: NARROW_PART. */
    [OP_WORK_NORM_GRAD] = {"norms' gradients", 0, 0.60},
    /* Copies in an H100's memory reach 3.0 to 3.1 of 3.35 TB/s; kernels of three operands somewhat less. */
    [OP_WORK_STREAM] = {"elementwise", 0, 0.85},
    /* Rows of some KiB at random places. */
    [OP_WORK_LOOKUP] = {"embedding", 0, 0.60},
    /* One block sums the rows of equal tokens, in eight ordered parts: its time is that of the most frequent token. */
    [OP_WORK_LOOKUP_GRAD] = {"embedding's gradient", 0, 0.30},
    /* GEMMs as above; the loss between them reads and writes rows of logits at once, 369 us of 430. */
    [OP_WORK_LOGITS] = {"head and loss", 1, 0.85},
    [OP_WORK_LOSS] = {"head and loss", 1, 0.85},
    [OP_WORK_LOSS_GRAD] = {"head and loss", 1, 0.85},
    /* A few GEMMs in turn, of few rows each. */
    [OP_WORK_EXPERT] = {"experts", 0.65, 0.85},
    /* Many parameters, most of them small; each 16 KiB are read by a block of threads, which then adds up its sums. */
    [OP_WORK_SQUARED_NORM] = {"squared norms", 0, 0.50},
    /* 28 bytes a parameter in streams, many parameters a launch: 1114 us of 1200. */
    [OP_WORK_OPTIMIZER] = {"optimizer", 0, 0.92},
    /* GEMMs as above, of one matrix, in turn. */
    [OP_WORK_MATRIX_UPDATE] = {"optimizer's GEMMs", 0.65, 0.85},
};

/* At head sizes below 128 exponentials are as many for half of the GEMMs: FlashAttention-2 forward at 64 reaches 229
 * TFLOP/s in place of 260, backward 238 (arXiv 2407.08608, figures 5 and 6). */
static const double SMALL_HEAD = 128, SMALL_HEAD_PART = 0.88;
/* Gradients of norms whose rows a warp holds (backend/cuda/norm.cu) read them once. */
static const int64_t NARROW_MIN = 257, NARROW_MAX = 1024;
static const double NARROW_PART = 0.75;
/* What a block of a GEMM's grid makes of the result, and the least of its sums that is worth a block of its own. */
static const int64_t TILE_ROWS = 128, TILE_COLUMNS = 256, SPLIT_MIN = 2048;
/* Of a logit, next to its GEMMs: read as fp32; its gradient written as bf16. */
static const double LOSS_BYTES = 4, LOSS_GRADIENT_BYTES = 6;
/* AdamW on a host's cores, of its memory's rate. */
static const double HOST_PART = 0.70;

static int64_t tiles_along(int64_t size, int64_t tile) { return (size + tile - 1) / tile; }

/* Part of the multiprocessors at work, over the tile waves of a GEMM; its sums, each of so many terms, may be cut
 * in parts to fill them. */
static double filled(const struct shape *result, int64_t terms, int64_t multiprocessors) {
    int64_t tiles = tiles_along(shape_rows(result), TILE_ROWS) * tiles_along(shape_columns(result), TILE_COLUMNS);
    double best = 0;
    for (int64_t parts = 1; parts == 1 || parts * SPLIT_MIN <= terms; parts *= 2) {
        int64_t tile_waves = tiles_along(tiles * parts, multiprocessors);
        double part = (double)(tiles * parts) / (double)(tile_waves * multiprocessors);
        if (part > best) best = part;
    }
    return best;
}

static double product_fill(const struct node *node, const struct cluster_limits *limits) {
    const struct shape *result = &node->out[0]->shape;
    double terms = node->op->flops(node) / (2 * (double)shape_elements(result));
    return filled(result, (int64_t)llround(terms), limits->multiprocessors);
}

static bool is_attention(enum op_work work) {
    return work == OP_WORK_ATTENTION || work == OP_WORK_ATTENTION_GRAD || work == OP_WORK_ATTENTION_CACHED;
}

static bool is_head(enum op_work work) {
    return work == OP_WORK_LOGITS || work == OP_WORK_LOSS || work == OP_WORK_LOSS_GRAD;
}

static const struct architecture *architecture_of(const struct cluster_device *device) {
    const char *digits = strstr(device->isa, "sm_");
    const struct architecture *found = architectures;
    while (found->capability > (digits ? strtol(digits + 3, NULL, 10) : 0))
        found++;
    return found;
}

/* Of the data sheet's rate, by class: that of attention or of large GEMMs, times the class's own part. */
static double class_part(enum op_work work, const struct cluster_device *device, enum roofline_case which) {
    const struct architecture *architecture = architecture_of(device);
    double best = device->limits.product_part > 0 ? device->limits.product_part : PRODUCT_PART;
    if (work == OP_WORK_ATTENTION_GRAD) return classes[work].flops * architecture->attention_grad[which];
    if (is_attention(work)) return classes[work].flops * architecture->attention[which];
    return classes[work].flops * architecture->product[which] * best;
}

static double part_of_flops(const struct node *node, const struct cluster_device *device, enum roofline_case which) {
    enum op_work work = node->op->work;
    double part = class_part(work, device, which);
    if (work == OP_WORK_PRODUCT) return part * product_fill(node, &device->limits);
    if (!is_attention(work)) return part;
    const struct attention_attributes *attributes = node->attributes;
    return (double)attributes->head_dim < SMALL_HEAD ? part * SMALL_HEAD_PART : part;
}

static double expected_part_of_bytes(const struct node *node) {
    enum op_work work = node->op->work;
    const struct tensor *weight = node->in[2]; /* NULL: a bias's gradient, which is a column sum all the same */
    if (work != OP_WORK_NORM_GRAD || !weight) return classes[work].bytes;
    int64_t group = shape_columns(&weight->shape);
    return group >= NARROW_MIN && group <= NARROW_MAX ? NARROW_PART : classes[work].bytes;
}

static double part_of_bytes(const struct node *node, enum roofline_case which) {
    return expected_part_of_bytes(node) * streaming[which];
}

static double longer(double a, double b) { return a > b ? a : b; }

/* Its passes follow each other: GEMMs, then the loss of their logits. */
static double head_loss_s(const struct node *node, double memory_bytes_per_s) {
    double logits = (double)shape_rows(&node->in[0]->shape) * (double)node->in[1]->shape.dims[0];
    enum op_work work = node->op->work;
    double bytes = work == OP_WORK_LOSS_GRAD ? LOSS_GRADIENT_BYTES : work == OP_WORK_LOSS ? LOSS_BYTES : 0;
    return logits * bytes / (memory_bytes_per_s * classes[work].bytes);
}

static const struct tensor *quantized_weight(const struct node *node) {
    for (int i = 0; i < OP_INPUTS_MAX; i++)
        if (node->in[i] && node->in[i]->code.format != WEIGHT_PLAIN) return node->in[i];
    return NULL;
}

/* A kernel of its own unpacks a quantized weight before each GEMM that reads it (backend/cuda/cuda_slabs.h). A frozen
 * weight's GEMMs have 2 FLOPs for each row and element; all weights of a node are in one format. */
static double unpack_s(const struct node *node, double memory_bytes_per_s) {
    const struct tensor *weight = quantized_weight(node);
    if (!weight) return 0;
    double rows = node->op->work == OP_WORK_EXPERT ? expert_mean_rows(node) : (double)shape_rows(&node->in[0]->shape);
    double elements = node->op->flops(node) / (2 * rows);
    double bytes = (double)shape_bytes(&weight->shape) + (double)shape_bytes(&weight->code.values);
    double element_bytes = bytes / (double)shape_elements(&weight->code.values);
    return elements * element_bytes / (memory_bytes_per_s * classes[OP_WORK_STREAM].bytes);
}

struct roofline roofline_of(const struct node *node, const struct cluster_device *device, enum roofline_case which) {
    const struct cluster_limits *limits = &device->limits;
    enum op_work work = node->op->work;
    bool bf16 = node->in[0] && node->in[0]->shape.dtype == DTYPE_BF16;
    double flops_per_s = bf16 ? limits->bf16_flops_per_s : limits->fp32_flops_per_s;
    double part = part_of_flops(node, device, which);
    struct op_cost cost;
    op_cost(node, &cost);
    double flops_s = part > 0 ? cost.flops / flops_per_s : 0, bytes_s = cost.bytes / limits->memory_bytes_per_s;
    struct roofline cost_of = {.class_name = classes[work].name, .limit_s = longer(flops_s, bytes_s)};
    cost_of.seconds = longer(part > 0 ? flops_s / part : 0, bytes_s / part_of_bytes(node, which));
    double memory_bytes_per_s = limits->memory_bytes_per_s * streaming[which];
    if (is_head(work)) cost_of.seconds += head_loss_s(node, memory_bytes_per_s);
    cost_of.seconds += unpack_s(node, memory_bytes_per_s);
    return cost_of;
}

static struct kernel_cost host_cost(const struct node *node, const struct cluster_limits *limits) {
    struct op_cost cost;
    op_cost(node, &cost);
    return (struct kernel_cost){cost.bytes / (limits->host_bytes_per_s * HOST_PART), ACTIVITY_COPY};
}

enum status roofline_costs(const struct graph *graph, const struct cluster *cluster, enum roofline_case which,
                           struct costs *out) {
    const struct cluster_limits *limits = &cluster->device.limits;
    size_t nodes = graph->nodes.count;
    struct costs costs = {.count = (int32_t)nodes, .operators = (int32_t)nodes, .rates = cluster->rates};
    costs.kernels = mem_array(nodes, sizeof *costs.kernels);
    costs.host_kernels = costs.kernels ? mem_array(nodes, sizeof *costs.host_kernels) : NULL;
    if (!costs.host_kernels) {
        costs_free(&costs);
        return STATUS_FAILED;
    }
    for (size_t i = 0; i < nodes; i++) {
        const struct node *node = graph->nodes.items[i];
        if (node->op->collective) continue; /* costs_set_collectives */
        bool product = classes[node->op->work].flops > 0;
        costs.kernels[i].seconds = roofline_of(node, &cluster->device, which).seconds;
        costs.kernels[i].activity = product ? ACTIVITY_PRODUCT : ACTIVITY_STREAMING;
        costs.host_kernels[i] = node->phase == PHASE_UPDATE ? host_cost(node, limits) : costs.kernels[i];
    }
    *out = costs;
    return STATUS_OK;
}
