#include <stdio.h>

#include "session/plan_policy.h"

#include "base/size.h"
#include "compiler/collectives.h"
#include "search/measure.h"

/* The plan whose policy is to be found, the tiers that it has to fit, and what the search is told of its main
 * program. */
struct choosing {
    struct session_plan *plan;
    const int64_t *capacity_bytes;
    struct search_input input;
    struct partition *partitions; /* of the input, where the search may choose */
    bool fits_as_is;              /* the plan that was asked for */
};

/* Several ranks choose how to share states also where each could have all of them: with less memory for these there is
 * more for activations. A program that trains nothing does so only where it must, or is told to. */
static bool chooses_partition(const struct session_plan *plan) {
    const struct plan_request *request = &plan->request;
    bool trains = program_set_has(&request->set, PROGRAM_STEP);
    bool partitioned = partition_cuts(&request->plan.policy.partition);
    return rank_place_data(&plan->chosen.place) > 1 && policy_is_plain(&request->plan.policy) &&
           (trains || partitioned);
}

/* Whether the tiers below the device hold that much. */
static bool fits_below(const struct choosing *choosing, const int64_t tier_bytes[TIER_COUNT]) {
    for (enum tier tier = TIER_HOST; tier < TIER_COUNT; tier++)
        if (tier_bytes[tier] > choosing->capacity_bytes[tier]) return false;
    return true;
}

static bool fits(const struct choosing *choosing, const int64_t tier_bytes[TIER_COUNT]) {
    return fits_below(choosing, tier_bytes) && tier_bytes[TIER_DEVICE] <= choosing->capacity_bytes[TIER_DEVICE];
}

/* Whether the programs of a pipeline's other stages fit too: each has weights of its own. */
static enum status fit_stages(const struct choosing *choosing, const struct plan *plan, bool *fitted) {
    const struct session_plan *of = choosing->plan;
    struct plan other = *plan;
    int stages = rank_place_pipeline_parallel(&plan->place), between = rank_place_ranks(&plan->place) / stages;
    for (int stage = 1; stage < stages && *fitted; stage++) {
        struct programs made;
        other.place.rank = (plan->place.rank + stage * between) % (stages * between);
        TRY(programs_compile(of->session, &of->request.set, &other, &made));
        *fitted = fits(choosing, made.tier_bytes);
        programs_free(&made);
    }
    return STATUS_OK;
}

/* Compiles all programs under the policy, but for the main one where `main` has it, which is taken (else NULL); they
 * become the plan's if they fit. */
static enum status try_policy(struct choosing *choosing, const struct policy *policy, struct program **main,
                              bool *fitted) {
    struct session_plan *plan = choosing->plan;
    struct plan tried = plan->chosen;
    tried.policy = *policy;
    snprintf(tried.policy.spans, sizeof tried.policy.spans, "%s", plan->chosen.policy.spans);
    struct recompiled made;
    *fitted = false;
    enum status status = programs_recompile(&plan->programs, &tried, main, &made);
    if (status == STATUS_NO_FIT) return STATUS_OK; /* it has too many operations between ranks */
    TRY(status);
    int64_t bytes = made.tier_bytes[TIER_DEVICE];
    if (fits_below(choosing, made.tier_bytes) && bytes < plan->min_bytes) plan->min_bytes = bytes;
    *fitted = fits(choosing, made.tier_bytes);
    status = fit_stages(choosing, &tried, fitted);
    if (status != STATUS_OK) *fitted = false;
    if (*fitted) {
        programs_replace(&plan->programs, &made);
        plan->chosen = tried;
    } else {
        recompiled_free(&made);
    }
    return status;
}

static double objective_of(const struct session_plan *plan, const struct trial *trial) {
    return plan->request.objective == OBJECTIVE_SUM ? trial->sum_s : trial->step_s;
}

/* Compiles the programs of the fastest policies that were found, where these are fast enough. */
static enum status try_pareto_front(struct choosing *choosing, bool *fitted) {
    struct session_plan *plan = choosing->plan;
    double enough_s = plan->request.faster_than_s;
    for (size_t i = 0; i < plan->search.pareto_front.count && !*fitted; i++) {
        if (enough_s > 0 && objective_of(plan, &plan->search.pareto_front.items[i]) >= enough_s) break;
        TRY(try_policy(choosing, &plan->search.pareto_front.items[i].policy, i == 0 ? &plan->search.best : NULL,
                       fitted));
        if (*fitted) plan->fastest = plan->search.pareto_front.items[i];
    }
    return STATUS_OK;
}

static enum status try_fastest(struct choosing *choosing, bool *fitted) {
    TRY(session_plan_measure(choosing->plan));
    TRY(search_policies(&choosing->input, &choosing->plan->search));
    return try_pareto_front(choosing, fitted);
}

