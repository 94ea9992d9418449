
#include "base/size.h"
#include "compiler/collectives.h"
#include "search/search.h"
#include "session/choose.h"

/* The candidate whose policy is to be found, the tiers that it has to fit, and what the search is told of its main
 * program. */
struct choosing {
    struct plan_candidate *candidate;
    const int64_t *capacity_bytes;
    struct search_input input;
    struct partition *partitions; /* of the input, where the search may choose */
    bool fits_as_is;              /* under the policy that was requested */
};

/* Several ranks choose how to share states also where each could have all of them: with less memory for these there is
 * more for activations. A program that trains nothing does so only where it must, or is told to. */
static bool chooses_partition(const struct plan_candidate *candidate) {
    const struct plan_request *request = candidate->request;
    bool trains = program_set_has(&request->set, PROGRAM_STEP);
    bool partitioned = partition_cuts(&candidate->requested.partition);
    return rank_place_data(&candidate->plan.place) > 1 && policy_is_plain(&candidate->requested) &&
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
    const struct plan_candidate *of = choosing->candidate;
    struct plan other = *plan;
    int stages = rank_place_pipeline_parallel(&plan->place), between = rank_place_ranks(&plan->place) / stages;
    for (int stage = 1; stage < stages && *fitted; stage++) {
        struct programs made;
        other.place.rank = (plan->place.rank + stage * between) % (stages * between);
        TRY(programs_compile(of->session, &of->request->set, &other, &made));
        *fitted = fits(choosing, made.tier_bytes);
        programs_free(&made);
    }
    return STATUS_OK;
}

/* Compiles all programs under the policy, but for the main one where `main` has it, which is taken (else NULL); they
 * become the plan's if they fit. */
static enum status try_policy(struct choosing *choosing, const struct policy *policy, struct program **main,
                              bool *fitted) {
    struct plan_candidate *candidate = choosing->candidate;
    struct plan tried = candidate->plan;
    tried.policy = *policy;
    snprintf(tried.policy.spans, sizeof tried.policy.spans, "%s", candidate->plan.policy.spans);
    struct recompiled made;
    *fitted = false;
    enum status status = programs_recompile(&candidate->programs, &tried, main, &made);
    if (status == STATUS_NO_FIT) return STATUS_OK; /* it has too many operations between ranks */
    TRY(status);
    int64_t bytes = made.tier_bytes[TIER_DEVICE];
    if (fits_below(choosing, made.tier_bytes) && bytes < candidate->min_bytes) candidate->min_bytes = bytes;
    *fitted = fits(choosing, made.tier_bytes);
    status = fit_stages(choosing, &tried, fitted);
    if (status != STATUS_OK) *fitted = false;
    if (*fitted) {
        programs_replace(&candidate->programs, &made);
        candidate->plan = tried;
    } else {
        recompiled_free(&made);
    }
    return status;
}

/* Compiles the programs of the fastest policies that were found, where these are fast enough. */
static enum status try_pareto_front(struct choosing *choosing, bool *fitted) {
    struct plan_candidate *candidate = choosing->candidate;
    double enough_s = candidate->faster_than_s;
    for (size_t i = 0; i < candidate->search.pareto_front.count && !*fitted; i++) {
        if (enough_s > 0 && candidate_seconds(candidate, &candidate->search.pareto_front.items[i]) >= enough_s) break;
        TRY(try_policy(choosing, &candidate->search.pareto_front.items[i].policy,
                       i == 0 ? &candidate->search.best : NULL, fitted));
        if (*fitted) candidate->fastest = candidate->search.pareto_front.items[i];
    }
    return STATUS_OK;
}

static enum status try_fastest(struct choosing *choosing, bool *fitted) {
    TRY(candidate_measure(choosing->candidate));
    TRY(search_policies(&choosing->input, &choosing->candidate->search));
    return try_pareto_front(choosing, fitted);
}

