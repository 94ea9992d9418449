#include "session/session_plan.h"

#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "profile/described_device.h"
#include "session/choose.h"
#include "session/idle_lanes.h"
#include "session/machine_costs.h"
#include "session/plan_document.h"
#include "session/rank_proof.h"

static struct model_figures figures_of(const struct session_plan *plan, const struct graph *graph) {
    const struct model_config *config = &plan->session->model->config;
    struct model_figures figures = {.parameters = model_parameter_count(graph),
                                    .matrix_parameters = model_matrix_parameter_count(graph),
                                    .trained_parameters = model_trained_count(graph)};
    double attention =
        (double)(config->layers * config->heads * config->head_dim) * (double)(plan->chosen.recipe.sequence_length + 1);
    double forward = 2 * ((double)figures.matrix_parameters + attention);
    double backward = 4 * attention + 2 * (double)(figures.matrix_parameters + model_trained_matrix_count(graph));
    figures.flops_per_token = program_set_has(&plan->request.set, PROGRAM_STEP) ? forward + backward : forward;
    return figures;
}

/* Of the whole model, also where ranks share its tensors. */
static enum status find_figures(struct session_plan *plan) {
    struct graph *whole = NULL;
    if (recipe_tensor_parallel(&plan->chosen.recipe) > 1)
        TRY(programs_build_whole(plan->session, &plan->request.set, &plan->chosen, &whole));
    plan->figures = figures_of(plan, whole ? whole : programs_main(&plan->programs)->graph);
    graph_free(whole);
    return STATUS_OK;
}

static enum status describe(struct session_plan *plan) {
    const struct backend *backend = plan->session->machine.backend;
    for (enum tier tier = 0; tier < TIER_COUNT; tier++)
        TRY(program_report_memory(programs_main(&plan->programs)->program, tier, &plan->memory[tier]));
    TRY(find_figures(plan));
    struct recipe *recipe = &plan->chosen.recipe;
    return backend->list_products ? backend->list_products(&recipe->products) : STATUS_OK;
}

