/* A policy for a step that does not fit as it is: what the search finds fastest, of those with which all programs of
 * the setup fit. */
#include "search/search.h"
#include "session/setup_compile.h"

/* Whether the tiers below the device hold the programs. */
static bool fits_below(const struct train_setup *setup, const struct train_setup *programs) {
    for (enum tier tier = TIER_HOST; tier < TIER_COUNT; tier++)
        if (setup_program_bytes(programs, tier) > setup->capacity_bytes[tier]) return false;
    return true;
}

static bool fits(const struct train_setup *setup, const struct train_setup *programs) {
    return fits_below(setup, programs) &&
           setup_program_bytes(programs, TIER_DEVICE) <= setup->capacity_bytes[TIER_DEVICE];
}

/* Compiles and proves all programs under the policy; they stay if they fit. */
static enum status try_policy(struct train_setup *setup, const struct policy *policy, bool *fitted) {
    struct train_setup made = {0};
    struct plan plan = {setup->plan.recipe, *policy};
    enum status status = setup_compile(setup, &plan, &made);
    bool below = status == STATUS_OK && fits_below(setup, &made);
    int64_t bytes = status == STATUS_OK ? setup_program_bytes(&made, TIER_DEVICE) : INT64_MAX;
    *fitted = status == STATUS_OK && fits(setup, &made);
    if (below && bytes < setup->least_bytes) setup->least_bytes = bytes;
    if (*fitted) {
        setup_free_programs(setup);
        setup_take_programs(setup, &made);
        setup->plan = plan;
    } else
        setup_free_programs(&made);
    return status;
}

/* What the search asks for, of the setup's main program. */
static enum status make_input(const struct train_setup *setup, int64_t **workspace_bytes,
                              struct workspace_table *workspace, struct search_input *out) {
    const struct executable *main = setup->main;
    int64_t *bytes = executable_workspace(main);
    if (!bytes) return STATUS_FAILED;
    *workspace_bytes = bytes;
    *workspace = (struct workspace_table){bytes, (int)main->graph->nodes.count};
    bool grains_fixed = setup->grains_fixed || setup->purpose != SETUP_TRAIN;
    *out = (struct search_input){.graph = main->graph,
                                 .workspace = workspace,
                                 .costs = &setup->costs,
                                 .recipe = &setup->plan.recipe,
                                 .grains_per_pass = grains_fixed ? setup->plan.policy.grains_per_pass : 0,
                                 .most_compiled = search_most_compiled(main->graph)};
    for (enum tier tier = 0; tier < TIER_COUNT; tier++)
        out->capacity_bytes[tier] = setup->capacity_bytes[tier];
    return STATUS_OK;
}

static enum status try_fastest(struct train_setup *setup, const struct search_input *input, bool *fitted) {
    TRY(train_setup_measure(setup));
    TRY(search_policies(input, &setup->search));
    for (size_t i = 0; i < setup->search.front.count && !*fitted; i++)
        TRY(try_policy(setup, &setup->search.front.items[i].policy, fitted));
    return STATUS_OK;
}

/* Whatever the main program's device is: other programs may need more than that one. */
static enum status try_least(struct train_setup *setup, const struct search_input *input) {
    struct search_input any = *input;
    struct candidate least;
    bool fitted;
    any.capacity_bytes[TIER_DEVICE] = 0;
    TRY(search_least(&any, &least));
    return least.compiled ? try_policy(setup, &least.policy, &fitted) : STATUS_OK;
}

/* Small ones come first: where none fits, nothing is measured in vain. */
static enum status try_all(struct train_setup *setup, const struct search_input *input, bool fastest) {
    struct candidate small;
    bool fitted = false;
    TRY(search_least(input, &small));
    if (!small.compiled) return STATUS_OK;
    if (small.tier_bytes[TIER_DEVICE] > input->capacity_bytes[TIER_DEVICE])
        return try_policy(setup, &small.policy, &fitted);
    if (fastest) TRY(try_fastest(setup, input, &fitted));
    return fitted ? STATUS_OK : try_least(setup, input);
}

static enum status choose(struct train_setup *setup, bool fastest) {
    struct search_input input;
    struct workspace_table workspace;
    int64_t *bytes;
    setup->least_bytes = setup_program_bytes(setup, TIER_DEVICE);
    if (fits(setup, setup)) return STATUS_OK;
    TRY(make_input(setup, &bytes, &workspace, &input));
    enum status status = try_all(setup, &input, fastest);
    mem_free(bytes);
    return status;
}

enum status setup_choose_policy(struct train_setup *setup) { return choose(setup, true); }

enum status setup_choose_least(struct train_setup *setup) { return choose(setup, false); }
