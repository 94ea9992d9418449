#include "session/evaluate.h"

#include "compiler/collectives.h"
#include "search/search.h"
#include "session/machine_costs.h"

/* ---- a pipeline's stages ---- */

static enum status compile_stages(const struct executable *main, const struct plan *plan, struct stage_steps *steps) {
    const struct comm_group stages = rank_place_stage_group(&plan->place);
    enum status status = STATUS_OK;
    for (int stage = 0; stage < steps->count && status == STATUS_OK; stage++) {
        struct plan own = *plan;
        own.place.rank = mesh_group_rank(&stages, stage);
        status = program_compile(main->graph, &own, &main->workspace, NULL, &steps->list[stage].program);
    }
    return status;
}

static enum status simulate_all(const struct executable *main, const struct costs *costs, struct stage_steps *steps) {
    size_t count = (size_t)steps->count;
    const struct program **programs = mem_array(count, sizeof *programs);
    struct timeline *timelines = mem_array(count, sizeof *timelines);
    enum status status = programs && timelines ? STATUS_OK : STATUS_FAILED;
    for (size_t stage = 0; stage < count && status == STATUS_OK; stage++)
        programs[stage] = steps->list[stage].program ? steps->list[stage].program : main->program;
    if (status == STATUS_OK) status = simulate_stages(programs, steps->count, costs, timelines);
    for (size_t stage = 0; stage < count && status == STATUS_OK; stage++)
        steps->list[stage].timeline = timelines[stage];
    mem_free(programs);
    mem_free(timelines);
    return status;
}

static double compute_seconds(const struct timeline *timeline) {
    struct timeline_stream streams[STREAM_ROLE_COUNT];
    timeline_summarise(timeline, streams);
    for (int s = 0; s < timeline->program->streams; s++)
        if (streams[s].role == STREAM_COMPUTE) return streams[s].busy_s;
    return 0;
}

static void summarise(struct stage_steps *steps) {
    double compute_s = 0;
    for (int stage = 0; stage < steps->count; stage++) {
        struct stage_step *step = &steps->list[stage];
        if (step->timeline.step_s > steps->step_s) steps->step_s = step->timeline.step_s;
        for (enum tier tier = 0; tier < TIER_COUNT; tier++)
            step->tier_bytes[tier] = step->timeline.program->tier_bytes[tier];
        compute_s += step->compute_s = compute_seconds(&step->timeline);
    }
    for (int stage = 0; stage < steps->count; stage++)
        steps->list[stage].timeline.step_s = steps->step_s;
    steps->bubble = steps->step_s > 0 ? 1 - compute_s / (steps->step_s * steps->count) : 0;
}

enum status stage_steps_make(const struct executable *main, const struct plan *plan, const struct costs *costs,
                             struct stage_steps *out) {
    int count = rank_place_pipeline_parallel(&plan->place);
    *out = (struct stage_steps){.count = count, .list = mem_array((size_t)count, sizeof *out->list)};
    if (!out->list) return STATUS_FAILED;
    if (count > 1) TRY(compile_stages(main, plan, out));
    TRY(simulate_all(main, costs, out));
    summarise(out);
    return STATUS_OK;
}

void stage_steps_free(struct stage_steps *steps) {
    for (int stage = 0; steps->list && stage < steps->count; stage++) {
        timeline_free(&steps->list[stage].timeline);
        program_free(steps->list[stage].program);
    }
    mem_free(steps->list);
    *steps = (struct stage_steps){0};
}

/* ---- a candidate ---- */

struct rank_place candidate_place(const struct session *session, const struct rank_place *requested) {
    const struct mesh one = {1, 1};
    struct rank_place place = session_place(session, requested->mesh.nodes > 0 ? &requested->mesh : &one);
    place.tensor_parallel = requested->tensor_parallel;
    place.pipeline_parallel = requested->pipeline_parallel;
    return place;
}

struct plan_candidate candidate_begin(const struct session *session, const struct plan_request *request,
                                      const struct plan *plan) {
    struct plan_candidate candidate = {
        .session = session, .request = request, .plan = *plan, .requested = plan->policy};
    candidate.plan.place = candidate_place(session, &plan->place);
    return candidate;
}

void candidate_free(struct plan_candidate *candidate) {
    costs_free(&candidate->costs);
    search_result_free(&candidate->search);
    programs_free(&candidate->programs);
    candidate->fastest = (struct trial){.compiled = false};
}

enum status candidate_build_graph(const struct plan_candidate *candidate, struct graph **out) {
    const struct program_set *set = &candidate->request->set;
    enum program_use main = 0;
    while (!program_set_has(set, main))
        main++;
    return program_build_graph(candidate->session, set, main, &candidate->plan, out);
}

