#include "session/plan_choice.h"

#include <stdio.h>

#include "layout/stage_spans.h"
#include "session/plan_policy.h"

/* A policy can be wrong for this model alone: the file that holds it is named. */
static enum status name_origin(enum status status, const char *origin) {
    if (status != STATUS_BAD_INPUT || !origin) return status;
    char hint[256];
    snprintf(hint, sizeof hint, "%s", status_hint_text());
    status = status_prefix(status, "%s", origin);
    return hint[0] ? status_hint(status, "%s", hint) : status;
}

/* The rest of a place whose mesh and axes are known. */
void plan_choice_place(struct session_plan *plan) {
    const struct rank_place asked = plan->chosen.place;
    const struct mesh one = {1, 1};
    plan->chosen.place = session_place(plan->session, asked.mesh.nodes > 0 ? &asked.mesh : &one);
    plan->chosen.place.tensor = asked.tensor;
    plan->chosen.place.stages = asked.stages;
}

enum status plan_choice_compile(struct session_plan *plan) {
    enum status status = programs_compile(plan->session, &plan->request.set, &plan->chosen, &plan->programs);
    plan->least_bytes = plan->programs.tier_bytes[TIER_DEVICE];
    return name_origin(status, plan->request.origin);
}

enum status plan_choice_build_graph(const struct session_plan *plan, struct graph **out) {
    enum program_use main = 0;
    while (!program_set_has(&plan->request.set, main))
        main++;
    return program_build_graph(plan->session, &plan->request.set, main, &plan->chosen, out);
}

enum status plan_choice_cut(struct session_plan *plan, const struct graph *graph) {
    int stages = rank_place_stages(&plan->chosen.place);
    struct policy *policy = &plan->chosen.policy;
    return stages == 1 || policy->spans[0] ? STATUS_OK : stage_spans_balance(graph, stages, policy->spans);
}

static enum status cut_stages(struct session_plan *plan) {
    struct graph *graph;
    if (rank_place_stages(&plan->chosen.place) == 1 || plan->chosen.policy.spans[0]) return STATUS_OK;
    TRY(plan_choice_build_graph(plan, &graph));
    enum status status = plan_choice_cut(plan, graph);
    graph_free(graph);
    return status;
}

/* What chunks a partition has is yet to be chosen: at first each rank has all. */
enum status plan_choice_make(struct session_plan *plan) {
    bool open = !plan->request.policy_fixed && policy_is_plain(&plan->chosen.policy);
    if (open) plan->chosen.policy.partition = (struct partition){0};
    TRY(name_origin(cut_stages(plan), plan->request.origin));
    TRY(plan_choice_compile(plan));
    return plan->request.policy_fixed ? STATUS_OK : plan_policy_choose(plan);
}
