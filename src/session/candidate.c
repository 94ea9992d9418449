#include "session/candidate.h"

#include <math.h>

#include "base/terminal.h"
#include "compiler/program.h"
#include "ir/rewrite.h"
#include "plan/layout/pipeline.h"
#include "plan/layout/tensor_layout.h"
#include "session/machine_costs.h"

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

/* ---- input of its search ---- */

/* A program that does not train only reads parameters, so only parameters are sharded. */
static int keep_inference(struct partition *list, int count) {
    int kept = 0;
    for (int i = 0; i < count; i++)
        if (list[i].parameters == list[i].optimizer) list[kept++] = list[i];
    return kept;
}

/* Drops the partitions that are illegal for ranks of that place. */
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

/* Factor on the number of tries of a single-rank search. There are up to a hundred partitions, most of which bounds
 * rule out. */
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

/* A program has instructions for each micro-batch of a wave, so programs of few micro-batches compile faster. The
 * search may then compile this many. With 32 programs of one micro-batch the search of 36 layers takes 0.2 s. */
enum { FEW_MICRO_BATCHES = 4, COMPILED_SOON = 32 };

static int with_few_micro_batches(const struct plan *plan, int max) {
    int64_t micro_batches = recipe_share_micro_batches(&plan->recipe);
    if (rank_place_ranks(&plan->place) > 1 || micro_batches >= FEW_MICRO_BATCHES || max >= COMPILED_SOON) return max;
    int64_t more = max * FEW_MICRO_BATCHES / (micro_batches > 0 ? micro_batches : 1);
    return more < COMPILED_SOON ? (int)more : COMPILED_SOON;
}

/* Each try of a pipeline compiles one program per stage. */
static int max_compiled(const struct plan *plan, const struct graph *graph) {
    int max = search_max_compiled(graph) / rank_place_pipeline_parallel(&plan->place);
    return with_few_micro_batches(plan, max > COMPILED_FEWEST ? max : COMPILED_FEWEST);
}

/* For each micro-batch of a wave. A loss has the forward's operations. */
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
    AUTO_FREE struct partition *partitions = NULL;
    AUTO(costs_free) struct costs costs = {0};
    AUTO_FREE int64_t *none = mem_array(graph->nodes.count, sizeof *none);
    if (!none) return STATUS_FAILED;
    const struct workspace_table workspace = {.bytes = none, .count = (int)graph->nodes.count};
    TRY(machine_costs_bound(machine, graph, &candidate->plan, &costs));
    TRY(candidate_search_input(candidate, graph, &workspace, &costs, machine->capacity_bytes, &input, &partitions));
    return search_bound(&input, out);
}

/* ---- compile ---- */

