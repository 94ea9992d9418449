#include "profile/roofline.h"

#include <math.h>

#include "ops/ops.h"

/* Parts of the data sheet's rates. Where the reason is another's measurement, it says whose; where it is a reading of
 * the own kernels' machine code, it is that of bench/results/2026-11-22-gpu-expected.md. Those wait for a card. */
static const struct {
    const char *name;
    double flops, bytes;
} classes[OP_WORK_COUNT] = {
    /* The best shape of cuBLAS on an H100 SXM reaches 792 of 989 TFLOP/s, by its power (stas00/ml-engineering, table of
     * maximum achievable matmul FLOPS). What a shape leaves of that is `filled`. Bytes as elementwise operators. */
    [OP_WORK_PRODUCT] = {"products", 0.80, 0.85},
    /* mma.sync, not wgmma: FlashAttention-2 reaches 35% to 40% of an H100 (arXiv 2407.08608, figure 1); the own kernels
     * are expected a little below, by exponentials and by tiles at the diagonal. At head size 64: see small_heads. */
    [OP_WORK_ATTENTION] = {"attention", 0.33, 0.70},
    [OP_WORK_ATTENTION_CACHED] = {"attention", 0.33, 0.70},
    /* Of its seven products, not of the five that are counted. */
    [OP_WORK_ATTENTION_GRAD] = {"attention's gradient", 0.37, 0.70},
    /* A row is read once, a warp or block each: the latency of one sum and a second pass over registers. */
    [OP_WORK_NORM] = {"norms", 0, 0.75},
    /* dx, and the weight's gradient in kernels of its own, which read dy and x again. Of narrow rows: NARROW_PART. */
    [OP_WORK_NORM_GRAD] = {"norms' gradients", 0, 0.60},
    /* Copies in an H100's memory reach 3.0 to 3.1 of 3.35 TB/s; kernels of three operands somewhat less. */
    [OP_WORK_STREAM] = {"elementwise", 0, 0.85},
    /* Rows of some KiB at random places. */
    [OP_WORK_LOOKUP] = {"embedding", 0, 0.60},
    /* Equal tokens are added in order, by one block each row of the table: frequent tokens wait for each other. */
    [OP_WORK_LOOKUP_GRAD] = {"embedding's gradient", 0, 0.30},
    /* Products as above; the loss between them reads and writes rows of logits at once, 369 us of 430. */
    [OP_WORK_LOGITS] = {"head and loss", 0.80, 0.85},
    [OP_WORK_LOSS] = {"head and loss", 0.80, 0.85},
    [OP_WORK_LOSS_GRAD] = {"head and loss", 0.80, 0.85},
    /* A few products in turn, of few rows each. */
    [OP_WORK_EXPERT] = {"experts", 0.50, 0.85},
    /* Many parameters, most of them small; each 16 KiB are read by a block of threads, which then adds up its sums. */
    [OP_WORK_SQUARED_NORM] = {"squared norms", 0, 0.50},
    /* 28 bytes a parameter in streams, many parameters a launch: 1114 us of 1200. */
    [OP_WORK_OPTIMIZER] = {"optimizer", 0, 0.92},
    /* Products as above, of one matrix, in turn. */
    [OP_WORK_MATRIX_UPDATE] = {"optimizer's products", 0.50, 0.85},
};

/* At head sizes below 128 exponentials are as many for half of the products: 256 of 989 TFLOP/s forward, 321 backward.
 */
static const double SMALL_HEAD = 128, SMALL_HEAD_PART = 0.80;
/* Gradients of norms whose rows a warp holds (backend/cuda/norm.cu) read them once. */
static const int64_t NARROW_LEAST = 257, NARROW_MOST = 1024;
static const double NARROW_PART = 0.75;
/* Products that attention's gradient makes, over those that are counted. */
static const double GRADIENT_PRODUCTS = 7.0 / 5;
/* What a block of a product's grid makes of the result, and the least of its sums that is worth a block of its own. */
static const int64_t TILE_ROWS = 128, TILE_COLUMNS = 256, SPLIT_LEAST = 2048;
/* Of a logit, beside its products: read as fp32; its gradient written as bf16. */
static const double LOSS_BYTES = 4, LOSS_GRADIENT_BYTES = 6;
/* AdamW on a host's cores, of its memory's rate. */
static const double HOST_PART = 0.70;

static int64_t tiles_along(int64_t size, int64_t tile) { return (size + tile - 1) / tile; }

/* Part of the multiprocessors at work, over the waves of a product's tiles; its sums, each of so many terms, may be cut
 * in parts to fill them. */