/* The policy that takes least, where the search found none that fits within its tries. */
static enum status try_small(struct choosing *choosing, const struct trial *small, bool *fitted) {
    struct trial measured = *small;
    TRY(policy_measure(&choosing->input, 0, &measured, NULL));
    if (measured.step_s <= 0) return STATUS_OK;
    TRY(vec_push(&choosing->candidate->search.pareto_front, measured));
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
    bool fitted = false, free = !choosing->candidate->request->partition_fixed;
    if (fastest && free && choosing->fits_as_is) return try_fastest(choosing, &fitted);
    struct search_input sizes = *input; /* what is smallest is found by trying: as often for a pipeline */
    sizes.max_compiled *= rank_place_pipeline_parallel(&input->place);
    TRY(search_min_memory(&sizes, &small));
    if (!small.compiled) return STATUS_OK;
    bool one_of_several = choosing->candidate->faster_than_s > 0;
    bool hopeless = small.tier_bytes[TIER_DEVICE] > input->capacity_bytes[TIER_DEVICE];
    if (hopeless && one_of_several) choosing->candidate->min_bytes = small.tier_bytes[TIER_DEVICE];
    if (hopeless) return one_of_several ? STATUS_OK : try_policy(choosing, &small.policy, NULL, &fitted);
    if (fastest) TRY(try_fastest(choosing, &fitted));
    if (fastest && one_of_several && choosing->candidate->search.pareto_front.count == 0)
        TRY(try_small(choosing, &small, &fitted));
    return fitted || one_of_several ? STATUS_OK : try_min_memory(choosing);
}

/* A partition that was asked for is no other, even where that would fit. */
static enum status check_requested_partition(const struct plan_candidate *candidate) {
    const struct partition *requested = &candidate->requested.partition;
    char text[PARTITION_BYTES], size[SIZE_TEXT];
    if (!candidate->request->partition_fixed || partition_equal(requested, &candidate->plan.policy.partition))
        return STATUS_OK;
    if (candidate->search.crowded > 0)
        return status_hint(status_set(STATUS_NO_FIT,
                                      "no plan fits: with the partition %s there are more than %d operations "
                                      "between ranks",
                                      partition_print(requested, &candidate->plan.place.mesh, text),
                                      COMM_OPERATIONS_MAX),
                           COLLECTIVES_FEWER);
    return status_hint(status_set(STATUS_NO_FIT, "no plan fits: with the partition %s the device tier needs %s",
                                  partition_print(requested, &candidate->plan.place.mesh, text),
                                  size_print(candidate->min_bytes, size)),
                       "give it more by --device-memory SIZE, or leave out --partition");
}

static enum status choose(struct plan_candidate *candidate, const int64_t capacity_bytes[TIER_COUNT], bool fastest) {
    struct choosing choosing = {.candidate = candidate, .capacity_bytes = capacity_bytes};
    bool fitted = fits(&choosing, candidate->programs.tier_bytes);
    candidate->fastest = (struct trial){.compiled = false};
    TRY(fit_stages(&choosing, &candidate->plan, &fitted));
    choosing.fits_as_is = fitted;
    if (fitted && !(fastest && chooses_partition(candidate))) return STATUS_OK;
    const struct executable *main = programs_main(&candidate->programs);
    enum status status = candidate_search_input(candidate, main->graph, &main->workspace, &candidate->costs,
                                                capacity_bytes, &choosing.input, &choosing.partitions);
    if (status == STATUS_OK) status = try_all(&choosing, fastest);
    if (status == STATUS_OK && fitted) status = check_requested_partition(candidate);
    mem_free(choosing.partitions);
    return status;
}

enum status candidate_choose_policy(struct plan_candidate *candidate) {
    return choose(candidate, candidate->session->machine.capacity_bytes, true);
}

enum status choose_min_memory(const struct session *session, const struct plan_request *request,
                              const int64_t capacity_bytes[TIER_COUNT], struct min_memory *out) {
    struct plan_candidate candidate = candidate_begin(session, request, &request->plan);
    *out = (struct min_memory){.fits = true};
    TRY(candidate_compile(&candidate));
    enum status status = request->policy_fixed ? STATUS_OK : choose(&candidate, capacity_bytes, false);
    for (enum tier tier = 0; tier < TIER_COUNT; tier++) {
        out->tier_bytes[tier] = candidate.programs.tier_bytes[tier];
        out->fits &= out->tier_bytes[tier] <= capacity_bytes[tier];
    }
    out->min_bytes = candidate.min_bytes;
    candidate_free(&candidate);
    return status;
}
