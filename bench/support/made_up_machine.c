#include "support/made_up_machine.h"

enum status made_up_costs(const struct graph *graph, const struct made_up_machine *machine, struct costs *out) {
    *out = (struct costs){.count = (int32_t)graph->nodes.count};
    out->kernels = mem_array(graph->nodes.count, sizeof *out->kernels);
    if (!out->kernels) return STATUS_FAILED;
    for (size_t n = 0; n < graph->nodes.count; n++) {
        struct op_cost cost;
        op_cost(graph->nodes.items[n], &cost);
        out->kernels[n].seconds = cost.flops / machine->flops_per_s + cost.bytes / machine->memory_bytes_per_s + 1e-6;
        out->kernels[n].activity = cost.flops > 50 * cost.bytes ? ACTIVITY_PRODUCT : ACTIVITY_STREAMING;
    }
    struct cluster_rates *rates = &out->rates;
    rates->issue_s = 1e-7;
    rates->zero = (struct transfer_rate){1e-6, machine->memory_bytes_per_s};
    for (int from = 0; from < TIER_COUNT; from++)
        for (int to = 0; to < TIER_COUNT; to++) {
            bool disk = from == TIER_DISK || to == TIER_DISK;
            rates->copy[from][to] = disk ? (struct transfer_rate){1e-4, machine->disk_bytes_per_s}
                                         : (struct transfer_rate){1e-5, machine->link_bytes_per_s};
        }
    for (int a = 0; a < ACTIVITY_COUNT; a++)
        for (int b = 0; b < ACTIVITY_COUNT; b++)
            rates->slowdown[a][b] = a == b ? 2 : 1.1;
    return STATUS_OK;
}

enum status search_plain_bytes(const struct search_input *input, int64_t *out) {
    struct plan plan = {.recipe = *input->recipe, .policy.micro_batches_per_wave = 1};
    struct program *program;
    TRY(program_compile(input->graph, &plan, input->workspace, NULL, &program));
    *out = program->tier_bytes[TIER_DEVICE];
    program_free(program);
    return STATUS_OK;
}