/* Adds the plan's file (request->origin) to a BAD_INPUT: its policy is wrong for this model. */
static enum status candidate_name_origin(const struct plan_candidate *candidate, enum status status) {
    const char *origin = candidate->request->origin;
    return status == STATUS_BAD_INPUT && origin ? status_prefix(status, "%s", origin) : status;
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

/* For measuring operators that the cache lacks. The start of a run waits for it. */
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

/* ---- partition of tensors ---- */

/* One rank's plan of the whole model. The rates of the machine do not depend on how the model is split. */
static struct plan plan_alone(const struct plan *plan) {
    struct plan alone = *plan;
    alone.recipe.tensor_parallel = 1;
    alone.recipe.lanes = (struct lane_shape){1, 1};
    alone.place = (struct rank_place){.mesh = {1, 1}};
    alone.policy = (struct policy){.micro_batches_per_wave = 1};
    return alone;
}

static bool lacks_rates(const struct plan_candidate *candidate) {
    const struct recipe *recipe = &candidate->plan.recipe;
    bool known = recipe->layout_rates.flops_per_s > 0;
    return recipe->layout == TENSOR_LAYOUT_SOLVER && recipe_tensor_parallel(recipe) > 1 && !known;
}

static enum status measure_rates(const struct plan_candidate *candidate, struct machine_rates *out) {
    const struct session *session = candidate->session;
    struct plan alone = plan_alone(&candidate->plan);
    AUTO(programs_free) struct programs programs = {0};
    AUTO(machine_costs_free) struct machine_costs costs = {0};
    TRY(programs_compile(session, &candidate->request->set, &alone, &programs));
    const struct measuring measuring = {.budget_s = 1};
    TRY(machine_costs_measure(&session->machine, &programs, &measuring, &costs));
    *out = (struct machine_rates){.micro_batch_sequences = alone.recipe.micro_batch_sequences,
                                  .work = machine_costs_best_rates(&programs, &costs.costs)};
    memcpy(out->message, costs.costs.rates.links.message, sizeof out->message);
    return STATUS_OK;
}

/* Between neighbors: within a node if the group fits into one. */
static void find_link_rates(const struct plan *plan, const struct transfer_rate message[MESH_AXES],
                            struct layout_rates *out) {
    bool within = plan->place.mesh.per_node % recipe_tensor_parallel(&plan->recipe) == 0;
    const struct transfer_rate *rate = &message[within ? MESH_IN_NODE : MESH_ACROSS];
    out->latency_s = rate->latency_s;
    out->link_bytes_per_s = rate->bytes_per_s;
    if (rate->bytes_per_s <= 0) out->latency_s = 0, out->link_bytes_per_s = out->bytes_per_s / 10;
}

static void take_rates(const struct machine_rates *rates, struct plan_candidate *candidate) {
    struct plan *plan = &candidate->plan;
    plan->recipe.layout_rates = rates->work;
    find_link_rates(plan, rates->message, &plan->recipe.layout_rates);
    double stages = rank_place_pipeline_parallel(&plan->place);
    plan->recipe.layout_rates.device_bytes = stages * (double)candidate->session->machine.capacity_bytes[TIER_DEVICE];
}

enum status plan_fill_in_strategies(const struct session *session, struct plan *plan) {
    static const struct program_set set = {.uses = 1u << PROGRAM_LOSS};
    AUTO(graph_release) struct graph *graph = NULL;
    if (!tensor_layout_is_open(&plan->recipe)) return STATUS_OK;
    TRY(programs_build_whole(session, &set, plan, &graph));
    return tensor_layout_fill_in(graph, plan);
}

/* Layouts with the same micro-batch have the same rates, except for their links. */
static enum status find_rates(struct plan_candidate *candidate, struct known_rates *known) {
    struct machine_rates rates;
    if (!lacks_rates(candidate)) return STATUS_OK;
    for (size_t i = 0; i < known->list.count; i++)
        if (known->list.items[i].micro_batch_sequences == candidate->plan.recipe.micro_batch_sequences) {
            take_rates(&known->list.items[i], candidate);
            return STATUS_OK;
        }
    TRY(measure_rates(candidate, &rates));
    take_rates(&rates, candidate);
    return vec_push(&known->list, rates);
}

enum status candidate_solve(struct plan_candidate *candidate, struct known_rates *known) {
    TRY(find_rates(candidate, known));
    return plan_fill_in_strategies(candidate->session, &candidate->plan);
}

/* ---- where a pipeline is cut ---- */

/* Waves of the rank with the largest share. */
static enum status count_waves(const struct plan *plan, int64_t *waves) {
    AUTO(lane_shares_free) struct lane_shares shares = {0};
    int64_t micro_batches = 1;
    TRY(lane_shares_create(&plan->recipe, &plan->place, &shares));
    for (size_t i = 0; i < shares.list.count; i++)
        if (shares.list.items[i].micro_batches > micro_batches) micro_batches = shares.list.items[i].micro_batches;
    *waves = (micro_batches + plan->policy.micro_batches_per_wave - 1) / plan->policy.micro_batches_per_wave;
    return STATUS_OK;
}

/* `limited`: each stage fits the device, if any cut does. */
static enum status cut(const struct plan_candidate *candidate, const struct block_costs *costs, int32_t virtual_stages,
                       bool limited, char text[POLICY_SPANS_BYTES]) {
    int64_t capacity = candidate->session->machine.capacity_bytes[TIER_DEVICE];
    int32_t stages = rank_place_pipeline_parallel(&candidate->plan.place);
    struct span_request request = {
        .stages = stages, .count = stages * virtual_stages, .device_bytes = limited ? capacity : INT64_MAX};
    TRY(count_waves(&candidate->plan, &request.waves));
    return stage_spans_choose(costs, &request, text);
}

/* Cuts before anything is compiled, into request->virtual_stages spans per stage (0: one). */
static enum status cut_by_flops(struct plan_candidate *candidate, const struct graph *graph, bool limited) {
    AUTO(block_costs_free) struct block_costs costs = {0};
    struct policy *policy = &candidate->plan.policy;
    int64_t requested = candidate->request->virtual_stages;
    TRY(block_costs_create(graph, policy, &costs));
    return cut(candidate, &costs, requested > 0 ? (int32_t)requested : 1, limited, policy->spans);
}

/* The kernels' seconds include tensor-parallel collectives within a block (costs_set_collectives). */
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

static enum status try_cut(const struct plan_candidate *candidate, const struct block_costs *costs,
                           int32_t virtual_stages, struct tried_cut *out) {
    struct plan tried = candidate->plan;
    AUTO(stage_steps_free) struct stage_steps steps = {0};
    TRY(cut(candidate, costs, virtual_stages, true, tried.policy.spans));
    TRY(stage_steps_make(programs_main(&candidate->programs), &tried, &candidate->costs, &steps));
    out->step_s = steps.step_s;
    snprintf(out->spans, sizeof out->spans, "%s", tried.policy.spans);
    return STATUS_OK;
}

/* Megatron-LM's users choose 2 to 4. Each further span adds messages. */
enum { VIRTUAL_STAGES_MAX = 4 };

static enum status try_cuts(const struct plan_candidate *candidate, const struct block_costs *costs,
                            struct tried_cut *best) {
    int64_t requested = candidate->request->virtual_stages, min = requested > 0 ? requested : 1,
            max = requested > 0 ? requested : VIRTUAL_STAGES_MAX;
    int stages = rank_place_pipeline_parallel(&candidate->plan.place);
    for (int64_t virtual_stages = min; virtual_stages <= max; virtual_stages++) {
        struct tried_cut tried;
        if (virtual_stages > min && virtual_stages * stages > costs->blocks) break;
        TRY(try_cut(candidate, costs, (int32_t)virtual_stages, &tried));
        if (virtual_stages == min || tried.step_s < best->step_s) *best = tried;
    }
    return STATUS_OK;
}

/* Cuts by the seconds of its blocks, into the number of spans per stage with the shortest simulated step. Costs are
 * known only after compilation: they are those of the previous cut. */
static enum status cut_by_seconds(struct plan_candidate *candidate) {
    const struct graph *graph = programs_main(&candidate->programs)->graph;
    AUTO(block_costs_free) struct block_costs costs = {0};
    struct tried_cut best;
    TRY(candidate_measure(candidate));
    TRY(block_costs_create(graph, &candidate->plan.policy, &costs));
    take_seconds(graph, &candidate->costs, &costs);
    TRY(try_cuts(candidate, &costs, &best));
    snprintf(candidate->plan.policy.spans, POLICY_SPANS_BYTES, "%s", best.spans);
    programs_free(&candidate->programs);
    return candidate_compile(candidate);
}

static bool is_uncut(const struct plan_candidate *candidate) {
    return rank_place_pipeline_parallel(&candidate->plan.place) > 1 && !candidate->plan.policy.spans[0];
}

enum status candidate_cut_stages(struct plan_candidate *candidate, const struct graph *graph) {
    return is_uncut(candidate) ? cut_by_flops(candidate, graph, true) : STATUS_OK;
}

static enum status cut_first(struct plan_candidate *candidate, bool limited) {
    AUTO(graph_release) struct graph *graph = NULL;
    candidate->plan.policy.spans[0] = '\0';
    TRY(candidate_build_graph(candidate, &graph));
    return cut_by_flops(candidate, graph, limited);
}

/* A pipeline that will be cut again by seconds is first cut evenly. A cut by memory would put most of the collectives
 * in one stage. */
static enum status compile_cut(struct plan_candidate *candidate, bool uncut, bool again) {
    if (uncut) TRY(candidate_name_origin(candidate, cut_first(candidate, !again)));
    TRY(candidate_compile(candidate));
    return again ? cut_by_seconds(candidate) : STATUS_OK;
}

/* ---- micro-batches ---- */

/* Doubles the micro-batch if each lane's sequences can be divided into micro-batches of that size. */
static bool double_micro_batch(struct plan_candidate *candidate) {
    const struct plan_request *request = candidate->request;
    struct recipe *recipe = &candidate->plan.recipe;
    int64_t sequences = 2 * recipe->micro_batch_sequences;
    if (request->recipe_fixed || request->micro_batch_fixed) return false;
    if (recipe->batch % (sequences * lane_shape_lanes(&recipe->lanes)) != 0) return false;
    recipe->micro_batch_sequences = sequences;
    return true;
}

/* A pipeline's programs have collectives for each micro-batch. NO_FIT: there are too many. */
static enum status compile_first(struct plan_candidate *candidate) {
    const struct plan_request *request = candidate->request;
    bool uncut = is_uncut(candidate);
    bool again = uncut && !request->policy_fixed && program_set_has(&request->set, PROGRAM_STEP);
    struct recipe *recipe = &candidate->plan.recipe;
    int64_t before = recipe->micro_batch_sequences;
    enum status status = compile_cut(candidate, uncut, again);
    while (status == STATUS_NO_FIT && double_micro_batch(candidate)) {
        status_clear();
        costs_free(&candidate->costs); /* of smaller micro-batches */
        status = compile_cut(candidate, uncut, again);
    }
    if (status == STATUS_NO_FIT) recipe->micro_batch_sequences = before;
    bool one_of_several = candidate->faster_than_s > 0;
    if (recipe->micro_batch_sequences > before && !one_of_several)
        log_note("uses micro-batches of %" PRId64 " sequences instead of %" PRId64
                 ": smaller ones need more than %d sends and collectives",
                 recipe->micro_batch_sequences, before, COMM_OPERATIONS_MAX);
    return status;
}

/* ---- selective recomputation ---- */

/* Selective recomputation is used for a step that fits if it costs next to no time. Two counts decide.
 * - It recomputes at least SELECTIVE_RECOMPUTE_FLOPS_PER_BYTE FLOPs of the step for each byte that is read or written
 *   once more.
 * - It saves at least SELECTIVE_RECOMPUTE_PART_MIN of the device's bytes. In fp32 it is
 *   SELECTIVE_RECOMPUTE_PART_MIN_FP32: there, GEMMs take a byte's time for fewer FLOPs than bf16 GEMMs with tiles.
 *
 * A step that does not fit always uses it: moving tensors or recomputing whole blocks costs more. */
enum {
    SELECTIVE_RECOMPUTE_FLOPS_PER_BYTE = 1000,
    SELECTIVE_RECOMPUTE_PART_MIN = 20,
    SELECTIVE_RECOMPUTE_PART_MIN_FP32 = 50
};

/* Costs that a run has fitted belong to its graph. Bounds of rank layouts belong to the plain graph. */
static bool may_recompute(const struct plan_candidate *candidate) {
    const struct plan_request *request = candidate->request;
    return program_set_has(&request->set, PROGRAM_STEP) && policy_is_plain(&candidate->plan.policy) &&
           !candidate->plan.policy.selective_recompute && candidate->faster_than_s == 0 && !request->costs;
}

static enum status choose_selective_recompute(struct plan_candidate *candidate) {
    struct selective_recompute_counts counts;
    if (!may_recompute(candidate)) return STATUS_OK;
    TRY(graph_selective_recompute_count(programs_main(&candidate->programs)->graph, &counts));
    bool fitted = candidate_fits(candidate), light = counts.flops >= SELECTIVE_RECOMPUTE_FLOPS_PER_BYTE * counts.bytes;
    if (counts.bytes == 0 || (fitted && !light)) return STATUS_OK;
    struct plan_candidate other = candidate_begin(candidate->session, candidate->request, &candidate->plan);
    other.requested = candidate->requested;
    other.plan.policy.selective_recompute = true;
    TRY(candidate_compile(&other));
    int64_t before = candidate->programs.tier_bytes[TIER_DEVICE], bytes = other.programs.tier_bytes[TIER_DEVICE];
    int64_t part =
        candidate->plan.recipe.dtype == DTYPE_F32 ? SELECTIVE_RECOMPUTE_PART_MIN_FP32 : SELECTIVE_RECOMPUTE_PART_MIN;
    bool saves = before - bytes >= (fitted ? before / part : 1);
    candidate_free(saves ? candidate : &other); /* drops the costs by which a pipeline was cut, too: they belong to its
                                                 * graph */
    if (saves) *candidate = other;
    return STATUS_OK;
}

/* ---- all of it ---- */

struct policy policy_begin(const struct plan_request *request, const struct policy *policy) {
    struct policy plain = {.micro_batches_per_wave = request->micro_batches_fixed
                                                         ? policy->micro_batches_per_wave
                                                         : setting_table[SETTING_micro_batches_per_wave].int_value,
                           .flat = request->collectives_fixed && policy->flat};
    if (request->partition_fixed) plain.partition = policy->partition;
    memcpy(plain.spans, policy->spans, sizeof plain.spans);
    return plain;
}

/* Starts again if a policy was found for other memory and its step does not fit here. Tiles and selective recomputation
 * are open again. */
static enum status begin_again(struct plan_candidate *candidate) {
    struct policy *policy = &candidate->plan.policy;
    candidate->requested = *policy = policy_begin(candidate->request, policy);
    policy->partition = (struct partition){0};
    programs_free(&candidate->programs);
    return candidate_compile(candidate);
}

/* Chunks of a partition are chosen last. At first each rank has all of them. */
enum status candidate_fill_in(struct plan_candidate *candidate, struct known_rates *known) {
    const struct plan_request *request = candidate->request;
    bool open = !request->policy_fixed && policy_is_plain(&candidate->plan.policy);
    if (open) candidate->plan.policy.partition = (struct partition){0};
    TRY(candidate_solve(candidate, known));
    TRY(compile_first(candidate));
    if (request->policy_fixed) return STATUS_OK;
    if (!open && !request->costs && !candidate_fits(candidate)) TRY(begin_again(candidate));
    return choose_selective_recompute(candidate);
}
