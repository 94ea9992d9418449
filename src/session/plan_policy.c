#include "session/plan_policy.h"

#include "search/search.h"

/* The plan whose policy is to be found, the tiers that it has to fit, and what the search is told of its main
 * program. */
struct choosing {
    struct session_plan *plan;
    const int64_t *capacity_bytes;
    struct search_input input;
};

/* Whether the tiers below the device hold the programs. */
static bool fits_below(const struct choosing *choosing, const struct programs *programs) {
    for (enum tier tier = TIER_HOST; tier < TIER_COUNT; tier++)
        if (programs->tier_bytes[tier] > choosing->capacity_bytes[tier]) return false;
    return true;
}

static bool fits(const struct choosing *choosing, const struct programs *programs) {
    return fits_below(choosing, programs) && programs->tier_bytes[TIER_DEVICE] <= choosing->capacity_bytes[TIER_DEVICE];
}

/* Compiles and proves all programs under the policy; they become the plan's if they fit. */
static enum status try_policy(struct choosing *choosing, const struct policy *policy, bool *fitted) {
    struct session_plan *plan = choosing->plan;
    struct plan tried = plan->chosen;
    tried.policy = *policy;
    struct programs made;
    *fitted = false;
    TRY(programs_compile(plan->session, &plan->request.set, &tried, &made));
    int64_t bytes = made.tier_bytes[TIER_DEVICE];
    if (fits_below(choosing, &made) && bytes < plan->least_bytes) plan->least_bytes = bytes;
    *fitted = fits(choosing, &made);
    if (*fitted) {
        programs_free(&plan->programs);
        plan->programs = made;
        plan->chosen = tried;
    } else {
        programs_free(&made);
    }
    return STATUS_OK;
}

static enum status try_fastest(struct choosing *choosing, bool *fitted) {
    struct session_plan *plan = choosing->plan;
    TRY(session_plan_measure(plan));
    TRY(search_policies(&choosing->input, &plan->search));
    for (size_t i = 0; i < plan->search.front.count && !*fitted; i++)
        TRY(try_policy(choosing, &plan->search.front.items[i].policy, fitted));
    return STATUS_OK;
}

/* With no regard to what the device holds of the main program: others of the set may need more. */
static enum status try_least(struct choosing *choosing) {
    struct search_input any = choosing->input;
    struct candidate least;
    bool fitted;
    any.capacity_bytes[TIER_DEVICE] = 0;
    TRY(search_least(&any, &least));
    return least.compiled ? try_policy(choosing, &least.policy, &fitted) : STATUS_OK;
}

/* First the policy that takes least: where even that does not fit, there is no need to measure. */
static enum status try_all(struct choosing *choosing, bool fastest) {
    const struct search_input *input = &choosing->input;
    struct candidate small;
    bool fitted = false;
    TRY(search_least(input, &small));
    if (!small.compiled) return STATUS_OK;
    if (small.tier_bytes[TIER_DEVICE] > input->capacity_bytes[TIER_DEVICE])
        return try_policy(choosing, &small.policy, &fitted);
    if (fastest) TRY(try_fastest(choosing, &fitted));
    return fitted ? STATUS_OK : try_least(choosing);
}

static enum status choose(struct session_plan *plan, const int64_t capacity_bytes[TIER_COUNT], bool fastest) {
    struct choosing choosing = {.plan = plan, .capacity_bytes = capacity_bytes};
    if (fits(&choosing, &plan->programs)) return STATUS_OK;
    const struct executable *main = programs_main(&plan->programs);
    int64_t *bytes = executable_workspace(main);
    if (!bytes) return STATUS_FAILED;
    const struct workspace_table workspace = {bytes, (int)main->graph->nodes.count};
    choosing.input =
        (struct search_input){.graph = main->graph,
                              .workspace = &workspace,
                              .costs = &plan->costs,
                              .recipe = &plan->chosen.recipe,
                              .place = plan->chosen.place,
                              .grains_per_pass = plan->request.grains_fixed ? plan->chosen.policy.grains_per_pass : 0,
                              .most_compiled = search_most_compiled(main->graph)};
    for (enum tier tier = 0; tier < TIER_COUNT; tier++)
        choosing.input.capacity_bytes[tier] = capacity_bytes[tier];
    enum status status = try_all(&choosing, fastest);
    mem_free(bytes);
    return status;
}

enum status plan_policy_choose(struct session_plan *plan) {
    return choose(plan, plan->session->machine.capacity_bytes, true);
}

enum status plan_policy_find_least(const struct session *session, const struct plan_request *request,
                                   const int64_t capacity_bytes[TIER_COUNT], struct least_memory *out) {
    struct session_plan plan = {.session = session, .request = *request, .chosen = request->plan};
    *out = (struct least_memory){.fits = true};
    TRY(programs_compile(session, &request->set, &plan.chosen, &plan.programs));
    plan.least_bytes = plan.programs.tier_bytes[TIER_DEVICE];
    enum status status = request->policy_fixed ? STATUS_OK : choose(&plan, capacity_bytes, false);
    for (enum tier tier = 0; tier < TIER_COUNT; tier++) {
        out->tier_bytes[tier] = plan.programs.tier_bytes[tier];
        out->fits &= out->tier_bytes[tier] <= capacity_bytes[tier];
    }
    out->least_bytes = plan.least_bytes;
    session_plan_free(&plan);
    return status;
}
