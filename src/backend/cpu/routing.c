/* Routing: which experts tokens go to, and their rows there and back. Each token's or row's values are made by one
 * thread, in one order. */
#include <math.h>

#include "backend/cpu/kernel.h"

static int64_t chosen_of(const struct node *node) { return NODE_ATTRIBUTES(node, route_attributes)->chosen; }

/* Logits of a row in fp32. */
static void read_logits(const struct tensor *logits, const void *data, int64_t row, float *out) {
    cpu_simd()->scale(shape_columns(&logits->shape), logits->shape.dtype, operand_row(logits, (void *)data, row), 1,
                      DTYPE_F32, out);
}

static float log_sum_exp(int64_t count, const float *logits) {
    struct logits_sum sum = cpu_simd()->sum_exp(count, logits);
    return (float)((double)sum.largest + log(sum.sum));
}

/* The experts with the largest logits, of equal ones the first. */
static void choose_experts(const float *logits, int64_t experts, int64_t chosen, int32_t *out) {
    for (int64_t e = 0; e < experts; e++) {
        int64_t at = e < chosen ? e : chosen;
        while (at > 0 && logits[e] > logits[out[at - 1]])
            at--;
        if (at == chosen) continue;
        int64_t moved = (e < chosen ? e : chosen - 1) - at;
        memmove(out + at + 1, out + at, (size_t)moved * sizeof *out);
        out[at] = (int32_t)e;
    }
}

/* Their probabilities, which replace the logits. */
static void weigh_experts(float *logits, int64_t experts, bool normalised, const int32_t *chosen, int64_t count,
                          float *weights) {
    float lse = log_sum_exp(experts, logits), sum = 0;
    cpu_simd()->softmax(DTYPE_F32, experts, logits, lse, 1, 0, logits);
    for (int64_t i = 0; i < count; i++)
        sum += logits[chosen[i]];
    for (int64_t i = 0; i < count; i++)
        weights[i] = normalised ? logits[chosen[i]] / sum : logits[chosen[i]];
}

static void route_tokens(const void *context, int64_t begin, int64_t end) {
    const struct node_call *run = context;
    const struct tensor *logits = run->node->in[0];
    int64_t experts = shape_columns(&logits->shape), count = chosen_of(run->node);
    bool normalised = NODE_ATTRIBUTES(run->node, route_attributes)->normalised;
    for (int64_t row = begin; row < end; row++) {
        float values[ROUTING_EXPERTS_MAX];
        int32_t *chosen = (int32_t *)run->call->out[1] + row * count;
        read_logits(logits, run->call->in[0], row, values);
        choose_experts(values, experts, count, chosen);
        weigh_experts(values, experts, normalised, chosen, count, (float *)run->call->out[0] + row * count);
    }
}

/* Each expert's rows, and with these the place of each slot, which has its expert's number before. */
static void place_slots(int32_t *places, int64_t slots, int64_t experts, int32_t *ranges) {
    int32_t next[ROUTING_EXPERTS_MAX] = {0};
    int32_t tile = (int32_t)routing_tile(slots, experts), start = 0;
    for (int64_t i = 0; i < slots; i++)
        next[places[i]]++;
    for (int64_t e = 0; e < experts; e++) {
        int32_t count = next[e];
        ranges[2 * e] = next[e] = start;
        ranges[2 * e + 1] = start + count;
        start += (count + tile - 1) / tile * tile;
    }
    for (int64_t i = 0; i < slots; i++)
        places[i] = next[places[i]]++;
}

/* Slots of tokens that are not padding, by expert, from the experts of each token's slots. */
static void count_slots(const int32_t *targets, const int32_t *experts_of, int64_t tokens, int64_t chosen,
                        int64_t experts, int32_t *counts) {
    memset(counts, 0, (size_t)experts * sizeof *counts);
    for (int64_t i = 0; i < tokens * chosen; i++)
        counts[experts_of[i]] += !targets || targets[i / chosen] != TARGET_PADDING;
}

static enum status route_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct node *node = kernel->node;
    int64_t tokens = shape_rows(&node->in[0]->shape), experts = shape_columns(&node->in[0]->shape);
    parallel_for(tokens, parallel_rows(experts), route_tokens, &(struct node_call){node, call});
    count_slots(call->in[1], call->out[1], tokens, chosen_of(node), experts, call->out[3]);
    place_slots(call->out[1], shape_elements(&node->out[1]->shape), experts, call->out[2]);
    return STATUS_OK;
}

CPU_KERNEL(route, route_run)

/* The expert whose rows hold a place: among experts with rows, the last one that begins at or before it. */
static int64_t expert_at(const int32_t *ranges, int64_t experts, int32_t place) {
    int64_t first = 0, last = experts - 1;
    while (first < last) {
        int64_t middle = (first + last + 1) / 2;
        if (ranges[2 * middle] <= place)
            first = middle;
        else
            last = middle - 1;
    }
    return first;
}

