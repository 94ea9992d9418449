#include "profile/roofline.h"

#include "backend/linear_products.h"
#include "ops/ops.h"

enum work {
    PRODUCT,
    ATTENTION,
    ATTENTION_GRAD,
    NORM,
    NORM_GRAD,
    ELEMENTWISE,
    EMBEDDING,
    EMBEDDING_GRAD,
    HEAD,
    SQUARED_NORM,
    OPTIMIZER,
};

/* Parts of the data sheet's rates. Where the reason is another's measurement, it says whose; where it is a reading of
 * the own kernels' machine code, it is that of bench/results/2026-11-22-gpu-expected.md. Those wait for a card. */
static const struct {
    const char *name;
    double flops, bytes;
} classes[] = {
    /* The best shape of cuBLAS on an H100 SXM reaches 792 of 989 TFLOP/s, by its power (stas00/ml-engineering, table of
     * maximum achievable matmul FLOPS). What a shape leaves of that is `filled`. Bytes as elementwise operators. */
    [PRODUCT] = {"products", 0.80, 0.85},
    /* mma.sync, not wgmma: FlashAttention-2 reaches 35% to 40% of an H100 (arXiv 2407.08608, figure 1); the own kernels
     * are expected a little below, by exponentials and by tiles at the diagonal. At head size 64: see small_heads. */
    [ATTENTION] = {"attention", 0.33, 0.70},
    /* Of its seven products, not of the five that are counted. */
    [ATTENTION_GRAD] = {"attention's gradient", 0.37, 0.70},
    /* A row is read once, a warp or block each: the latency of one sum and a second pass over registers. */
    [NORM] = {"norms", 0, 0.75},
    /* Two launches, of which the second adds up columns over all rows. */
    [NORM_GRAD] = {"norms' gradients", 0, 0.60},
    /* Copies in an H100's memory reach 3.0 to 3.1 of 3.35 TB/s; kernels of three operands somewhat less. */
    [ELEMENTWISE] = {"elementwise", 0, 0.85},
    /* Rows of some KiB at random places. */
    [EMBEDDING] = {"embedding", 0, 0.60},
    /* Equal tokens are added in order, by one block each row of the table: frequent tokens wait for each other. */
    [EMBEDDING_GRAD] = {"embedding's gradient", 0, 0.30},
    /* Products as above; the loss between them reads and writes rows of logits at once, 369 us of 430. */
    [HEAD] = {"head and loss", 0.80, 0.85},
    /* Many parameters, most of them small, two launches each for the large ones. */
    [SQUARED_NORM] = {"squared norms", 0, 0.50},
    /* 28 bytes a parameter in streams, many parameters a launch: 1114 us of 1200. */
    [OPTIMIZER] = {"optimizer", 0, 0.92},
};

/* At head sizes below 128 exponentials are as many for half of the products: 256 of 989 TFLOP/s forward, 321 backward.
 */
static const double SMALL_HEAD = 128, SMALL_HEAD_PART = 0.80;
/* Products that attention's gradient makes, over those that are counted. */
static const double GRADIENT_PRODUCTS = 7.0 / 5;
/* What a block of a product's grid makes of the result, and the least of its sums that is worth a block of its own. */
static const int64_t TILE_ROWS = 128, TILE_COLUMNS = 256, SPLIT_LEAST = 2048;
/* Of a logit, beside its products: read as fp32; its gradient written as bf16. */
static const double LOSS_BYTES = 4, LOSS_GRADIENT_BYTES = 6;
/* AdamW on a host's cores, of its memory's rate. */
static const double HOST_PART = 0.70;

static enum work class_of(const struct op *op) {
    static const struct {
        const struct op *op;
        enum work is;
    } known[] = {{&op_linear, PRODUCT},
                 {&op_linear_dx, PRODUCT},
                 {&op_linear_dw, PRODUCT},
                 {&op_attention, ATTENTION},
                 {&op_attention_cache, ATTENTION},
                 {&op_attention_grad, ATTENTION_GRAD},
                 {&op_rms_norm, NORM},
                 {&op_layer_norm, NORM},
                 {&op_rms_norm_grad, NORM_GRAD},
                 {&op_layer_norm_grad, NORM_GRAD},
                 {&op_bias_grad, NORM_GRAD},
                 {&op_embedding, EMBEDDING},
                 {&op_embedding_grad, EMBEDDING_GRAD},
                 {&op_head_loss, HEAD},
                 {&op_head_loss_grad, HEAD},
                 {&op_head_logits, HEAD},
                 {&op_squared_norm, SQUARED_NORM},
                 {&op_adamw, OPTIMIZER}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].op == op) return known[i].is;
    return ELEMENTWISE;
}

