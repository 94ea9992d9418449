#include "profile/described_device.h"

#include "backend/cuda_constants.h"
#include "backend/kernel_parts.h"
#include "ir/ops/ops.h"
#include "machine/rates.h"
#include "plan/recipe.h"

/* Set by described_device_find before other threads are started. */
static struct cluster described;

static enum status check(void) { return STATUS_OK; }

static const char *isa(void) { return described.device.isa; }

static enum dtype fastest_dtype(void) { return described.device.bf16_matrix ? DTYPE_BF16 : DTYPE_F32; }

static enum status capacity(int64_t bytes[TIER_COUNT]) {
    memset(bytes, 0, TIER_COUNT * sizeof *bytes);
    for (int i = 0; i < described.device.tier_count; i++) {
        enum tier tier = tier_find(described.device.tiers[i].name);
        if (tier != TIER_COUNT) bytes[tier] = described.device.tiers[i].capacity_bytes;
    }
    return STATUS_OK;
}

static enum status measure(struct cluster *out) {
    *out = described;
    return STATUS_OK;
}

static int64_t cache_bytes(void) { return 0; }

static int64_t choose_micro_batch_tokens(int64_t layers, int64_t width, int64_t device_bytes) {
    int64_t bytes[TIER_COUNT];
    (void)capacity(bytes);
    if (device_bytes > 0 && device_bytes < bytes[TIER_DEVICE]) bytes[TIER_DEVICE] = device_bytes;
    return gpu_micro_batch_tokens((int)described.device.limits.multiprocessors, bytes[TIER_DEVICE], layers, width);
}

static void set_threads(int threads) { backend_cpu.set_threads(threads); }

static int64_t head_workspace_bytes(const struct node *node) {
    struct head_tiles tiles = head_tiles_of(node, &cuda_head_limits);
    return head_workspace_of(node, &tiles, node->op->work == OP_WORK_LOSS_GRAD, false).end +
           CUDA_PRODUCT_WORKSPACE_BYTES;
}

/* If the weight of a linear layer is quantized, its unpacked part. */
static int64_t slab_bytes(const struct node *node) {
    if (node->op != &op_linear && node->op != &op_linear_dx) return 0;
    const struct linear_product product = node->op == &op_linear ? linear_product(node) : linear_dx_product(node);
    return product.spec.b_format == WEIGHT_PLAIN ? 0 : cuda_slab_bytes(&product.spec);
}

static int64_t expert_bytes(const struct node *node) {
    bool gradient = node->op == &op_expert_mlp_grad || node->op == &op_expert_glu_grad;
    const struct shape *rows = &node->in[0]->shape;
    int64_t each = workspace_align(shape_rows(rows) * expert_width(node) * dtype_bytes(rows->dtype));
    return each * (gradient ? CUDA_EXPERT_GRAD_ACTIVATIONS : CUDA_EXPERT_ACTIVATIONS) + cuda_expert_slab_bytes(node);
}

/* Counts of slots by block and expert, of all and of padding, and sums of probabilities. */
static int64_t routing_bytes(const struct node *node) {
    int64_t experts = shape_columns(&node->in[0]->shape);
    if (node->op == &op_route)
        return (shape_elements(&node->out[1]->shape) + CUDA_SLOTS_BLOCK - 1) / CUDA_SLOTS_BLOCK * experts * 2 *
               (int64_t)sizeof(int32_t);
    if (node->op != &op_expert_load) return 0;
    return (shape_rows(&node->in[0]->shape) + CUDA_LOAD_TOKENS - 1) / CUDA_LOAD_TOKENS * experts *
           (int64_t)sizeof(double);
}

/* The workspace of the CUDA backend's kernels (matmul.c, head.cu, preference.cu, routing.cu,
 * balance.cu, expert.cu, muon.cu); the most possible where only a device knows. */
static int64_t workspace_bytes(const struct node *node) {
    if (node->op == &op_preference_loss || node->op == &op_preference_loss_grad) return cuda_preference_bytes(node);
    switch (node->op->work) {
    case OP_WORK_PRODUCT: return CUDA_PRODUCT_WORKSPACE_BYTES + slab_bytes(node);
    case OP_WORK_LOGITS: return CUDA_PRODUCT_WORKSPACE_BYTES;
    case OP_WORK_LOSS:
    case OP_WORK_LOSS_GRAD: return head_workspace_bytes(node);
    case OP_WORK_ATTENTION_GRAD:
        return shape_rows(&node->in[1]->shape) * NODE_ATTRIBUTES(node, attention_attributes)->heads *
               (int64_t)sizeof(float);
    case OP_WORK_EXPERT: return expert_bytes(node);
    case OP_WORK_MATRIX_UPDATE: return muon_sizes_of(node).end + CUDA_PRODUCT_WORKSPACE_BYTES;
    default: return routing_bytes(node);
    }
}

/* The kernel has no function, since a described device cannot execute it. */
static enum status create(const struct node *node, struct kernel **out) {
    return kernel_plain(node, NULL, workspace_align(workspace_bytes(node)), out);
}

static kernel_maker *maker(const struct op *op) {
#define DESCRIBED_MAKER(name)                                                                                          \
    if (op == &op_##name) return create;
    CUDA_OP_LIST(DESCRIBED_MAKER)
    return NULL;
}

/* Without functions: its presence says that the device has memory of its own. */
static const struct backend_memory memory;

const struct backend backend_described = {
    .name = "described",
    .isa_prefix = "",
    .check = check,
    .isa = isa,
    .fastest_dtype = fastest_dtype,
    .capacity = capacity,
    .measure = measure,
    .cache_bytes = cache_bytes,
    .kernels_version = CUDA_KERNELS_VERSION,
    .micro_batch_tokens = GPU_MICRO_BATCH_MIN,
    .choose_micro_batch_tokens = choose_micro_batch_tokens,
    .set_threads = set_threads,
    .maker = maker,
    .memory = &memory,
    .host = &backend_cpu,
};

enum status described_device_find(const char *file, const struct cluster *cluster, const struct backend *here,
                                  const struct backend **out) {
    const struct cluster_device *device = &cluster->device;
    *out = here;
    if (strcmp(device->kind, here->name) == 0 || strcmp(device->kind, backend_cpu.name) == 0) return STATUS_OK;
    const char *lacks = device->limits.bf16_flops_per_s <= 0 ? "devices[0].limits"
                        : !cluster->rates.measured           ? "rates"
                                                             : NULL;
    if (lacks) {
        enum status status = status_set(STATUS_BAD_INPUT, "%s: %s: is missing, and %s is not here to be measured", file,
                                        lacks, device->name);
        return status_hint(status, "clusters/h100-sxm.json has all that a plan for a device elsewhere needs; "
                                   "--device cpu plans for this machine's processor");
    }
    described = *cluster;
    *out = &backend_described;
    return STATUS_OK;
}