/* With w the weights, p the probabilities and g the weights' gradients. Normalised weights have w_i (g_i - sum of g w),
 * as a softmax over the chosen experts alone. Otherwise it is p_j (g_j - sum of g w), where g is 0 for experts that are
 * not chosen. */
static void route_grad_rows(const struct node *node, const struct kernel_call *call, int64_t begin, int64_t end) {
    const struct tensor *logits = node->in[1];
    int64_t experts = columns_of(node), count = chosen_of(node);
    bool normalised = NODE_ATTRIBUTES(node, route_attributes)->normalised;
    for (int64_t row = begin; row < end; row++) {
        float values[ROUTING_EXPERTS_MAX], sum = 0;
        const float *dweights = (const float *)call->in[0] + row * count,
                    *weights = (const float *)call->in[2] + row * count;
        const int32_t *places = (const int32_t *)call->in[3] + row * count;
        for (int64_t i = 0; i < count; i++)
            sum += dweights[i] * weights[i];
        if (normalised) {
            memset(values, 0, (size_t)experts * sizeof *values);
        } else {
            read_logits(logits, call->in[1], row, values);
            cpu_simd()->softmax(DTYPE_F32, experts, values, log_sum_exp(experts, values), -sum, 0, values);
        }
        for (int64_t i = 0; i < count; i++)
            values[expert_at(call->in[4], experts, places[i])] +=
                weights[i] * (normalised ? dweights[i] - sum : dweights[i]);
        cpu_simd()->scale(experts, DTYPE_F32, values, 1, dtype_of(node), out_row(node, call, 0, row));
    }
}

CPU_ROWS_KERNEL(route_grad, route_grad_rows)

static void zero_row(const struct node *node, const struct kernel_call *call, int64_t row) {
    memset(out_row(node, call, 0, row), 0, (size_t)(columns_of(node) * dtype_bytes(dtype_of(node))));
}

static void zero_rows(const void *context, int64_t begin, int64_t end) {
    const struct node_call *run = context;
    for (int64_t row = begin; row < end; row++)
        zero_row(run->node, run->call, row);
}

static void dispatch_tokens(const void *context, int64_t begin, int64_t end) {
    const struct node_call *run = context;
    const struct node *node = run->node;
    int64_t count = shape_columns(&node->in[1]->shape);
    size_t bytes = (size_t)(columns_of(node) * dtype_bytes(dtype_of(node)));
    const int32_t *places = run->call->in[1];
    for (int64_t i = begin * count; i < end * count; i++)
        memcpy(out_row(node, run->call, 0, places[i]), in_row(node, run->call, 0, i / count), bytes);
}

/* out = the sum over a token's slots of rows, times weights where there are any, + addend; in parts that are summed in
 * fp32. */
enum { SUM_COLUMNS = 512 };

static void sum_slots(const struct node *node, const struct kernel_call *call, int64_t row) {
    bool weighed = node->op == &op_combine; /* whose input 1 is the weights */
    int places_input = weighed ? 2 : 1, addend = places_input + 1;
    const struct tensor *rows = node->in[0];
    enum dtype dtype = dtype_of(node);
    int64_t count = shape_columns(&node->in[places_input]->shape), columns = columns_of(node);
    const int32_t *places = (const int32_t *)call->in[places_input] + row * count;
    const float *weights = weighed ? (const float *)call->in[1] + row * count : NULL;
    for (int64_t first = 0; first < columns; first += SUM_COLUMNS) {
        float sums[SUM_COLUMNS] = {0}, scaled[SUM_COLUMNS];
        int64_t width = columns - first < SUM_COLUMNS ? columns - first : SUM_COLUMNS;
        int64_t offset = first * dtype_bytes(dtype);
        for (int64_t i = 0; i < count; i++) {
            const char *from = (const char *)operand_row(rows, call->in[0], places[i]) + offset;
            cpu_simd()->scale(width, dtype, from, weights ? weights[i] : 1, DTYPE_F32, scaled);
            cpu_simd()->accumulate(DTYPE_F32, width, scaled, sums);
        }
        if (node->in[addend])
            cpu_simd()->accumulate(dtype, width, (const char *)in_row(node, call, addend, row) + offset, sums);
        cpu_simd()->scale(width, DTYPE_F32, sums, 1, dtype, (char *)out_row(node, call, 0, row) + offset);
    }
}

static void slots_rows(const struct node *node, const struct kernel_call *call, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row++)
        sum_slots(node, call, row);
}

CPU_ROWS_KERNEL(dispatch_grad, slots_rows)
CPU_ROWS_KERNEL(combine, slots_rows)

static void combine_grad_tokens(const void *context, int64_t begin, int64_t end) {
    const struct node_call *run = context;
    const struct node *node = run->node;
    const struct kernel_call *call = run->call;
    int64_t count = shape_columns(&node->in[3]->shape), columns = columns_of(node);
    const float *weights = call->in[2];
    const int32_t *places = call->in[3];
    float *dweights = call->out[1];
    for (int64_t i = begin * count; i < end * count; i++) {
        const void *dy = in_row(node, call, 0, i / count);
        if (dweights) dweights[i] = dot_rows(dtype_of(node), columns, dy, in_row(node, call, 1, places[i]));
        cpu_simd()->scale(columns, dtype_of(node), dy, weights[i], dtype_of(node), out_row(node, call, 0, places[i]));
    }
}