double candidate_seconds(const struct plan_candidate *candidate, const struct trial *trial) {
    return candidate->request->objective == OBJECTIVE_SUM ? trial->sum_s : trial->step_s;
}

enum status candidate_check_collectives(const struct plan_candidate *candidate) {
    const struct rank_place *place = &candidate->plan.place;
    bool flat = candidate->request->collectives_fixed && candidate->requested.flat;
    if (!flat || !place->on_device || rank_place_ranks(place) == 1) return STATUS_OK;
    return status_hint(status_set(STATUS_BAD_INPUT, "--collectives flat: the ranks' GPUs communicate by NCCL, which "
                                                    "chooses its ways itself"),
                       "leave it out, or send all by way of the host's memory: --gpu-collectives host");
}

/* ---- what its search is told ---- */

/* What a program that trains nothing reads are parameters, so they alone are cut. */
static int keep_inference(struct partition *list, int count) {
    int kept = 0;
    for (int i = 0; i < count; i++)
        if (list[i].parameters == list[i].optimizer) list[kept++] = list[i];
    return kept;
}

/* What is refused for ranks of that place is not tried. */
static int keep_legal(const struct plan *plan, struct partition *list, int count) {
    struct plan own = *plan;
    int kept = 0;
    for (int i = 0; i < count; i++) {
        own.policy.partition = list[i];
        if (plan_check(&own) == STATUS_OK) list[kept++] = list[i];
    }
    status_clear();
    return kept;
}

/* So many times the tries of one rank's search: there are up to a hundred partitions, most of which are bounded
 * away. */
enum { RANKS_TRY_MORE = 4, COMPILED_FEWEST = 4 };

static enum status list_partitions(const struct plan_candidate *candidate, struct search_input *input,
                                   struct partition **partitions) {
    const struct plan_request *request = candidate->request;
    const struct rank_place *place = &candidate->plan.place;
    if (rank_place_data(place) == 1) return STATUS_OK;
    input->partitions = &candidate->requested.partition;
    input->partition_count = 1;
    const struct comm_group all = rank_place_data_group(place);
    const struct mesh data = rank_place_data_mesh(place);
    bool differs = !place->on_device && links_flat_differs(&place->mesh, &all, place->in_place);
    if (!request->collectives_fixed && differs) input->collectives = COLLECTIVES_EITHER;
    if (request->collectives_fixed && candidate->requested.flat) input->collectives = COLLECTIVES_FLAT;
    if (request->partition_fixed) return STATUS_OK;
    TRY(partition_list(&data, partitions, &input->partition_count));
    input->partition_count = keep_legal(&candidate->plan, *partitions, input->partition_count);
    input->max_compiled *= RANKS_TRY_MORE;
    if (!program_set_has(&request->set, PROGRAM_STEP))
        input->partition_count = keep_inference(*partitions, input->partition_count);
    input->partitions = *partitions;
    return STATUS_OK;
}

/* A program has instructions for each micro-batch of a wave, so those of few micro-batches are compiled sooner: up to
 * so many then. With 32 programs of one micro-batch the search of 36 layers takes 0.2 s. */
enum { FEW_MICRO_BATCHES = 4, COMPILED_SOON = 32 };

static int with_few_micro_batches(const struct plan *plan, int max) {
    int64_t micro_batches = recipe_share_micro_batches(&plan->recipe);
    if (rank_place_ranks(&plan->place) > 1 || micro_batches >= FEW_MICRO_BATCHES || max >= COMPILED_SOON) return max;
    int64_t more = max * FEW_MICRO_BATCHES / (micro_batches > 0 ? micro_batches : 1);
    return more < COMPILED_SOON ? (int)more : COMPILED_SOON;
}

/* Of a pipeline each try is as many programs as there are stages. */
static int max_compiled(const struct plan *plan, const struct graph *graph) {
    int max = search_max_compiled(graph) / rank_place_pipeline_parallel(&plan->place);
    return with_few_micro_batches(plan, max > COMPILED_FEWEST ? max : COMPILED_FEWEST);
}

/* For each micro-batch of a wave: a loss has the forward's operations. */
static int64_t operations_beside(const struct plan_candidate *candidate, const struct graph *graph) {
    int64_t count = 0;
    if (!program_set_has(&candidate->request->set, PROGRAM_STEP) ||
        !program_set_has(&candidate->request->set, PROGRAM_LOSS))
        return 0;
    for (size_t i = 0; i < graph->nodes.count; i++)
        count += graph->nodes.items[i]->phase == PHASE_FORWARD && graph->nodes.items[i]->op->collective;
    return count;
}

