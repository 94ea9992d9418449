#include "profile/described_device.h"

#include <stdio.h>
#include <string.h>

#include "backend/head_tiles.h"
#include "backend/kernel_parts.h"
#include "cluster/tier.h"
#include "ops/ops.h"
#ifdef BALLAST_CUDA
#include "backend/cuda/cuda_grain.h"
#endif

/* Set by described_device_find before other threads are started. */
static struct cluster described;

/* Workspace of the CUDA backend's kernels (cuda_matmul.c, head.cu); the most, where only a device knows. */
static const int64_t PRODUCT_WORKSPACE_BYTES = (int64_t)32 << 20;
static const struct head_limits head = {.logits_bytes = (int64_t)512 << 20, .tile_tokens = 4096, .logits_row = 64};

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

static int64_t choose_grain_tokens(int64_t layers, int64_t width, int64_t device_bytes) {
#ifdef BALLAST_CUDA
    int64_t bytes[TIER_COUNT];
    (void)capacity(bytes);
    if (device_bytes > 0 && device_bytes < bytes[TIER_DEVICE]) bytes[TIER_DEVICE] = device_bytes;
    return cuda_grain_tokens((int)described.device.limits.multiprocessors, bytes[TIER_DEVICE], layers, width);
#else
    (void)layers, (void)width, (void)device_bytes;
    return backend_described.grain_tokens;
#endif
}

static void set_threads(int threads) { backend_cpu.set_threads(threads); }

static bool supports(const struct op *op, enum dtype dtype) {
    (void)op;
    return dtype == DTYPE_F32 || dtype == DTYPE_BF16;
}

static int64_t workspace_bytes(const struct node *node) {
    const struct op *op = node->op;
    if (op == &op_linear || op == &op_linear_dx || op == &op_linear_dw || op == &op_head_logits)
        return PRODUCT_WORKSPACE_BYTES;
    if (op == &op_head_loss || op == &op_head_loss_grad) {
        struct head_tiles tiles = head_tiles_of(node, &head);
        return head_workspace_of(node, &tiles, op == &op_head_loss_grad).end + PRODUCT_WORKSPACE_BYTES;
    }
    if (op == &op_attention_grad)
        return shape_rows(&node->in[1]->shape) * NODE_ATTRIBUTES(node, attention_attributes)->heads *
               (int64_t)sizeof(float);
    return 0;
}

/* Without a function: a described kernel cannot be called. */
static enum status kernel_create(const struct node *node, struct kernel **out) {
    return kernel_plain(node, NULL, workspace_align(workspace_bytes(node)), out);
}

/* Its presence says that the device has memory of its own. */
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
    .kernels_version = 3,
    .grain_tokens = 4096,
    .choose_grain_tokens = choose_grain_tokens,
    .set_threads = set_threads,
    .supports = supports,
    .kernel_create = kernel_create,
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
