#include "search/sim/costs.h"

static double transfer_s(const struct transfer_rate *rate, int64_t bytes) {
    return rate->latency_s + (double)bytes / rate->bytes_per_s;
}

static enum tier tier_of(const struct program *program, const struct operand *operand) {
    return program->buffers.items[operand->buffer].tier;
}

enum activity activity_of_copy(enum tier from, enum tier to) {
    if (from == TIER_DISK) return ACTIVITY_DISK_READ;
    return to == TIER_DISK ? ACTIVITY_DISK_WRITE : ACTIVITY_COPY;
}

/* Zeros are written once. An addition also reads both of its operands, at about the same rate; a taken value is read as
 * well. */
enum { TAKE_MOVES = 2, ADD_MOVES = 3 };
double costs_add_s(const struct cluster_rates *rates, int64_t bytes) {
    return transfer_s(&rates->zero, ADD_MOVES * bytes);
}

/* Rounded sums travel as bf16, at half the length: all of a reduce-scatter, and the first half of an all-reduce. The
 * second half gathers fp32 unless the sum is rounded. Within a node with windows nothing travels. */
static int64_t bytes_as_fp32(const struct rank_place *place, const struct program_collective *collective) {
    bool travels = !place->in_place || place->mesh.nodes > 1;
    if (!collective->round_bf16 || !travels) return collective->bytes;
    if (collective->kind == COMM_ALL_GATHER) return collective->bytes;
    bool gathers = collective->kind == COMM_ALL_REDUCE && !collective->round_sum;
    return gathers ? collective->bytes / 4 * 3 : collective->bytes / 2;
}

double costs_collective_s(const struct cluster_rates *rates, const struct rank_place *place, bool flat,
                          const struct program_collective *collective) {
    const struct link_request request = {.kind = collective->kind,
                                         .group = collective->group,
                                         .in_place = place->in_place,
                                         .flat = flat && !place->on_device,
                                         .on_device = place->on_device,
                                         .bytes = bytes_as_fp32(place, collective),
                                         .mesh = place->mesh,
                                         .traffic = &collective->traffic};
    bool extrapolated;
    return links_seconds(&rates->links, &request, &extrapolated);
}

void costs_set_collectives(struct costs *costs, const struct program *program) {
    for (size_t c = 0; c < program->collectives.count; c++) {
        const struct program_collective *collective = &program->collectives.items[c];
        if (!collective->node) continue;
        const struct kernel_cost cost = {costs_collective_s(&costs->rates, &program->place, program->flat, collective),
                                         ACTIVITY_MESSAGE};
        costs->kernels[collective->node->id] = cost;
        if (costs->host_kernels) costs->host_kernels[collective->node->id] = cost;
    }
}

/* Rate and bytes of an instruction's copy; rate NULL for kernels and collectives. */
struct movement {
    const struct transfer_rate *rate;
    int64_t bytes;
    enum activity activity;
};

static struct movement movement_of(const struct costs *costs, const struct program *program,
                                   const struct instruction *instruction) {
    const struct operand *to = &instruction->operands[OP_INPUTS_MAX];
    if (instruction->opcode == OPCODE_KERNEL || opcode_is_collective(instruction->opcode))
        return (struct movement){.rate = NULL};
    if (instruction->opcode == OPCODE_COPY) {
        const struct buffer *from = &program->buffers.items[instruction->operands[0].buffer];
        return (struct movement){&costs->rates.copy[from->tier][tier_of(program, to)],
                                 program_moved_bytes(program, from->bytes),
                                 activity_of_copy(from->tier, tier_of(program, to))};
    }
    BUG_IF(instruction->opcode == OPCODE_ELSEWHERE, "an instruction that is none");
    int64_t times = instruction->opcode == OPCODE_ZERO   ? 1
                    : instruction->opcode == OPCODE_TAKE ? TAKE_MOVES
                                                         : ADD_MOVES;
    return (struct movement){&costs->rates.zero, times * to->bytes, ACTIVITY_STREAMING};
}

struct kernel_cost costs_of(const struct costs *costs, const struct program *program,
                            const struct instruction *instruction) {
    struct kernel_cost cost;
    if (opcode_is_collective(instruction->opcode)) {
        const struct program_collective *collective = &program->collectives.items[instruction->collective];
        cost = (struct kernel_cost){costs_collective_s(&costs->rates, &program->place, program->flat, collective),
                                    ACTIVITY_MESSAGE};
    } else if (instruction->opcode == OPCODE_KERNEL) {
        cost = costs_of_kernel(costs, instruction->node, instruction->tier);
        if (instruction->elements > 0)
            cost.seconds *= (double)instruction->elements / (double)shape_elements(&instruction->node->in[0]->shape);
    } else {
        struct movement movement = movement_of(costs, program, instruction);
        cost = (struct kernel_cost){transfer_s(movement.rate, movement.bytes), movement.activity};
    }
    cost.seconds += costs->rates.issue_s;
    return cost;
}

static enum status refuse_unmeasured(const struct program *program, const struct instruction *instruction) {
    if (instruction->opcode != OPCODE_COPY) return status_set(STATUS_FAILED, "costs: zeroing was not measured");
    return status_set(STATUS_FAILED, "costs: copies from %s to %s were not measured",
                      tier_name(tier_of(program, &instruction->operands[0])),
                      tier_name(tier_of(program, &instruction->operands[OP_INPUTS_MAX])));
}

enum status costs_check(const struct costs *costs, const struct program *program) {
    BUG_IF(costs->count < (int32_t)program->graph->nodes.count, "costs of another graph");
    for (size_t i = 0; i < program->instructions.count; i++) {
        const struct instruction *instruction = &program->instructions.items[i];
        const struct transfer_rate *rate = movement_of(costs, program, instruction).rate;
        if (rate && !(rate->bytes_per_s > 0)) return refuse_unmeasured(program, instruction);
    }
    return STATUS_OK;
}

/* AdamW on a host's cores, relative to its memory's rate. */
static const double HOST_PART = 0.70;

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
        bool product = roofline_is_product(node->op->work);
        costs.kernels[i].seconds = roofline_of(node, &cluster->device, which).seconds;
        costs.kernels[i].activity = product ? ACTIVITY_PRODUCT : ACTIVITY_STREAMING;
        costs.host_kernels[i] = node->phase == PHASE_UPDATE ? host_cost(node, limits) : costs.kernels[i];
    }
    *out = costs;
    return STATUS_OK;
}

static enum status copy_kernels(const struct kernel_cost *kernels, int32_t count, struct kernel_cost **out) {
    *out = NULL;
    if (!kernels) return STATUS_OK;
    TRY(mem_items(out, (size_t)count));
    memcpy(*out, kernels, (size_t)count * sizeof **out);
    return STATUS_OK;
}

enum status costs_copy(const struct costs *costs, struct costs *out) {
    *out = *costs;
    out->host_kernels = NULL;
    TRY(copy_kernels(costs->kernels, costs->count, &out->kernels));
    return copy_kernels(costs->host_kernels, costs->count, &out->host_kernels);
}

void costs_free(struct costs *costs) {
    mem_free(costs->kernels);
    mem_free(costs->host_kernels);
    *costs = (struct costs){0};
}
