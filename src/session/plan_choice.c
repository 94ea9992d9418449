#include "session/plan_choice.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "session/plan_policy.h"
#include "session/selective_recompute_choice.h"
#include "session/stage_cuts.h"
#include "session/tensor_layout.h"
#include "session/tile_search.h"

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
    const struct rank_place requested = plan->chosen.place;
    const struct mesh one = {1, 1};
    plan->chosen.place = session_place(plan->session, requested.mesh.nodes > 0 ? &requested.mesh : &one);
    plan->chosen.place.tensor_parallel = requested.tensor_parallel;
    plan->chosen.place.pipeline_parallel = requested.pipeline_parallel;
}

enum status plan_choice_compile(struct session_plan *plan) {
    enum status status = programs_compile(plan->session, &plan->request.set, &plan->chosen, &plan->programs);
    plan->min_bytes = plan->programs.tier_bytes[TIER_DEVICE];
    return name_origin(status, plan->request.origin);
}

bool plan_choice_fits(const struct session_plan *plan) {
    for (enum tier tier = 0; tier < TIER_COUNT; tier++)
        if (plan->programs.tier_bytes[tier] > plan->session->machine.capacity_bytes[tier]) return false;
    return true;
}

struct policy plan_choice_begin(const struct session_plan *plan) {
    const struct policy *policy = &plan->chosen.policy;
    const struct plan_request *request = &plan->request;
    struct policy plain = {.micro_batches_per_wave = request->micro_batches_fixed
                                                         ? policy->micro_batches_per_wave
                                                         : setting_table[SETTING_micro_batches_per_wave].int_value,
                           .flat = request->collectives_fixed && policy->flat};
    if (request->partition_fixed) plain.partition = policy->partition;
    memcpy(plain.spans, policy->spans, sizeof plain.spans);
    return plain;
}

/* Whether this is a pipeline that nobody has cut. */
static bool is_uncut(const struct session_plan *plan) {
    return rank_place_pipeline_parallel(&plan->chosen.place) > 1 && !plan->chosen.policy.spans[0];
}

enum status plan_choice_build_graph(const struct session_plan *plan, struct graph **out) {
    enum program_use main = 0;
    while (!program_set_has(&plan->request.set, main))
        main++;
    return program_build_graph(plan->session, &plan->request.set, main, &plan->chosen, out);
}

enum status plan_choice_cut(struct session_plan *plan, const struct graph *graph) {
    return is_uncut(plan) ? stage_cuts_by_flops(plan, graph, true) : STATUS_OK;
}

static enum status cut_stages(struct session_plan *plan, bool limited) {
    struct graph *graph;
    TRY(plan_choice_build_graph(plan, &graph));
    enum status status = stage_cuts_by_flops(plan, graph, limited);
    graph_free(graph);
    return status;
}

/* Costs are known only when there are programs. */
static enum status cut_again(struct session_plan *plan) {
    TRY(session_plan_measure(plan));
    TRY(stage_cuts_by_seconds(plan));
    programs_free(&plan->programs);
    return plan_choice_compile(plan);
}

/* A policy of another time, with which the step does not fit here: its tiles, and whether what is light is recreated,
 * are no longer given either. */
static enum status begin_again(struct session_plan *plan) {
    plan->request.plan.policy = plan->chosen.policy = plan_choice_begin(plan);
    plan->chosen.policy.partition = (struct partition){0};
    programs_free(&plan->programs);
    return plan_choice_compile(plan);
}

/* Where each lane's sequences are whole micro-batches of twice the size. */
static bool double_micro_batch(struct session_plan *plan) {
    const struct plan_request *request = &plan->request;
    struct recipe *recipe = &plan->chosen.recipe;
    int64_t sequences = 2 * recipe->micro_batch_sequences;
    if (request->recipe_fixed || request->micro_batch_fixed) return false;
    if (recipe->batch % (sequences * lane_shape_lanes(&recipe->lanes)) != 0) return false;
    recipe->micro_batch_sequences = sequences;
    return true;
}

/* A cut that is recreated by seconds is at first an even one: memory would have it uneven, with most of the operations
 * between ranks in one stage. */
static enum status compile_cut(struct session_plan *plan, bool uncut, bool again) {
    if (uncut) plan->chosen.policy.spans[0] = '\0';
    if (uncut) TRY(name_origin(cut_stages(plan, !again), plan->request.origin));
    TRY(plan_choice_compile(plan));
    return again ? cut_again(plan) : STATUS_OK;
}

/* A pipeline's programs have operations between ranks for each micro-batch. NO_FIT says that these are too many. */
static enum status compile_first(struct session_plan *plan, bool uncut, bool again) {
    int64_t before = plan->chosen.recipe.micro_batch_sequences;
    enum status status = compile_cut(plan, uncut, again);
    while (status == STATUS_NO_FIT && double_micro_batch(plan)) {
        status_clear();
        costs_free(&plan->costs); /* of smaller micro-batches */
        status = compile_cut(plan, uncut, again);
    }
    if (status == STATUS_NO_FIT) plan->chosen.recipe.micro_batch_sequences = before;
    int64_t after = plan->chosen.recipe.micro_batch_sequences;
    bool one_of_several_shapes = plan->request.faster_than_s > 0;
    if (after > before && !one_of_several_shapes)
        log_note("uses micro-batches of %" PRId64 " sequences instead of %" PRId64
                 ": smaller ones need more than %d sends and collectives",
                 after, before, COMM_OPERATIONS_MAX);
    return status;
}

/* What chunks a partition has is yet to be chosen: at first each rank has all. */
enum status plan_choice_make(struct session_plan *plan) {
    bool free = !plan->request.policy_fixed, uncut = is_uncut(plan);
    bool open = free && policy_is_plain(&plan->chosen.policy);
    if (open) plan->chosen.policy.partition = (struct partition){0};
    TRY(tensor_layout_find_rates(plan));
    TRY(tensor_layout_find_strategies(plan->session, &plan->chosen));
    TRY(compile_first(plan, uncut, uncut && free && program_set_has(&plan->request.set, PROGRAM_STEP)));
    if (!free) return STATUS_OK;
    if (!open && !plan->request.costs && !plan_choice_fits(plan)) TRY(begin_again(plan));
    TRY(selective_recompute_choose(plan));
    TRY(plan_policy_choose(plan));
    return tile_search(plan);
}