static struct search_input input_of(const struct plan_candidate *candidate, const struct graph *graph,
                                    const struct workspace_table *workspace, const struct costs *costs,
                                    const int64_t capacity_bytes[TIER_COUNT]) {
    const struct plan *plan = &candidate->plan;
    struct search_input input = {.graph = graph,
                                 .workspace = workspace,
                                 .costs = costs,
                                 .recipe = &plan->recipe,
                                 .place = plan->place,
                                 .tile_tokens = plan->policy.tile_tokens,
                                 .selective_recompute = plan->policy.selective_recompute,
                                 .spans = plan->policy.spans,
                                 .micro_batches_per_wave =
                                     candidate->request->micro_batches_fixed ? plan->policy.micro_batches_per_wave : 0,
                                 .operations_beside = operations_beside(candidate, graph),
                                 .objective = candidate->request->objective,
                                 .faster_than_s = candidate->faster_than_s,
                                 .max_compiled = max_compiled(plan, graph)};
    for (enum tier tier = 0; tier < TIER_COUNT; tier++)
        input.capacity_bytes[tier] = capacity_bytes[tier];
    return input;
}

enum status candidate_search_input(const struct plan_candidate *candidate, const struct graph *graph,
                                   const struct workspace_table *workspace, const struct costs *costs,
                                   const int64_t capacity_bytes[TIER_COUNT], struct search_input *out,
                                   struct partition **partitions) {
    *partitions = NULL;
    *out = input_of(candidate, graph, workspace, costs, capacity_bytes);
    return list_partitions(candidate, out, partitions);
}

/* ---- bound ---- */

enum status candidate_bound(const struct plan_candidate *candidate, const struct graph *graph,
                            struct search_bound *out) {
    const struct machine *machine = &candidate->session->machine;
    struct search_input input;
    struct partition *partitions = NULL;
    struct costs costs;
    int64_t *none = mem_array(graph->nodes.count, sizeof *none);
    const struct workspace_table workspace = {.bytes = none, .count = (int)graph->nodes.count};
    enum status status = machine_costs_bound(machine, graph, &candidate->plan, &costs);
    if (status == STATUS_OK && !none) status = STATUS_FAILED;
    if (status == STATUS_OK)
        status =
            candidate_search_input(candidate, graph, &workspace, &costs, machine->capacity_bytes, &input, &partitions);
    if (status == STATUS_OK) status = search_bound(&input, out);
    mem_free(partitions);
    mem_free(none);
    costs_free(&costs);
    return status;
}

/* ---- compile ---- */

enum status candidate_name_origin(const struct plan_candidate *candidate, enum status status) {
    const char *origin = candidate->request->origin;
    if (status != STATUS_BAD_INPUT || !origin) return status;
    char hint[256];
    snprintf(hint, sizeof hint, "%s", status_hint_text());
    status = status_prefix(status, "%s", origin);
    return hint[0] ? status_hint(status, "%s", hint) : status;
}

enum status candidate_compile(struct plan_candidate *candidate) {
    enum status status =
        programs_compile(candidate->session, &candidate->request->set, &candidate->plan, &candidate->programs);
    candidate->min_bytes = candidate->programs.tier_bytes[TIER_DEVICE];
    return candidate_name_origin(candidate, status);
}

bool candidate_fits(const struct plan_candidate *candidate) {
    for (enum tier tier = 0; tier < TIER_COUNT; tier++)
        if (candidate->programs.tier_bytes[tier] > candidate->session->machine.capacity_bytes[tier]) return false;
    return true;
}

/* ---- simulate ---- */

/* For measuring operators that the cache lacks; the start of a run waits for it. */
static const double OPERATORS_BUDGET_S = 1.0;

enum status programs_measure_costs(const struct session *session, const struct plan_request *request,
                                   const struct programs *programs, struct costs *out) {
    const struct measuring measuring = {.budget_s = OPERATORS_BUDGET_S};
    struct machine_costs measured;
    if (request->costs) return costs_copy(request->costs, out);
    TRY(machine_costs_measure(&session->machine, programs, &measuring, &measured));
    *out = measured.costs;
    profile_report_free(&measured.report);
    return STATUS_OK;
}

enum status candidate_measure(struct plan_candidate *candidate) {
    if (candidate->costs.kernels) return STATUS_OK;
    return programs_measure_costs(candidate->session, candidate->request, &candidate->programs, &candidate->costs);
}

enum status candidate_simulate(struct plan_candidate *candidate, struct trial *out) {
    const struct executable *main = programs_main(&candidate->programs);
    TRY(candidate_measure(candidate));
    if (candidate->fastest.compiled && candidate->fastest.step_s > 0) {
        *out = candidate->fastest;
        return STATUS_OK;
    }
    struct search_input input = input_of(candidate, main->graph, &main->workspace, &candidate->costs,
                                         candidate->session->machine.capacity_bytes);
    *out = (struct trial){.policy = candidate->plan.policy};
    return policy_measure(&input, 0, out, NULL);
}
