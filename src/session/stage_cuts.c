#include "session/stage_cuts.h"

#include <stdio.h>

#include "plan/layout/stage_spans.h"

/* Of the rank's largest share. */
static enum status count_waves(const struct plan *plan, int64_t *waves) {
    struct lane_shares shares;
    enum status status = lane_shares_create(&plan->recipe, &plan->place, &shares);
    int64_t micro_batches = 1;
    for (size_t i = 0; i < shares.list.count; i++)
        if (shares.list.items[i].micro_batches > micro_batches) micro_batches = shares.list.items[i].micro_batches;
    lane_shares_free(&shares);
    *waves = (micro_batches + plan->policy.micro_batches_per_wave - 1) / plan->policy.micro_batches_per_wave;
    return status;
}

static enum status cut(const struct session_plan *plan, const struct block_costs *costs, int32_t virtual_stages,
                       bool limited, char text[POLICY_SPANS_BYTES]) {
    int64_t capacity = plan->session->machine.capacity_bytes[TIER_DEVICE];
    const struct plan *chosen = &plan->chosen;
    int32_t stages = rank_place_pipeline_parallel(&chosen->place);
    struct span_request request = {
        .stages = stages, .count = stages * virtual_stages, .device_bytes = limited ? capacity : INT64_MAX};
    TRY(count_waves(chosen, &request.waves));
    return stage_spans_choose(costs, &request, text);
}

enum status stage_cuts_by_flops(struct session_plan *plan, const struct graph *graph, bool limited) {
    struct block_costs costs;
    int64_t requested = plan->request.virtual_stages;
    enum status status = block_costs_create(graph, &plan->chosen.policy, &costs);
    int32_t virtual_stages = requested > 0 ? (int32_t)requested : 1;
    if (status == STATUS_OK) status = cut(plan, &costs, virtual_stages, limited, plan->chosen.policy.spans);
    block_costs_free(&costs);
    return status;
}

/* The time of tensor-parallel collectives within a block is in its kernels' seconds (costs_set_collectives). */
static void take_seconds(const struct graph *graph, const struct costs *costs, struct block_costs *out) {
    for (int32_t b = 0; b < out->blocks; b++)
        out->seconds[b] = 0;
    for (size_t n = 0; n < graph->nodes.count; n++) {
        const struct node *node = graph->nodes.items[n];
        if (node->phase <= PHASE_BACKWARD)
            out->seconds[node->block] += costs_of_kernel(costs, node, TIER_DEVICE).seconds;
    }
}

/* A cut with its simulated step. */
struct tried_cut {
    char spans[POLICY_SPANS_BYTES];
    double step_s;
};

static enum status try_cut(const struct session_plan *plan, const struct block_costs *costs, int32_t virtual_stages,
                           struct tried_cut *out) {
    struct plan tried = plan->chosen;
    struct stage_steps steps;
    TRY(cut(plan, costs, virtual_stages, true, tried.policy.spans));
    enum status status = stage_steps_make(programs_main(&plan->programs), &tried, &plan->costs, &steps);
    out->step_s = steps.step_s;
    stage_steps_free(&steps);
    snprintf(out->spans, sizeof out->spans, "%s", tried.policy.spans);
    return status;
}

/* Megatron-LM's users take 2 to 4; each more costs messages. */
enum { VIRTUAL_STAGES_MAX = 4 };

static enum status try_cuts(const struct session_plan *plan, const struct block_costs *costs, struct tried_cut *best) {
    int64_t requested = plan->request.virtual_stages, min = requested > 0 ? requested : 1,
            max = requested > 0 ? requested : VIRTUAL_STAGES_MAX;
    int stages = rank_place_pipeline_parallel(&plan->chosen.place);
    for (int64_t virtual_stages = min; virtual_stages <= max; virtual_stages++) {
        struct tried_cut tried;
        if (virtual_stages > min && virtual_stages * stages > costs->blocks) break;
        TRY(try_cut(plan, costs, (int32_t)virtual_stages, &tried));
        if (virtual_stages == min || tried.step_s < best->step_s) *best = tried;
    }
    return STATUS_OK;
}

enum status stage_cuts_by_seconds(struct session_plan *plan) {
    const struct graph *graph = programs_main(&plan->programs)->graph;
    struct block_costs costs;
    struct tried_cut best;
    enum status status = block_costs_create(graph, &plan->chosen.policy, &costs);
    if (status == STATUS_OK) {
        take_seconds(graph, &plan->costs, &costs);
        status = try_cuts(plan, &costs, &best);
    }
    if (status == STATUS_OK) snprintf(plan->chosen.policy.spans, POLICY_SPANS_BYTES, "%s", best.spans);
    block_costs_free(&costs);
    return status;
}
