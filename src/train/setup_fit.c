#include <inttypes.h>
#include <stdio.h>

#include "base/size.h"
#include "train/setup_compile.h"

enum { SEQUENCE_LEAST = 32 };

static enum status measure_plan(const struct train_setup *setup, const struct plan *plan, int64_t *bytes) {
    struct train_setup measured = *setup;
    measured.main = measured.validation = measured.prefill = measured.decode = NULL;
    measured.plan = *plan;
    enum status status = setup_compile(setup, plan, &measured);
    measured.least_bytes = status == STATUS_OK ? setup_program_bytes(&measured, TIER_DEVICE) : 0;
    if (status == STATUS_OK && !setup->policy_fixed) status = setup_choose_least(&measured);
    if (status == STATUS_OK) *bytes = measured.least_bytes;
    setup_free_programs(&measured);
    return status;
}

/* Plans that take less, from the one that changes least: fewer grains at once, smaller grains, then shorter sequences.
 * Where the recipe is fixed, only the first. False after the last. */
static bool reduce_plan(struct plan *plan, bool recipe_fixed) {
    struct recipe *recipe = &plan->recipe;
    if (plan->policy.grains_per_pass > 1)
        plan->policy.grains_per_pass = 1;
    else if (recipe_fixed)
        return false;
    else if (recipe->grain_sequences > 1)
        recipe->grain_sequences = 1;
    else if (recipe->sequence_length >= 2 * SEQUENCE_LEAST)
        recipe->sequence_length /= 2;
    else
        return false;
    return true;
}

static void describe_change(const struct plan *from, const struct plan *to, char text[128]) {
    int used = 0;
    if (from->policy.grains_per_pass != to->policy.grains_per_pass) used += snprintf(text, 128, "one grain per pass, ");
    if (from->recipe.grain_sequences != to->recipe.grain_sequences)
        used += snprintf(text + used, 128 - (size_t)used, "--grain %" PRId64 ", ", to->recipe.grain_sequences);
    if (from->recipe.sequence_length != to->recipe.sequence_length)
        used += snprintf(text + used, 128 - (size_t)used, "--seq %" PRId64 ", ", to->recipe.sequence_length);
    text[used > 2 ? used - 2 : 0] = '\0';
}

/* The first plan that fits; of those that do not, the least bytes. */
static enum status find_fit(const struct train_setup *setup, int64_t capacity, struct plan *plan, int64_t *bytes) {
    *plan = setup->plan;
    while (*bytes > capacity && reduce_plan(plan, setup->recipe_fixed))
        TRY(measure_plan(setup, plan, bytes));
    return STATUS_OK;
}

/* Only a plan that is given asks for more than there is of the tiers below the device. */
static enum status check_lower_tier(const struct train_setup *setup, enum tier tier) {
    static const char *const options[] = {[TIER_HOST] = "--host-memory SIZE", [TIER_DISK] = "--disk DIR"};
    int64_t bytes = setup->program_bytes[tier], capacity = setup->capacity_bytes[tier];
    char need[SIZE_TEXT], there[SIZE_TEXT];
    if (bytes <= capacity) return STATUS_OK;
    enum status status = status_set(STATUS_NO_FIT, "no plan fits: the %s tier needs %s of the %s that there are",
                                    tier_name(tier), size_print(bytes, need), size_print(capacity, there));
    return status_hint(status, "give it more by %s, or another plan", options[tier]);
}

enum status train_setup_check_memory(const struct train_setup *setup) {
    for (enum tier tier = TIER_HOST; tier < TIER_COUNT; tier++)
        TRY(check_lower_tier(setup, tier));
    int64_t bytes = setup->program_bytes[TIER_DEVICE], capacity = setup->capacity_bytes[TIER_DEVICE];
    int64_t needed = setup->policy_fixed ? bytes : setup->least_bytes;
    if (bytes <= capacity) return STATUS_OK;
    struct plan plan;
    TRY(find_fit(setup, capacity, &plan, &needed));
    setup->backend->set_threads(setup->plan.recipe.threads);
    char need[SIZE_TEXT], over[SIZE_TEXT], there[SIZE_TEXT], least[SIZE_TEXT], change[128];
    describe_change(&setup->plan, &plan, change);
    size_print(needed, least);
    status_set(STATUS_NO_FIT, "no plan fits: the device tier needs %s, %s more than the %s that there are",
               size_print(bytes, need), size_print(bytes - capacity, over), size_print(capacity, there));
    if (needed <= capacity) return status_hint(STATUS_NO_FIT, "%s would fit: %s", change, least);
    const char *but = change[0] ? "even " : setup->recipe_fixed ? "" : "nothing shorter helps: ";
    bool lower = setup->capacity_bytes[TIER_HOST] > 0 || setup->capacity_bytes[TIER_DISK] > 0;
    return status_hint(STATUS_NO_FIT,
                       "%s%s takes %s: give a --device-memory of at least that, %sor take a smaller model", but,
                       change[0] ? change : "the least plan", least,
                       setup->policy_fixed ? ""
                       : lower             ? "more --host-memory or --disk, "
                                           : "a --disk DIR for what does not fit, ");
}