/* The policy that takes least, where the search found none that fits within its tries. */
static enum status try_small(struct choosing *choosing, const struct trial *small, bool *fitted) {
    struct trial measured = *small;
    TRY(policy_measure(&choosing->input, 0, &measured, NULL));
    if (measured.step_s <= 0) return STATUS_OK;
    TRY(vec_push(&choosing->plan->search.pareto_front, measured));
    return try_pareto_front(choosing, fitted);
}

/* With no regard to what the device holds of the main program: others of the set may need more. */
static enum status try_min_memory(struct choosing *choosing) {
    struct search_input any = choosing->input;
    struct trial min;
    bool fitted;
    any.capacity_bytes[TIER_DEVICE] = 0;
    TRY(search_min_memory(&any, &min));
    return min.compiled ? try_policy(choosing, &min.policy, NULL, &fitted) : STATUS_OK;
}

/* First the policy that takes least: where even that does not fit, there is no need to measure. */
static enum status try_all(struct choosing *choosing, bool fastest) {
    const struct search_input *input = &choosing->input;
    struct trial small;
    bool fitted = false, free = !choosing->plan->request.partition_fixed;
    if (fastest && free && choosing->fits_as_is) return try_fastest(choosing, &fitted);
    struct search_input sizes = *input; /* what is smallest is found by trying: as often for a pipeline */
    sizes.max_compiled *= rank_place_pipeline_parallel(&input->place);
    TRY(search_min_memory(&sizes, &small));
    if (!small.compiled) return STATUS_OK;
    bool one_of_several = choosing->plan->request.faster_than_s > 0;
    bool hopeless = small.tier_bytes[TIER_DEVICE] > input->capacity_bytes[TIER_DEVICE];
    if (hopeless && one_of_several) choosing->plan->min_bytes = small.tier_bytes[TIER_DEVICE];
    if (hopeless) return one_of_several ? STATUS_OK : try_policy(choosing, &small.policy, NULL, &fitted);
    if (fastest) TRY(try_fastest(choosing, &fitted));
    if (fastest && one_of_several && choosing->plan->search.pareto_front.count == 0)
        TRY(try_small(choosing, &small, &fitted));
    return fitted || one_of_several ? STATUS_OK : try_min_memory(choosing);
}

enum status plan_policy_check_ways(const struct plan_request *request, const struct rank_place *place) {
    bool flat = request->collectives_fixed && request->plan.policy.flat;
    if (!flat || !place->on_device || rank_place_ranks(place) == 1) return STATUS_OK;
    return status_hint(status_set(STATUS_BAD_INPUT, "--collectives flat: the ranks' GPUs communicate by NCCL, which "
                                                    "chooses its ways itself"),
                       "leave it out, or send all by way of the host's memory: --gpu-collectives host");
}

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

static enum status list_partitions(struct choosing *choosing) {
    const struct session_plan *plan = choosing->plan;
    struct search_input *input = &choosing->input;
    bool trains = program_set_has(&plan->request.set, PROGRAM_STEP);
    if (rank_place_data(&plan->chosen.place) == 1) return STATUS_OK;
    input->partitions = &plan->request.plan.policy.partition;
    input->partition_count = 1;
    const struct rank_place *place = &plan->chosen.place;
    const struct comm_group all = rank_place_data_group(place);
    const struct mesh data = rank_place_data_mesh(place);
    bool differs = !place->on_device && links_flat_differs(&place->mesh, &all, place->in_place);
    if (!plan->request.collectives_fixed && differs) input->collectives = COLLECTIVES_EITHER;
    if (plan->request.collectives_fixed && plan->request.plan.policy.flat) input->collectives = COLLECTIVES_FLAT;
    if (plan->request.partition_fixed) return STATUS_OK;
    TRY(partition_list(&data, &choosing->partitions, &input->partition_count));
    input->partition_count = keep_legal(&plan->chosen, choosing->partitions, input->partition_count);
    input->max_compiled *= RANKS_TRY_MORE;
    if (!trains) input->partition_count = keep_inference(choosing->partitions, input->partition_count);
    input->partitions = choosing->partitions;
    return STATUS_OK;
}

