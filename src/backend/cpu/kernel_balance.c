/* Counts of experts' slots, and the loss that balances them. Sums are over blocks of tokens, added in their order,
 * whatever threads make them. */
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu_kernel.h"

enum { BLOCK_TOKENS = 64 };

/* The softmax of a token's logits, in fp32. */
static void probabilities_of(const struct tensor *logits, const void *data, int64_t row, float *out) {
    int64_t experts = shape_columns(&logits->shape);
    cpu_simd()->scale(experts, logits->shape.dtype, operand_row(logits, (void *)data, row), 1, DTYPE_F32, out);
    struct logits_sum sum = cpu_simd()->sum_exp(experts, out);
    cpu_simd()->softmax(DTYPE_F32, experts, out, (float)((double)sum.largest + log(sum.sum)), 1, 0, out);
}

struct load_run {
    const struct node *node;
    const struct kernel_call *call;
};

static int64_t token_blocks(const struct node *node) {
    return (shape_rows(&node->in[0]->shape) + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
}

static void sum_token_blocks(const void *context, int64_t begin, int64_t end) {
    const struct load_run *run = context;
    const struct tensor *logits = run->node->in[0];
    const int32_t *targets = run->call->in[2];
    int64_t tokens = shape_rows(&logits->shape), experts = shape_columns(&logits->shape);
    for (int64_t block = begin; block < end; block++) {
        double *sums = (double *)run->call->workspace + block * experts;
        int64_t last = (block + 1) * BLOCK_TOKENS < tokens ? (block + 1) * BLOCK_TOKENS : tokens;
        memset(sums, 0, (size_t)experts * sizeof *sums);
        for (int64_t row = block * BLOCK_TOKENS; row < last; row++) {
            float values[ROUTING_EXPERTS_MAX];
            if (targets[row] == TARGET_PADDING) continue;
            probabilities_of(logits, run->call->in[0], row, values);
            for (int64_t e = 0; e < experts; e++)
                sums[e] += (double)values[e];
        }
    }
}

static enum status expert_load_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct node *node = kernel->node;
    int64_t experts = shape_columns(&node->in[0]->shape), blocks = token_blocks(node);
    const int32_t *own = call->in[1];
    const float *previous = call->in[3];
    const double *sums = call->workspace;
    float *slots = call->out[0], *probabilities = slots + experts;
    parallel_for(blocks, 1, sum_token_blocks, &(struct load_run){node, call});
    for (int64_t e = 0; e < experts; e++) {
        double sum = 0;
        for (int64_t block = 0; block < blocks; block++)
            sum += sums[block * experts + e];
        slots[e] = (float)own[e] + (previous ? previous[e] : 0);
        probabilities[e] = (float)(sum + (previous ? (double)previous[experts + e] : 0));
    }
    return STATUS_OK;
}

enum status cpu_expert_load_create(const struct node *node, struct kernel **out) {
    int64_t bytes = token_blocks(node) * shape_columns(&node->in[0]->shape) * (int64_t)sizeof(double);
    return kernel_plain(node, expert_load_run, workspace_align(bytes), out);
}

static enum status count_slots_run(const struct kernel *kernel, const struct kernel_call *call) {
    const int32_t *own = call->in[0];
    double *slots = call->out[0];
    for (int64_t e = 0; e < shape_elements(&kernel->node->out[0]->shape); e++)
        slots[e] += (double)own[e];
    return STATUS_OK;
}

enum status cpu_count_slots_create(const struct node *node, struct kernel **out) {
    return kernel_plain(node, count_slots_run, 0, out);
}

/* With p the probabilities and g the gradient of their sums: p_j (g_j - sum of g p), 0 for padding. */
static void expert_load_grad_rows(const struct node *node, const struct kernel_call *call, int64_t begin, int64_t end) {
    int64_t experts = columns_of(node);
    const float *slopes = (const float *)call->in[0] + experts;
    const int32_t *targets = call->in[2];
    for (int64_t row = begin; row < end; row++) {
        float values[ROUTING_EXPERTS_MAX];
        double mean = 0;
        if (targets[row] == TARGET_PADDING) {
            memset(out_row(node, call, 0, row), 0, (size_t)(experts * dtype_bytes(dtype_of(node))));
            continue;
        }
        probabilities_of(node->in[1], call->in[1], row, values);
        for (int64_t e = 0; e < experts; e++)
            mean += (double)slopes[e] * (double)values[e];
        for (int64_t e = 0; e < experts; e++)
            values[e] *= (float)((double)slopes[e] - mean);
        cpu_simd()->scale(experts, DTYPE_F32, values, 1, dtype_of(node), out_row(node, call, 0, row));
    }
}

enum status cpu_expert_load_grad_create(const struct node *node, struct kernel **out) {
    return cpu_rows_create(node, expert_load_grad_rows, out);
}

/* A target's share of the loss for each unit of (slots of an expert) * (its sum of probabilities), over so many tokens
 * that are not padding. */
static double balance_factor(const struct node *node, int64_t tokens) {
    bool gradient = node->op == &op_balanced_loss_grad;
    const struct balance_attributes *attributes =
        gradient ? &NODE_ATTRIBUTES(node, balance_grad_attributes)->balance : NODE_ATTRIBUTES(node, balance_attributes);
    double rows = (double)(tokens * attributes->layers);
    return attributes->coefficient * (double)shape_columns(&node->in[2]->shape) / (rows * rows);
}

/* There are few numbers: one thread goes through them. */
static enum status balanced_loss_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct node *node = kernel->node;
    int64_t tokens = shape_rows(&node->in[0]->shape), experts = shape_columns(&node->in[2]->shape);
    int64_t counted = 0, unpadded = 0;
    const float *y = call->in[0], *slots = call->in[2], *probabilities = slots + experts;
    const int32_t *targets = call->in[1];
    float *dy = call->out[1], *dload = call->out[2];
    double scale = dy ? call->scalars[SCALAR_LOSS_SCALE] : 0, sum = 0, products = 0;
    for (int64_t i = 0; i < tokens; i++) {
        if (targets[i] >= 0) sum -= (double)y[i], counted++;
        unpadded += targets[i] != TARGET_PADDING;
        if (dy) dy[i] = targets[i] >= 0 ? (float)-scale : 0;
    }
    for (int64_t e = 0; e < experts; e++)
        products += (double)slots[e] * (double)probabilities[e];
    double factor = unpadded > 0 ? balance_factor(node, unpadded) : 0;
    *(double *)call->out[0] += sum + (double)counted * factor * products;
    for (int64_t e = 0; e < experts && dload; e++) {
        dload[e] = (float)(scale * (double)counted * factor * (double)probabilities[e]);
        dload[experts + e] = (float)(scale * (double)counted * factor * (double)slots[e]);
    }
    return STATUS_OK;
}

enum status cpu_balanced_loss_create(const struct node *node, struct kernel **out) {
    return kernel_plain(node, balanced_loss_run, 0, out);
}

enum status cpu_balanced_loss_grad_create(const struct node *node, struct kernel **out) {
    return kernel_plain(node, balanced_loss_run, 0, out);
}
