#include "session/selective_recompute_choice.h"

#include "ir/selective_recompute.h"
#include "search/sim/costs.h"
#include "session/plan_choice.h"

/* Costs that a run has fitted are of its graph, and bounds of shapes are of the plain one. */
static bool is_open(const struct session_plan *plan) {
    const struct plan_request *request = &plan->request;
    return program_set_has(&request->set, PROGRAM_STEP) && policy_is_plain(&plan->chosen.policy) &&
           !plan->chosen.policy.selective_recompute && request->faster_than_s == 0 && !request->costs;
}

enum status selective_recompute_choose(struct session_plan *plan) {
    struct selective_recompute_counts counts;
    if (!is_open(plan)) return STATUS_OK;
    TRY(graph_selective_recompute_count(programs_main(&plan->programs)->graph, &counts));
    bool fitted = plan_choice_fits(plan), light = counts.flops >= SELECTIVE_RECOMPUTE_FLOPS_PER_BYTE * counts.bytes;
    if (counts.bytes == 0 || (fitted && !light)) return STATUS_OK;
    struct session_plan other = {.session = plan->session, .request = plan->request, .chosen = plan->chosen};
    other.chosen.policy.selective_recompute = true;
    TRY(plan_choice_compile(&other));
    int64_t before = plan->programs.tier_bytes[TIER_DEVICE], bytes = other.programs.tier_bytes[TIER_DEVICE];
    int64_t part =
        plan->chosen.recipe.dtype == DTYPE_F32 ? SELECTIVE_RECOMPUTE_PART_MIN_FP32 : SELECTIVE_RECOMPUTE_PART_MIN;
    if (before - bytes < (fitted ? before / part : 1)) {
        programs_free(&other.programs);
        return STATUS_OK;
    }
    programs_free(&plan->programs);
    costs_free(&plan->costs); /* a pipeline was cut by them; they are of the other graph */
    plan->programs = other.programs;
    plan->chosen = other.chosen;
    plan->min_bytes = other.min_bytes;
    return STATUS_OK;
}
