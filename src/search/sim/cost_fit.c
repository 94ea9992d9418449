#include "search/sim/cost_fit.h"

#include <math.h>

/* Costs that are wrong by some times make other things concurrent than a step has, which the first rounds
 * correct.
 */
enum { FIT_ROUNDS_MAX = 8 };
static const double FIT_CLOSE = 0.005;

/* Two numbers, which ranks add up. */
struct kind {
    double recorded_s, simulated_s;
};

/* Kinds: of kernels by the first node that is alike, on the device, then on the host where that has costs of its own;
 * then copies, then zeros and sums. */
struct fit {
    struct costs *costs;
    int32_t *alike[2];
    struct kind *kinds;
    int32_t copies, zeros, count;
};

static bool costs_alike(const struct node *a, const struct node *b, const struct kernel_cost *costs) {
    return a->op == b->op && costs[a->id].seconds == costs[b->id].seconds;
}

static enum status find_alike(const struct graph *graph, const struct kernel_cost *costs, int32_t **out) {
    int32_t *alike = *out = mem_array(graph->nodes.count, sizeof *alike);
    if (!alike) return STATUS_FAILED;
    for (int32_t n = 0; n < (int32_t)graph->nodes.count; n++)
        for (alike[n] = 0; alike[n] < n; alike[n]++)
            if (costs_alike(graph->nodes.items[alike[n]], graph->nodes.items[n], costs)) break;
    return STATUS_OK;
}

static enum status fit_begin(const struct graph *graph, struct costs *costs, struct fit *out) {
    *out = (struct fit){.costs = costs, .copies = 2 * costs->count};
    out->zeros = out->copies + TIER_COUNT * TIER_COUNT;
    out->count = out->zeros + 1;
    out->kinds = mem_array((size_t)out->count, sizeof *out->kinds);
    if (!out->kinds) return STATUS_FAILED;
    TRY(find_alike(graph, costs->kernels, &out->alike[0]));
    return costs->host_kernels ? find_alike(graph, costs->host_kernels, &out->alike[1]) : STATUS_OK;
}

static void fit_end(struct fit *fit) {
    mem_free(fit->alike[0]);
    mem_free(fit->alike[1]);
    mem_free(fit->kinds);
}

/* NULL: it is of no kind that is fitted. */
static struct kind *kind_of(const struct fit *fit, const struct program *program,
                            const struct instruction *instruction) {
    const struct buffer *buffers = program->buffers.items;
    bool own = instruction->tier == TIER_HOST && fit->costs->host_kernels;
    if (opcode_is_collective(instruction->opcode)) return NULL;
    switch (instruction->opcode) {
    case OPCODE_KERNEL: return &fit->kinds[(own ? fit->costs->count : 0) + fit->alike[own][instruction->node->id]];
    case OPCODE_COPY:
        return &fit->kinds[fit->copies + TIER_COUNT * (int)buffers[instruction->operands[0].buffer].tier +
                           (int)buffers[instruction->operands[OP_INPUTS_MAX].buffer].tier];
    case OPCODE_ZERO:
    case OPCODE_TAKE:
    case OPCODE_ADD:
    case OPCODE_ADD_BF16: return &fit->kinds[fit->zeros];
    default: return NULL;
    }
}

/* Simulated instructions have their issue within, recorded ones do not. */
static void add_up(struct fit *fit, const struct timeline *recorded, const struct timeline *simulated) {
    const struct program *program = recorded->program;
    for (size_t i = 0; i < recorded->events.count; i++) {
        const struct timeline_event *measured = &recorded->events.items[i], *made = &simulated->events.items[i];
        const struct instruction *instruction = &program->instructions.items[measured->instruction];
        struct kind *kind = kind_of(fit, program, instruction);
        double all_s = costs_of(fit->costs, program, instruction).seconds;
        if (!kind || measured->end_s <= measured->start_s || all_s <= 0) continue;
        kind->recorded_s += measured->end_s - measured->start_s;
        kind->simulated_s += (made->end_s - made->start_s) * (1 - fit->costs->rates.issue_s / all_s);
    }
}

static enum status add_step(struct fit *fit, const struct timeline *recorded) {
    struct timeline simulated;
    if (!recorded) return STATUS_OK;
    TRY(simulate(recorded->program, fit->costs, &simulated));
    add_up(fit, recorded, &simulated);
    timeline_free(&simulated);
    return STATUS_OK;
}

/* A kind is two numbers to the contention group. */
static enum status add_over_ranks(const struct fit_sum_over_ranks *ranks, enum status mine, struct fit *fit) {
    if (!ranks) return mine;
    return ranks->add(ranks->payload, mine, (double *)fit->kinds,
                      (size_t)fit->count * (sizeof(struct kind) / sizeof(double)));
}

/* Returns the kind's factor, 1 where nothing of it was recorded. */
static double factor_of(const struct kind *kind) {
    bool known = kind->recorded_s > 0 && kind->simulated_s > 0;
    return known ? kind->recorded_s / kind->simulated_s : 1;
}

static void scale_rate(struct transfer_rate *rate, double factor) {
    rate->latency_s *= factor;
    rate->bytes_per_s /= factor;
}

static void scale_costs(struct fit *fit) {
    struct costs *costs = fit->costs;
    for (int32_t n = 0; n < costs->count; n++) {
        costs->kernels[n].seconds *= factor_of(&fit->kinds[fit->alike[0][n]]);
        if (!costs->host_kernels) continue;
        costs->host_kernels[n].seconds *= factor_of(&fit->kinds[costs->count + fit->alike[1][n]]);
    }
    for (int pair = 0; pair < TIER_COUNT * TIER_COUNT; pair++)
        scale_rate(&costs->rates.copy[pair / TIER_COUNT][pair % TIER_COUNT],
                   factor_of(&fit->kinds[fit->copies + pair]));
    scale_rate(&costs->rates.zero, factor_of(&fit->kinds[fit->zeros]));
}

/* Returns by how much the kind that was furthest off was. */
static double take_kinds(struct fit *fit) {
    double furthest = 0;
    scale_costs(fit);
    for (int32_t k = 0; k < fit->count; k++) {
        furthest = fmax(furthest, fabs(factor_of(&fit->kinds[k]) - 1));
        fit->kinds[k] = (struct kind){0};
    }
    return furthest;
}

enum status costs_fit(const struct program *program, const struct timeline *recorded,
                      const struct fit_sum_over_ranks *ranks, struct costs *costs) {
    struct fit fit;
    double furthest = 1;
    enum status status = fit_begin(program->graph, costs, &fit);
    for (int round = 0; round < FIT_ROUNDS_MAX && furthest > FIT_CLOSE; round++) {
        if (status == STATUS_OK) status = add_step(&fit, recorded);
        status = add_over_ranks(ranks, status, &fit);
        if (status != STATUS_OK) break;
        furthest = take_kinds(&fit);
    }
    fit_end(&fit);
    return status;
}
