#include "sim/costs.h"

static double transfer_s(const struct transfer_rate *rate, int64_t bytes) {
    return rate->latency_s + (double)bytes / rate->bytes_per_s;
}

static enum tier tier_of(const struct program *program, const struct operand *operand) {
    return program->buffers.items[operand->buffer].tier;
}

static enum activity activity_of_copy(enum tier from, enum tier to) {
    if (from == TIER_DISK) return ACTIVITY_DISK_READ;
    return to == TIER_DISK ? ACTIVITY_DISK_WRITE : ACTIVITY_COPY;
}

/* The rate by which the instruction's bytes move; NULL for kernels. */
static const struct transfer_rate *rate_of(const struct costs *costs, const struct program *program,
                                           const struct instruction *instruction) {
    switch (instruction->opcode) {
    case OPCODE_KERNEL: return NULL;
    case OPCODE_ZERO: return &costs->rates.zero;
    case OPCODE_COPY:
        return &costs->rates.copy[tier_of(program, &instruction->operands[0])]
                                 [tier_of(program, &instruction->operands[OP_INPUTS_MAX])];
    }
    BUG("an instruction that is none");
}

struct kernel_cost costs_of(const struct costs *costs, const struct program *program,
                            const struct instruction *instruction) {
    const struct operand *from = &instruction->operands[0], *to = &instruction->operands[OP_INPUTS_MAX];
    const struct transfer_rate *rate = rate_of(costs, program, instruction);
    struct kernel_cost cost;
    if (!rate) {
        cost = costs->kernels[instruction->node->id];
    } else if (instruction->opcode == OPCODE_ZERO) {
        cost = (struct kernel_cost){transfer_s(rate, to->bytes), ACTIVITY_STREAMING};
    } else {
        int64_t bytes = program_moved_bytes(program, program->buffers.items[from->buffer].bytes);
        cost = (struct kernel_cost){transfer_s(rate, bytes),
                                    activity_of_copy(tier_of(program, from), tier_of(program, to))};
    }
    cost.seconds += costs->rates.issue_s;
    return cost;
}

static enum status refuse_unmeasured(const struct program *program, const struct instruction *instruction) {
    if (instruction->opcode == OPCODE_ZERO) return status_set(STATUS_FAILED, "costs: zeroing was not measured");
    return status_set(STATUS_FAILED, "costs: copies from %s to %s were not measured",
                      tier_name(tier_of(program, &instruction->operands[0])),
                      tier_name(tier_of(program, &instruction->operands[OP_INPUTS_MAX])));
}

enum status costs_check(const struct costs *costs, const struct program *program) {
    BUG_IF(costs->count < (int32_t)program->graph->nodes.count, "costs of another graph");
    for (size_t i = 0; i < program->instructions.count; i++) {
        const struct instruction *instruction = &program->instructions.items[i];
        const struct transfer_rate *rate = rate_of(costs, program, instruction);
        if (rate && !(rate->bytes_per_s > 0)) return refuse_unmeasured(program, instruction);
    }
    return STATUS_OK;
}

static const double ESTIMATED_FLOPS_PER_S = 3e14, ESTIMATED_BYTES_PER_S = 2e12, ESTIMATED_LINK_BYTES_PER_S = 25e9,
                    ESTIMATED_DISK_BYTES_PER_S = 3e9, ESTIMATED_LATENCY_S = 1e-5;

static void estimate_rates(struct cluster_rates *rates) {
    *rates = (struct cluster_rates){.zero = {ESTIMATED_LATENCY_S, ESTIMATED_BYTES_PER_S}};
    for (enum tier from = 0; from < TIER_COUNT; from++)
        for (enum tier to = 0; to < TIER_COUNT; to++) {
            bool disk = from == TIER_DISK || to == TIER_DISK;
            rates->copy[from][to] = (struct transfer_rate){ESTIMATED_LATENCY_S, disk ? ESTIMATED_DISK_BYTES_PER_S
                                                                                     : ESTIMATED_LINK_BYTES_PER_S};
        }
    for (int a = 0; a < ACTIVITY_COUNT; a++)
        for (int b = 0; b < ACTIVITY_COUNT; b++)
            rates->slowdown[a][b] = a == b ? 2 : 1;
}

enum status costs_estimate(const struct graph *graph, struct costs *out) {
    *out = (struct costs){.count = (int32_t)graph->nodes.count, .estimated = true};
    out->kernels = mem_array(graph->nodes.count, sizeof *out->kernels);
    if (!out->kernels) return STATUS_FAILED;
    estimate_rates(&out->rates);
    for (size_t n = 0; n < graph->nodes.count; n++) {
        struct op_cost cost;
        op_cost(graph->nodes.items[n], &cost);
        double products_s = cost.flops / ESTIMATED_FLOPS_PER_S, bytes_s = cost.bytes / ESTIMATED_BYTES_PER_S;
        out->kernels[n] = products_s > bytes_s ? (struct kernel_cost){products_s, ACTIVITY_PRODUCT}
                                               : (struct kernel_cost){bytes_s, ACTIVITY_STREAMING};
    }
    return STATUS_OK;
}

void costs_free(struct costs *costs) {
    mem_free(costs->kernels);
    *costs = (struct costs){0};
}
