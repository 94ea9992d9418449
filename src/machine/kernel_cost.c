#include "machine/kernel_cost.h"

#include <math.h>

#include "ir/ops/ops.h"

struct calibration calibration_default(void) {
    return (struct calibration){
#define CALIBRATION_VALUE(name, value, meaning) .name = value,
        CALIBRATION_LIST(CALIBRATION_VALUE)};
}

/* ---- Ballast's own kernels ---- */

/* Fractions of the data sheet's memory rate. Where the reason is another's measurement, it names the source. Readings
 * of our own kernels' machine code are from bench/results/2026-11-22-gpu-expected.md; they have not been measured on a
 * GPU. */
static const struct {
    const char *name;
    double bytes;
} classes[OP_WORK_COUNT] = {
    /* Bytes as elementwise operators. */
    [OP_WORK_PRODUCT] = {"GEMMs", 0.85},
    [OP_WORK_ATTENTION] = {"attention", 0.70},
    [OP_WORK_ATTENTION_CACHED] = {"attention", 0.70},
    [OP_WORK_ATTENTION_GRAD] = {"attention's gradient", 0.70},
    /* A row is read once, a warp or block each: the latency of one sum and a second pass over registers. */
    [OP_WORK_NORM] = {"norms", 0.75},
    /* dx, and the weight's gradient in kernels of its own, which read dy and x again. */
    [OP_WORK_NORM_GRAD] = {"norms' gradients", 0.60},
    /* Copies in an H100's memory reach 3.0 to 3.1 of 3.35 TB/s; kernels of three operands somewhat less. */
    [OP_WORK_STREAM] = {"elementwise", 0.85},
    /* Rows of some KiB at random places. */
    [OP_WORK_LOOKUP] = {"embedding", 0.60},
    /* One block sums the rows of equal tokens, in eight ordered parts: its time is that of the most frequent token. */
    [OP_WORK_LOOKUP_GRAD] = {"embedding's gradient", 0.30},
    /* The loss between GEMMs reads and writes rows of logits at once, 369 us of 430. */
    [OP_WORK_LOGITS] = {"head and loss", 0.85},
    [OP_WORK_LOSS] = {"head and loss", 0.85},
    [OP_WORK_LOSS_GRAD] = {"head and loss", 0.85},
    [OP_WORK_EXPERT] = {"experts", 0.85},
    /* Many parameters, most of them small; each 16 KiB are read by a block of threads, which then adds up its sums. */
    [OP_WORK_SQUARED_NORM] = {"squared norms", 0.50},
    /* 28 bytes a parameter in streams, many parameters a launch: 1114 us of 1200. */
    [OP_WORK_OPTIMIZER] = {"optimizer", 0.92},
    [OP_WORK_MATRIX_UPDATE] = {"optimizer's GEMMs", 0.85},
};

/* Range of the fraction of the memory rate that streaming kernels are expected to reach. Copies in an H100's memory
 * reach 0.90 to 0.93 of the data sheet. */
static const double streaming_range[ROOFLINE_CASES] = {0.88, 1, 1.06};
/* Range of the fraction that GEMMs are expected to reach. The fast end is an H200's sustained rate, 755 TFLOP/s, over
 * its burst rate of 794 (stas00/ml-engineering, maximum sustainable and achievable matmul FLOPS). */
static const double product_range[ROOFLINE_CASES] = {0.92, 1, 1.1};

/* Parts of the data sheet's bf16 rate that the own attention reaches, of the tiles that it computes (two GEMMs forward,
 * five backward; heads of 128).
 * H100: FlashAttention-2, which uses mma.sync as the own kernels do, reaches 260 of 989 TFLOP/s forward, causal, at
 * 1024 positions, and 260 backward, not causal (arXiv 2407.08608, figures 5 and 6); causal costs forward a quarter of
 * the rate (350 to 260), and backward is taken to lose as much: 195. At 1024 positions an eighth of the tiles' pairs is
 * masked. The own kernels are read as a little slower forward.
 * A100: FlashAttention-2 forward 0.47 of the data sheet, backward 0.65 of that (calibration). RTX 4090: no published
 * attention was found, as on Ampere. */
static const struct {
    long capability; /* and later ones, up to the row before */
    double part[2][ROOFLINE_CASES];
} own_attention[] = {{90, {{0.2025, 0.2475, 0.2925}, {0.191, 0.225, 0.259}}},
                     {0, {{0.371, 0.450, 0.529}, {0.236, 0.2925, 0.349}}}};

/* "GEMMs", "attention", …: of the operators of one class, for tables. */
static const char *kernel_class_name(enum op_work work) { return classes[work].name; }

/* ---- the GPU ---- */

/* sm_80-108sm: 80. 0 where the name has none. */
static long compute_capability(const char *isa) {
    const char *digits = strstr(isa, "sm_");
    return digits ? strtol(digits + 3, NULL, 10) : 0;
}

static double training_part(long capability, const struct calibration *calibration) {
    if (capability >= 90) return calibration->product_hopper;
    return capability >= 80 ? calibration->product_ampere : calibration->product_volta;
}

/* The best shape's rate, where the cluster file has none: an H100's 792 of 989 TFLOP/s. */
static const double PRODUCT_PART = 0.80;

/* At head sizes below 128 there are as many exponentials for fewer GEMMs: FlashAttention 2 reaches nine tenths at 64
 * (arXiv 2307.08691, figures 4 to 6; 0.88 on an H100, arXiv 2407.08608). */
static const double SMALL_HEAD_PART = 0.9;