/* Zeros in the rows of output 0, then the rows of the tokens of input 0. */
static enum status fill_run(const struct kernel *kernel, const struct kernel_call *call) {
    const struct node *node = kernel->node;
    const struct node_call run = {node, call};
    int64_t block = parallel_rows(columns_of(node));
    parallel_for(shape_rows(&node->out[0]->shape), block, zero_rows, &run);
    parallel_for(shape_rows(&node->in[0]->shape), block,
                 node->op == &op_dispatch ? dispatch_tokens : combine_grad_tokens, &run);
    return STATUS_OK;
}

CPU_KERNEL(dispatch, fill_run)
CPU_KERNEL(combine_grad, fill_run)

/* sigmoid(gate) of a token. */
static float gate_of(const struct tensor *gate, const void *data, int64_t row) {
    float value;
    cpu_simd()->scale(1, gate->shape.dtype, operand_row(gate, (void *)data, row), 1, DTYPE_F32, &value);
    return 1 / (1 + expf(-value));
}

static void token_gate_rows(const struct node *node, const struct kernel_call *call, int64_t begin, int64_t end) {
    enum dtype dtype = dtype_of(node);
    for (int64_t row = begin; row < end; row++) {
        float gate = gate_of(node->in[1], call->in[1], row);
        for (int64_t first = 0; first < columns_of(node); first += SUM_COLUMNS) {
            float scaled[SUM_COLUMNS];
            int64_t width = columns_of(node) - first < SUM_COLUMNS ? columns_of(node) - first : SUM_COLUMNS;
            int64_t offset = first * dtype_bytes(dtype);
            cpu_simd()->scale(width, dtype, (const char *)in_row(node, call, 0, row) + offset, gate, DTYPE_F32, scaled);
            if (node->in[2])
                cpu_simd()->accumulate(dtype, width, (const char *)in_row(node, call, 2, row) + offset, scaled);
            cpu_simd()->scale(width, DTYPE_F32, scaled, 1, dtype, (char *)out_row(node, call, 0, row) + offset);
        }
    }
}

CPU_ROWS_KERNEL(token_gate, token_gate_rows)

static void token_gate_grad_rows(const struct node *node, const struct kernel_call *call, int64_t begin, int64_t end) {
    enum dtype dtype = dtype_of(node);
    for (int64_t row = begin; row < end; row++) {
        const void *dy = in_row(node, call, 0, row);
        float gate = gate_of(node->in[2], call->in[2], row);
        float slope = dot_rows(dtype, columns_of(node), dy, in_row(node, call, 1, row)) * gate * (1 - gate);
        cpu_simd()->scale(columns_of(node), dtype, dy, gate, dtype, out_row(node, call, 0, row));
        cpu_simd()->scale(1, DTYPE_F32, &slope, 1, dtype, out_row(node, call, 1, row));
    }
}

CPU_ROWS_KERNEL(token_gate_grad, token_gate_grad_rows)

/* Counts of experts' slots, and the loss that balances them. Sums are over blocks of tokens, added in their order,
 * whatever threads make them. */

enum { BLOCK_TOKENS = 64 };

/* The softmax of a token's logits, in fp32. */
static void probabilities_of(const struct tensor *logits, const void *data, int64_t row, float *out) {
    int64_t experts = shape_columns(&logits->shape);
    read_logits(logits, data, row, out);
    cpu_simd()->softmax(DTYPE_F32, experts, out, log_sum_exp(experts, out), 1, 0, out);
}

static int64_t token_blocks(const struct node *node) {
    return (shape_rows(&node->in[0]->shape) + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
}

static void sum_token_blocks(const void *context, int64_t begin, int64_t end) {
    const struct node_call *run = context;
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
    parallel_for(blocks, 1, sum_token_blocks, &(struct node_call){node, call});
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

CPU_KERNEL(count_slots, count_slots_run)

/* With p the probabilities and g the gradient of their sums: p_j (g_j - sum of g p), 0 for padding. */
static void expert_load_grad_rows(const struct node *node, const struct kernel_call *call, int64_t begin, int64_t end) {
    int64_t experts = columns_of(node);
    const float *slopes = (const float *)call->in[0] + experts;
    const int32_t *targets = call->in[2];
    for (int64_t row = begin; row < end; row++) {
        float values[ROUTING_EXPERTS_MAX];
        double mean = 0;
        if (targets[row] == TARGET_PADDING) {
            zero_row(node, call, row);
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

CPU_ROWS_KERNEL(expert_load_grad, expert_load_grad_rows)

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

CPU_KERNEL(balanced_loss, balanced_loss_run)

CPU_KERNEL(balanced_loss_grad, balanced_loss_run)
