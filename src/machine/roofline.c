#include "machine/roofline.h"

#include <math.h>

#include "ir/ops/ops.h"

/* Of a logit, next to its GEMMs: read as fp32; its gradient written as bf16. */
static const double LOSS_BYTES = 4, LOSS_GRADIENT_BYTES = 6;
/* A few GEMMs in turn, of few rows each; those of the optimizer, of one matrix. */
static const double SMALL_PRODUCTS_PART = 0.65;

bool roofline_is_product(enum op_work work) {
    switch (work) {
    case OP_WORK_PRODUCT:
    case OP_WORK_ATTENTION:
    case OP_WORK_ATTENTION_GRAD:
    case OP_WORK_ATTENTION_CACHED:
    case OP_WORK_LOGITS:
    case OP_WORK_LOSS:
    case OP_WORK_LOSS_GRAD:
    case OP_WORK_EXPERT:
    case OP_WORK_MATRIX_UPDATE: return true;
    default: return false;
    }
}

/* A result that is added to is read too. */
static double linear_s(const struct gpu *gpu, const struct node *node) {
    const struct shape *result = &node->out[0]->shape;
    int64_t m = shape_rows(result), n = shape_columns(result);
    int64_t k = llround(node->op->flops(node) / (2 * (double)m * (double)n));
    int64_t bytes = dtype_bytes(result->dtype);
    return gemm_s(gpu, &(struct product){1, m, n, k, bytes, op_updates(node) & 1 ? bytes : 0});
}

static double attention_node_s(const struct gpu *gpu, const struct node *node) {
    const struct attention_attributes *attributes = node->attributes;
    enum op_work work = node->op->work;
    bool gradient = work == OP_WORK_ATTENTION_GRAD;
    double pairs = node->op->flops(node) / ((gradient ? 10.0 : 4.0) * (double)attributes->head_dim);
    double rows =
        work == OP_WORK_ATTENTION_CACHED ? 0 : (double)shape_rows(&node->in[0]->shape) * (double)attributes->heads;
    return attention_pairs_s(gpu, ATTENTION_OWN, pairs, rows, attributes->head_dim, gradient);
}

/* GEMMs of the vocabulary's part, in turn, then the loss of their logits. */
static double head_s(const struct gpu *gpu, const struct node *node) {
    int64_t rows = shape_rows(&node->in[0]->shape), vocabulary = node->in[1]->shape.dims[0];
    int64_t hidden = shape_columns(&node->in[1]->shape);
    double logits = (double)rows * (double)vocabulary;
    double products = node->op->flops(node) / (2 * logits * (double)hidden);
    enum op_work work = node->op->work;
    double bytes = work == OP_WORK_LOSS_GRAD ? LOSS_GRADIENT_BYTES : work == OP_WORK_LOSS ? LOSS_BYTES : 0;
    return head_products_s(gpu, products, rows, vocabulary, hidden) + class_streaming_s(gpu, work, logits * bytes);
}

static double products_s(const struct gpu *gpu, const struct node *node) {
    switch (node->op->work) {
    case OP_WORK_PRODUCT: return linear_s(gpu, node);
    case OP_WORK_ATTENTION:
    case OP_WORK_ATTENTION_GRAD:
    case OP_WORK_ATTENTION_CACHED: return attention_node_s(gpu, node);
    case OP_WORK_LOGITS:
    case OP_WORK_LOSS:
    case OP_WORK_LOSS_GRAD: return head_s(gpu, node);
    case OP_WORK_EXPERT:
    case OP_WORK_MATRIX_UPDATE: return node->op->flops(node) / (gpu->product_per_s * SMALL_PRODUCTS_PART);
    default: return 0;
    }
}

static double streamed_s(const struct gpu *gpu, const struct node *node, double bytes) {
    const struct tensor *weight = node->in[2]; /* NULL: a bias's gradient, which is a column sum all the same */
    if (node->op->work != OP_WORK_NORM_GRAD || !weight) return class_streaming_s(gpu, node->op->work, bytes);
    return norm_gradient_s(gpu, shape_columns(&weight->shape), bytes);
}

static const struct tensor *quantized_weight(const struct node *node) {
    for (int i = 0; i < OP_INPUTS_MAX; i++)
        if (node->in[i] && node->in[i]->code.format != WEIGHT_PLAIN) return node->in[i];
    return NULL;
}

/* A kernel of its own unpacks a quantized weight before each GEMM that reads it (backend/cuda/matmul.h). A frozen
 * weight's GEMMs have 2 FLOPs for each row and element; all weights of a node are in one format. */
static double unpack_s(const struct gpu *gpu, const struct node *node) {
    const struct tensor *weight = quantized_weight(node);
    if (!weight) return 0;
    double rows = node->op->work == OP_WORK_EXPERT ? expert_mean_rows(node) : (double)shape_rows(&node->in[0]->shape);
    double elements = node->op->flops(node) / (2 * rows);
    double bytes = (double)shape_bytes(&weight->shape) + (double)shape_bytes(&weight->code.values);
    double element_bytes = bytes / (double)shape_elements(&weight->code.values);
    return class_streaming_s(gpu, OP_WORK_STREAM, elements * element_bytes);
}

struct roofline roofline_of(const struct node *node, const struct cluster_device *device, enum roofline_case which) {
    const struct calibration calibration = calibration_default();
    const struct cluster_limits *limits = &device->limits;
    struct gpu gpu = gpu_describe_own(device, &calibration, which);
    bool bf16 = node->in[0] && node->in[0]->shape.dtype == DTYPE_BF16;
    struct op_cost cost;
    if (!bf16) gpu_use_fp32(&gpu, limits);
    op_cost(node, &cost);
    double flops = roofline_is_product(node->op->work) ? cost.flops : 0;
    return (struct roofline){
        .class_name = kernel_class_name(node->op->work),
        .seconds = fmax(products_s(&gpu, node), streamed_s(&gpu, node, cost.bytes)) + unpack_s(&gpu, node),
        .limit_s = fmax(flops / gpu.flops_per_s, cost.bytes / limits->memory_bytes_per_s),
    };
}