struct gpu gpu_describe_own(const struct cluster_device *device, const struct calibration *calibration,
                            enum roofline_case which) {
    const struct cluster_limits *limits = &device->limits;
    double best = limits->product_part > 0 ? limits->product_part : PRODUCT_PART;
    struct gpu gpu = {.capability = compute_capability(device->isa),
                      .flops_per_s = limits->bf16_flops_per_s,
                      .sheet_bytes_per_s = limits->memory_bytes_per_s,
                      .small_head_part = SMALL_HEAD_PART,
                      .multiprocessors = limits->multiprocessors,
                      .operand_bytes = 2,
                      .calibration = calibration};
    int row = 0;
    while (own_attention[row].capability > gpu.capability)
        row++;
    gpu.product_per_s = gpu.flops_per_s * best * training_part(gpu.capability, calibration) * product_range[which];
    for (int work = 0; work < OP_WORK_COUNT; work++)
        gpu.class_bytes_per_s[work] = gpu.sheet_bytes_per_s * classes[work].bytes * streaming_range[which];
    gpu.bytes_per_s = gpu.class_bytes_per_s[OP_WORK_PRODUCT];
    for (int gradient = 0; gradient < 2; gradient++)
        gpu.attention_part[gradient] = own_attention[row].part[gradient][which];
    return gpu;
}

void gpu_use_fp32(struct gpu *gpu, const struct cluster_limits *limits) {
    gpu->product_per_s *= limits->fp32_flops_per_s / limits->bf16_flops_per_s;
    gpu->flops_per_s = limits->fp32_flops_per_s;
    gpu->operand_bytes = 4;
}

/* ---- GEMMs ---- */

static int64_t parts_of(int64_t size, int64_t part) { return (size + part - 1) / part; }

/* Tiles of the libraries' kernels, and the rate of a multiprocessor on each, of that on the largest: a smaller tile
 * loads more for each GEMM. */
static const struct {
    int64_t rows, columns;
    double rate;
} tiles[] = {{256, 128, 1}, {128, 256, 1}, {128, 128, 0.95}, {128, 64, 0.8}, {64, 128, 0.8}, {64, 64, 0.6}};

/* Rows that do not begin at multiples of 16 bytes are loaded element by element (NVIDIA's guide to matrix
 * multiplication: "Requirements to use Tensor Cores"). */
static double alignment_part(const struct gpu *gpu, int64_t n, int64_t k) {
    return n * gpu->operand_bytes % 16 != 0 || k * gpu->operand_bytes % 16 != 0 ? 0.25 : 1;
}

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
    return best / alignment_part(gpu, product->n, product->k);
}

double gemm_s(const struct gpu *gpu, const struct product *product) {
    double m = (double)product->m, n = (double)product->n, k = (double)product->k;
    double result = (double)(product->written_bytes + product->read_bytes) * m * n;
    double bytes = (double)product->count * ((double)gpu->operand_bytes * (m * k + k * n) + result);
    return fmax(product_tiles_s(gpu, product), bytes / gpu->bytes_per_s) + gpu->kernel_s;
}

double product_s(const struct gpu *gpu, int64_t count, int64_t m, int64_t n, int64_t k) {
    return gemm_s(gpu, &(struct product){count, m, n, k, gpu->operand_bytes, 0});
}

double head_products_s(const struct gpu *gpu, double count, int64_t tokens, int64_t vocabulary, int64_t hidden) {
    return count * product_s(gpu, 1, tokens, parts_of(vocabulary, 8) * 8, hidden);
}

double product_sum_s(const struct gpu *gpu, int64_t count, int64_t m, int64_t n, int64_t k, int64_t sum_bytes) {
    return gemm_s(gpu, &(struct product){count, m, n, k, sum_bytes, sum_bytes});
}

/* ---- attention ---- */

static const double ATTENTION_TILE = 128;

/* Attention that writes no scores, of so many pairs of a query and a key that it sees, over all heads and sequences.
 * `rows`: queries of all heads and sequences, whose tiles on the border of what they see are computed whole. */
/* Two GEMMs of each pair forward, five backward. */
static double attention_pairs_s(const struct gpu *gpu, double pairs, double rows, int64_t head_size, bool gradient) {
    double flops = 4 * (pairs + rows * ATTENTION_TILE / 2) * (double)head_size;
    double rate = gpu->flops_per_s * gpu->attention_part[gradient] * (head_size >= 128 ? 1 : gpu->small_head_part);
    return (gradient ? 2.5 : 1) * flops / rate + (gradient ? 2 : 1) * gpu->kernel_s;
}

/* Half of the tiles at least are left out, those on the diagonal are done whole. */
double attention_s(const struct gpu *gpu, const struct attention_shape *shape, bool gradient) {
    double columns = (double)(shape->sequences * shape->heads) * (double)shape->keys;
    double square = columns * (double)shape->queries;
    double border = columns * ATTENTION_TILE / 2;
    return attention_pairs_s(gpu, fmin(square / 2, square - border), columns, shape->head_size, gradient);
}

/* Gradients of norms whose rows a warp holds (backend/cuda/kernels/norm.cu) read them once. */
static const int64_t NARROW_MIN = 257, NARROW_MAX = 1024;
static const double NARROW_PART = 0.75 / 0.60;

double norm_gradient_s(const struct gpu *gpu, int64_t row, double bytes) {
    bool narrow = row >= NARROW_MIN && row <= NARROW_MAX;
    return class_streaming_s(gpu, OP_WORK_NORM_GRAD, narrow ? bytes / NARROW_PART : bytes);
}

double class_streaming_s(const struct gpu *gpu, enum op_work work, double bytes) {
    return bytes / gpu->class_bytes_per_s[work] + gpu->kernel_s;
}

/* Bytes per logit, besides its GEMMs: read as fp32; its gradient is written as bf16. */
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
    return attention_pairs_s(gpu, pairs, rows, attributes->head_dim, gradient);
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
