#include <inttypes.h>
#include <stdio.h>

#include "base/size.h"
#include "train/setup_compile.h"

enum { SEQUENCE_LEAST = 32 };

static enum status measure_plan(const struct train_setup *setup, const struct plan *plan, int64_t *bytes) {
    struct train_setup measured = {0};
    enum status status = setup_compile(setup, plan, &measured);
    if (status == STATUS_OK) *bytes = setup_program_bytes(&measured, TIER_DEVICE);
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

enum status train_setup_check_memory(const struct train_setup *setup) {
    int64_t bytes = setup->program_bytes[TIER_DEVICE], capacity = setup->capacity_bytes[TIER_DEVICE], needed = bytes;
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
    return status_hint(STATUS_NO_FIT, "%s%s takes %s: give a --device-memory of at least that, or take a smaller model",
                       but, change[0] ? change : "the least plan", least);
}