/* The recipe and policy of rank 0, for all. */
static enum status share_chosen(struct session_plan *plan) {
    struct comm *comm = plan->session->comm;
    char *text = NULL;
    if (comm->rank == 0) {
        json_t *object = plan_to_json(&plan->chosen);
        text = object ? json_text(object, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
        json_decref(object);
    }
    TRY(comm_agree(comm, text || comm->rank > 0 ? STATUS_OK : STATUS_FAILED));
    enum status status = comm_share_text(comm, &text);
    json_t *object = status == STATUS_OK ? json_loads(text, 0, NULL) : NULL;
    if (status == STATUS_OK)
        status = object ? plan_from_json("the plan of rank 0", object, &plan->chosen) : STATUS_FAILED;
    plan->chosen.place = candidate_place(plan->session, &plan->chosen.place);
    json_decref(object);
    mem_free(text);
    return status;
}

/* The steps of all ranks, by rank 0. */
static enum status prove_ranks(const struct session_plan *plan) {
    const struct executable *step = plan->programs.of[PROGRAM_STEP];
    return step ? rank_proof_make(plan->session, &plan->request.set, step, &plan->chosen) : STATUS_OK;
}

static void take(const struct plan_candidate *candidate, struct session_plan *plan) {
    plan->chosen = candidate->plan;
    plan->programs = candidate->programs;
    plan->min_bytes = candidate->min_bytes;
    plan->search = candidate->search;
    plan->costs = candidate->costs;
}

static enum status choose(struct session_plan *plan) {
    struct plan_candidate chosen;
    TRY(choose_candidate(plan->session, &plan->request, &plan->shapes, &chosen));
    take(&chosen, plan);
    return STATUS_OK;
}

/* What rank 0 has chosen. */
static enum status compile(struct session_plan *plan) {
    struct plan_candidate chosen = candidate_begin(plan->session, &plan->request, &plan->chosen);
    TRY(candidate_compile(&chosen));
    take(&chosen, plan);
    return STATUS_OK;
}

/* For ranks that are only planned for, too. */
static enum status choose_alone(struct session_plan *plan) {
    TRY(choose(plan));
    TRY(programs_prove(&plan->programs));
    return prove_ranks(plan);
}

/* Rank 0 measures and searches, and its plan is everybody's: measurements differ from rank to rank. Each rank compiles
 * its own programs; meanwhile rank 0 proves that they fit together. */
static enum status choose_together(struct session_plan *plan) {
    struct comm *comm = plan->session->comm;
    TRY(comm_agree(comm, comm->rank == 0 ? choose(plan) : STATUS_OK));
    enum status status = share_chosen(plan);
    if (status == STATUS_OK) status = comm->rank > 0 ? compile(plan) : prove_ranks(plan);
    if (status == STATUS_OK) status = programs_prove(&plan->programs);
    return comm_agree(comm, status);
}

enum status session_plan_make(const struct session *session, const struct plan_request *request,
                              struct session_plan *out) {
    struct session_plan plan = {
        .session = session, .request = *request, .shapes = request->shapes, .chosen = request->plan};
    enum status status;
    plan.request.shapes = (struct rank_shapes){0};
    plan.chosen.place = candidate_place(session, &plan.chosen.place);
    TRY_GOTO(status, session_ranks(session) > 1 ? choose_together(&plan) : choose_alone(&plan), failed);
    TRY_GOTO(status, describe(&plan), failed);
    *out = plan;
    return STATUS_OK;
failed:
    session_plan_free(&plan);
    return status;
}

void session_plan_free(struct session_plan *plan) {
    stage_steps_free(&plan->stages);
    costs_free(&plan->costs);
    search_result_free(&plan->search);
    programs_free(&plan->programs);
    rank_shapes_free(&plan->shapes);
    *plan = (struct session_plan){.session = NULL};
}

static enum status set_trained(struct session *session, struct plan_request *request) {
    TRY(session_set_trained(session, &request->plan.recipe));
    for (size_t i = 0; i < request->shapes.list.count; i++) {
        struct recipe *recipe = &request->shapes.list.items[i].plan->recipe;
        memcpy(recipe->lora, request->plan.recipe.lora, sizeof recipe->lora);
        memcpy(recipe->freeze, request->plan.recipe.freeze, sizeof recipe->freeze);
        recipe->quantize_base = request->plan.recipe.quantize_base;
    }
    return STATUS_OK;
}

static enum status warn_of_idle_lanes(const struct session *session, const struct plan *plan) {
    return session->comm->rank == 0 ? idle_lanes_warn(plan) : STATUS_OK;
}

/* Takes the request's shapes over. Where these are open, lanes are known when one is chosen. */
static enum status plan_requested(struct session *session, struct plan_request *request, struct session_plan *out) {
    enum status status = STATUS_OK;
    bool trains = program_set_has(&request->set, PROGRAM_STEP), open = request->shapes.list.count > 0;
    if (trains) status = set_trained(session, request);
    if (trains && !open && status == STATUS_OK) status = warn_of_idle_lanes(session, &request->plan);
    status = comm_agree(session->comm, status);
    if (status != STATUS_OK) {
        rank_shapes_free(&request->shapes);
        return status;
    }
    TRY(session_plan_make(session, request, out));
    return trains && open ? warn_of_idle_lanes(session, &out->chosen) : STATUS_OK;
}

/* `made`: how the request went. */
static enum status plan_agreed(struct session *session, struct plan_request *request, enum status made,
                               struct session_plan *out) {
    enum status status = comm_agree(session->comm, made);
    if (status == STATUS_OK)
        status = plan_requested(session, request, out);
    else
        rank_shapes_free(&request->shapes);
    if (status != STATUS_OK) session_close(session);
    return status;
}

enum status session_begin(const char *model_folder, unsigned uses, const struct plan_options *options,
                          const struct train_options *training, struct session *session, struct session_plan *plan) {
    struct plan_request request = {.origin = NULL};
    struct plan read;
    const struct plan *base = SETTINGS_HAVE(options, plan_path) ? &read : NULL;
    if (base) TRY(comm_agree(options->comm, plan_read(options->plan_path, &read)));
    TRY(session_open(model_folder, options, base ? &base->recipe : NULL, session));
    /* What is evaluated is what the model says of tokens, not how it shares them among experts. */
    if (uses == PROGRAMS_TO_EVALUATE || uses == PROGRAMS_TO_REFER) session->model->config.balances_experts = false;
    enum status status = STATUS_OK;
    if (base) status = plan_document_check_model(options->plan_path, &session->model->config);
    if (status == STATUS_OK) status = plan_request_make(session, uses, options, training, base, &request);
    return plan_agreed(session, &request, status, plan);
}

enum status session_begin_decided(const char *model_folder, const struct plan *decided,
                                  const struct plan_options *options, const struct train_options *training,
                                  struct session *session, struct session_plan *plan) {
    struct plan_request request = plan_request_decided(decided, options, training);
    TRY(session_open(model_folder, options, &decided->recipe, session));
    return plan_agreed(session, &request, plan_request_add_stages(session, options, &request), plan);
}

enum status session_begin_step(const char *model_folder, const struct plan *decided, const char *origin,
                               const struct plan_options *options, struct session *session, struct session_plan *plan) {
    struct plan_request request;
    TRY(session_open(model_folder, options, &decided->recipe, session));
    enum status status;
    TRY_GOTO(status, plan_request_step(session, decided, origin, &request), failed);
    TRY_GOTO(status, plan_requested(session, &request, plan), failed);
    return STATUS_OK;
failed:
    session_close(session);
    return status;
}

enum status session_plan_renew(const struct session_plan *now, const struct policy *policy, const struct costs *costs,
                               struct session_plan *out) {
    struct plan_request request = now->request;
    request.plan = now->chosen;
    request.recipe_fixed = true;
    request.policy_fixed = policy != NULL;
    request.origin = NULL;
    request.costs = costs;
    request.plan.policy = policy ? *policy : policy_begin(&now->request, &now->chosen.policy);
    if (costs) { /* they are of its graph */
        request.plan.policy.tile_tokens = now->chosen.policy.tile_tokens;
        request.plan.policy.selective_recompute = now->chosen.policy.selective_recompute;
    }
    enum status made = session_plan_make(now->session, &request, out), status = made;
    if (made == STATUS_OK && costs) status = session_plan_measure(out);
    status = comm_agree(now->session->comm, status);
    if (made == STATUS_OK) out->request = now->request;
    if (made == STATUS_OK && status != STATUS_OK) session_plan_free(out);
    return status;
}

enum status session_plan_measure(struct session_plan *plan) {
    if (plan->costs.kernels) return STATUS_OK;
    return programs_measure_costs(plan->session, &plan->request, &plan->programs, &plan->costs);
}

enum status session_plan_find_costs(struct session_plan *plan) {
    if (plan->costs.kernels) return STATUS_OK;
    return machine_costs_find(&plan->session->machine, &plan->programs, &plan->costs);
}

/* The plan's step with the costs at an end of the device's range. */
static enum status predict_end(const struct session_plan *plan, enum roofline_case which, double *step_s) {
    struct stage_steps steps = {0};
    struct costs costs = {0};
    enum status status = machine_costs_described(&plan->session->machine, &plan->programs, which, &costs);
    if (status == STATUS_OK) status = stage_steps_make(programs_main(&plan->programs), &plan->chosen, &costs, &steps);
    *step_s = steps.step_s;
    stage_steps_free(&steps);
    costs_free(&costs);
    return status;
}

enum status session_plan_predict(struct session_plan *plan, struct step_summary *out) {
    *out = (struct step_summary){.step_s = 0};
    stage_steps_free(&plan->stages);
    TRY(stage_steps_make(programs_main(&plan->programs), &plan->chosen, &plan->costs, &plan->stages));
    step_summarise(&plan->stages.list[rank_place_stage(&plan->chosen.place)].timeline, &plan->costs, out);
    if (plan->session->machine.backend != &backend_described) return STATUS_OK;
    TRY(predict_end(plan, ROOFLINE_FAST, &out->fastest_s));
    return predict_end(plan, ROOFLINE_SLOW, &out->slowest_s);
}