static double filled(const struct shape *result, int64_t terms, int64_t multiprocessors) {
    int64_t tiles = tiles_along(shape_rows(result), TILE_ROWS) * tiles_along(shape_columns(result), TILE_COLUMNS);
    double best = 0;
    for (int64_t parts = 1; parts == 1 || parts * SPLIT_LEAST <= terms; parts *= 2) {
        int64_t waves = tiles_along(tiles * parts, multiprocessors);
        double part = (double)(tiles * parts) / (double)(waves * multiprocessors);
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

static double part_of_flops(const struct node *node, const struct cluster_limits *limits) {
    enum op_work work = node->op->work;
    double part = classes[work].flops;
    if (work == OP_WORK_PRODUCT) return part * product_fill(node, limits);
    if (!is_attention(work)) return part;
    const struct attention_attributes *attributes = node->attributes;
    if ((double)attributes->head_dim < SMALL_HEAD) part *= SMALL_HEAD_PART;
    return work == OP_WORK_ATTENTION_GRAD ? part / GRADIENT_PRODUCTS : part;
}

static double part_of_bytes(const struct node *node) {
    enum op_work work = node->op->work;
    const struct tensor *weight = node->in[2]; /* NULL: a bias's gradient, which is a column sum all the same */
    if (work != OP_WORK_NORM_GRAD || !weight) return classes[work].bytes;
    int64_t group = shape_columns(&weight->shape);
    return group >= NARROW_LEAST && group <= NARROW_MOST ? NARROW_PART : classes[work].bytes;
}

static double longer(double a, double b) { return a > b ? a : b; }

/* Its passes follow each other: products, then the loss of their logits. */
static double head_loss_s(const struct node *node, const struct cluster_limits *limits) {
    double logits = (double)shape_rows(&node->in[0]->shape) * (double)node->in[1]->shape.dims[0];
    enum op_work work = node->op->work;
    double bytes = work == OP_WORK_LOSS_GRAD ? LOSS_GRADIENT_BYTES : work == OP_WORK_LOSS ? LOSS_BYTES : 0;
    return logits * bytes / (limits->memory_bytes_per_s * classes[work].bytes);
}

/* A weight in fewer bits is unpacked, by a kernel of its own, before the product reads it (backend/cuda/cuda_slabs.h).
 */
static double unpack_s(const struct node *node, const struct cluster_limits *limits) {
    const struct tensor *weight = node->in[1];
    if (!weight || weight->code.format == WEIGHT_PLAIN) return 0;
    double bytes = (double)shape_bytes(&weight->shape) + (double)shape_bytes(&weight->code.values);
    return bytes / (limits->memory_bytes_per_s * classes[OP_WORK_STREAM].bytes);
}

struct roofline roofline_of(const struct node *node, const struct cluster_limits *limits) {
    enum op_work work = node->op->work;
    bool bf16 = node->in[0] && node->in[0]->shape.dtype == DTYPE_BF16;
    double flops_per_s = bf16 ? limits->bf16_flops_per_s : limits->fp32_flops_per_s;
    double part = part_of_flops(node, limits);
    struct op_cost cost;
    op_cost(node, &cost);
    /* A lookup touches the rows of its tokens, not the table. */
    if (work == OP_WORK_LOOKUP) cost.bytes = 2 * (double)shape_bytes(&node->out[0]->shape);
    if (work == OP_WORK_LOOKUP_GRAD) cost.bytes = 3 * (double)shape_bytes(&node->in[1]->shape);
    double flops_s = part > 0 ? cost.flops / flops_per_s : 0, bytes_s = cost.bytes / limits->memory_bytes_per_s;
    struct roofline cost_of = {.class_name = classes[work].name, .limit_s = longer(flops_s, bytes_s)};
    cost_of.seconds = longer(part > 0 ? flops_s / part : 0, bytes_s / part_of_bytes(node));
    if (is_head(work)) cost_of.seconds += head_loss_s(node, limits);
    if (work == OP_WORK_PRODUCT) cost_of.seconds += unpack_s(node, limits);
    return cost_of;
}

static struct kernel_cost host_cost(const struct node *node, const struct cluster_limits *limits) {
    struct op_cost cost;
    op_cost(node, &cost);
    return (struct kernel_cost){cost.bytes / (limits->host_bytes_per_s * HOST_PART), ACTIVITY_COPY};
}

enum status roofline_costs(const struct graph *graph, const struct cluster *cluster, struct costs *out) {
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
        if (node->op->exchange) continue; /* costs_set_exchanges */
        bool product = classes[node->op->work].flops > 0;
        costs.kernels[i].seconds = roofline_of(node, limits).seconds;
        costs.kernels[i].activity = product ? ACTIVITY_PRODUCT : ACTIVITY_STREAMING;
        costs.host_kernels[i] = node->phase == PHASE_UPDATE ? host_cost(node, limits) : costs.kernels[i];
    }
    *out = costs;
    return STATUS_OK;
}