static int64_t tiles_along(int64_t size, int64_t tile) { return (size + tile - 1) / tile; }

/* Part of the multiprocessors at work, over the waves of a product's tiles; sums may be cut in parts to fill them. */
static double filled(const struct matmul_spec *spec, int64_t multiprocessors) {
    int64_t tiles = tiles_along(spec->m, TILE_ROWS) * tiles_along(spec->n, TILE_COLUMNS);
    double best = 0;
    for (int64_t parts = 1; parts == 1 || parts * SPLIT_LEAST <= spec->k; parts *= 2) {
        int64_t waves = tiles_along(tiles * parts, multiprocessors);
        double part = (double)(tiles * parts) / (double)(waves * multiprocessors);
        if (part > best) best = part;
    }
    return best;
}

static double product_fill(const struct node *node, const struct cluster_limits *limits) {
    struct linear_product product = node->op == &op_linear      ? linear_product(node)
                                    : node->op == &op_linear_dx ? linear_dx_product(node)
                                                                : linear_dw_product(node);
    return filled(&product.spec, limits->multiprocessors);
}

static double part_of_flops(const struct node *node, enum work is, const struct cluster_limits *limits) {
    double part = classes[is].flops;
    if (is == PRODUCT) return part * product_fill(node, limits);
    if (is != ATTENTION && is != ATTENTION_GRAD) return part;
    /* attention_cache's attributes begin with attention's. */
    const struct attention_attributes *attributes = node->attributes;
    if ((double)attributes->head_dim < SMALL_HEAD) part *= SMALL_HEAD_PART;
    return is == ATTENTION_GRAD ? part / GRADIENT_PRODUCTS : part;
}

static double longer(double a, double b) { return a > b ? a : b; }

/* Its passes follow each other: products, then the loss of their logits. */
static double head_loss_s(const struct node *node, const struct cluster_limits *limits) {
    double logits = (double)shape_rows(&node->in[0]->shape) * (double)node->in[1]->shape.dims[0];
    double bytes = node->op == &op_head_loss_grad ? LOSS_GRADIENT_BYTES : node->op == &op_head_loss ? LOSS_BYTES : 0;
    return logits * bytes / (limits->memory_bytes_per_s * classes[HEAD].bytes);
}

struct roofline roofline_of(const struct node *node, const struct cluster_limits *limits) {
    enum work is = class_of(node->op);
    bool bf16 = node->in[0] && node->in[0]->shape.dtype == DTYPE_BF16;
    double flops_per_s = bf16 ? limits->bf16_flops_per_s : limits->fp32_flops_per_s;
    double part = part_of_flops(node, is, limits);
    struct op_cost cost;
    op_cost(node, &cost);
    /* A lookup touches the rows of its tokens, not the table. */
    if (is == EMBEDDING) cost.bytes = 2 * (double)shape_bytes(&node->out[0]->shape);
    if (is == EMBEDDING_GRAD) cost.bytes = 3 * (double)shape_bytes(&node->in[1]->shape);
    double flops_s = part > 0 ? cost.flops / flops_per_s : 0, bytes_s = cost.bytes / limits->memory_bytes_per_s;
    struct roofline cost_of = {.class_name = classes[is].name, .limit_s = longer(flops_s, bytes_s)};
    cost_of.seconds = longer(part > 0 ? flops_s / part : 0, bytes_s / classes[is].bytes);
    if (is == HEAD) cost_of.seconds += head_loss_s(node, limits);
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
        enum work is = class_of(node->op);
        bool product = is == PRODUCT || is == ATTENTION || is == ATTENTION_GRAD || is == HEAD;
        costs.kernels[i].seconds = roofline_of(node, limits).seconds;
        costs.kernels[i].activity = product ? ACTIVITY_PRODUCT : ACTIVITY_STREAMING;
        costs.host_kernels[i] = node->phase == PHASE_UPDATE ? host_cost(node, limits) : costs.kernels[i];
    }
    *out = costs;
    return STATUS_OK;
}