/* A partition that was asked for is no other, even where that would fit. */
static enum status check_requested_partition(const struct session_plan *plan) {
    const struct partition *requested = &plan->request.plan.policy.partition;
    char text[PARTITION_BYTES], size[SIZE_TEXT];
    if (!plan->request.partition_fixed || partition_equal(requested, &plan->chosen.policy.partition)) return STATUS_OK;
    if (plan->search.crowded > 0)
        return status_hint(status_set(STATUS_NO_FIT,
                                      "no plan fits: with the partition %s there are more than %d operations "
                                      "between ranks",
                                      partition_print(requested, &plan->chosen.place.mesh, text), COMM_OPERATIONS_MAX),
                           COLLECTIVES_FEWER);
    return status_hint(status_set(STATUS_NO_FIT, "no plan fits: with the partition %s the device tier needs %s",
                                  partition_print(requested, &plan->chosen.place.mesh, text),
                                  size_print(plan->min_bytes, size)),
                       "give it more by --device-memory SIZE, or leave out --partition");
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
static int64_t operations_beside(const struct session_plan *plan, const struct graph *graph) {
    int64_t count = 0;
    if (!program_set_has(&plan->request.set, PROGRAM_STEP) || !program_set_has(&plan->request.set, PROGRAM_LOSS))
        return 0;
    for (size_t i = 0; i < graph->nodes.count; i++)
        count += graph->nodes.items[i]->phase == PHASE_FORWARD && graph->nodes.items[i]->op->collective;
    return count;
}

static void fill_input(struct choosing *choosing, const struct graph *graph, const struct workspace_table *workspace,
                       const struct costs *costs) {
    const struct session_plan *plan = choosing->plan;
    choosing->input = (struct search_input){
        .graph = graph,
        .workspace = workspace,
        .costs = costs,
        .recipe = &plan->chosen.recipe,
        .place = plan->chosen.place,
        .tile_tokens = plan->chosen.policy.tile_tokens,
        .selective_recompute = plan->chosen.policy.selective_recompute,
        .spans = plan->chosen.policy.spans,
        .micro_batches_per_wave = plan->request.micro_batches_fixed ? plan->chosen.policy.micro_batches_per_wave : 0,
        .operations_beside = operations_beside(plan, graph),
        .objective = plan->request.objective,
        .faster_than_s = plan->request.faster_than_s,
        .max_compiled = max_compiled(&plan->chosen, graph)};
    for (enum tier tier = 0; tier < TIER_COUNT; tier++)
        choosing->input.capacity_bytes[tier] = choosing->capacity_bytes[tier];
}

static enum status choose(struct session_plan *plan, const int64_t capacity_bytes[TIER_COUNT], bool fastest) {
    struct choosing choosing = {.plan = plan, .capacity_bytes = capacity_bytes};
    bool fitted = fits(&choosing, plan->programs.tier_bytes);
    plan->fastest = (struct trial){.compiled = false};
    TRY(fit_stages(&choosing, &plan->chosen, &fitted));
    choosing.fits_as_is = fitted;
    if (fitted && !(fastest && chooses_partition(plan))) return STATUS_OK;
    const struct executable *main = programs_main(&plan->programs);
    fill_input(&choosing, main->graph, &main->workspace, &plan->costs);
    enum status status = list_partitions(&choosing);
    if (status == STATUS_OK) status = try_all(&choosing, fastest);
    if (status == STATUS_OK && fitted) status = check_requested_partition(plan);
    mem_free(choosing.partitions);
    return status;
}

enum status plan_policy_choose(struct session_plan *plan) {
    return choose(plan, plan->session->machine.capacity_bytes, true);
}

enum status plan_policy_bound(struct session_plan *plan, const struct graph *graph, const struct costs *costs,
                              struct search_bound *out) {
    struct choosing choosing = {.plan = plan, .capacity_bytes = plan->session->machine.capacity_bytes};
    int64_t *none = mem_array(graph->nodes.count, sizeof *none);
    const struct workspace_table workspace = {.bytes = none, .count = (int)graph->nodes.count};
    fill_input(&choosing, graph, &workspace, costs);
    enum status status = none ? list_partitions(&choosing) : STATUS_FAILED;
    if (status == STATUS_OK) status = search_bound(&choosing.input, out);
    mem_free(choosing.partitions);
    mem_free(none);
    return status;
}

enum status plan_policy_measure(struct session_plan *plan, struct trial *out) {
    struct choosing choosing = {.plan = plan, .capacity_bytes = plan->session->machine.capacity_bytes};
    const struct executable *main = programs_main(&plan->programs);
    if (plan->fastest.compiled && plan->fastest.step_s > 0) {
        *out = plan->fastest;
        return STATUS_OK;
    }
    fill_input(&choosing, main->graph, &main->workspace, &plan->costs);
    *out = (struct trial){.policy = plan->chosen.policy};
    return policy_measure(&choosing.input, 0, out, NULL);
}

enum status plan_policy_find_min_memory(const struct session *session, const struct plan_request *request,
                                        const int64_t capacity_bytes[TIER_COUNT], struct min_memory *out) {
    struct session_plan plan = {.session = session, .request = *request, .chosen = request->plan};
    *out = (struct min_memory){.fits = true};
    TRY(programs_compile(session, &request->set, &plan.chosen, &plan.programs));
    plan.min_bytes = plan.programs.tier_bytes[TIER_DEVICE];
    enum status status = request->policy_fixed ? STATUS_OK : choose(&plan, capacity_bytes, false);
    for (enum tier tier = 0; tier < TIER_COUNT; tier++) {
        out->tier_bytes[tier] = plan.programs.tier_bytes[tier];
        out->fits &= out->tier_bytes[tier] <= capacity_bytes[tier];
    }
    out->min_bytes = plan.min_bytes;
    session_plan_free(&plan);
    return status;
}
