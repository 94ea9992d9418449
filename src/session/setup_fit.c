#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "cluster/cluster.h"
#include "session/setup_compile.h"

enum { SEQUENCE_LEAST = 32 };

/* What a plan takes under the policy that takes least; `fits`: all programs, compiled and proved, fit. */
struct least {
    int64_t bytes; /* of the device */
    int64_t tier_bytes[TIER_COUNT];
    bool fits;
};

static enum status measure_least(const struct train_setup *setup, const struct plan *plan, struct least *out) {
    struct train_setup measured = *setup;
    measured.main = measured.validation = measured.prefill = measured.decode = NULL;
    measured.plan = *plan;
    *out = (struct least){.fits = true};
    enum status status = setup_compile(setup, plan, &measured);
    measured.least_bytes = status == STATUS_OK ? setup_program_bytes(&measured, TIER_DEVICE) : 0;
    if (status == STATUS_OK && !setup->policy_fixed) status = setup_choose_least(&measured);
    for (enum tier tier = 0; tier < TIER_COUNT && status == STATUS_OK; tier++) {
        out->tier_bytes[tier] = setup_program_bytes(&measured, tier);
        out->fits &= out->tier_bytes[tier] <= setup->capacity_bytes[tier];
    }
    out->bytes = measured.least_bytes;
    setup_free_programs(&measured);
    return status;
}

/* The same plan, were there a disk, or a larger one: what it would have to hold; 0: that would not do. */
static enum status measure_with_disk(const struct train_setup *setup, int64_t *disk_bytes) {
    struct train_setup richer = *setup;
    struct least least;
    *disk_bytes = 0;
    if (setup->policy_fixed) return STATUS_OK;
    richer.capacity_bytes[TIER_DISK] = INT64_MAX / 4;
    TRY(measure_least(&richer, &setup->plan, &least));
    if (least.fits) *disk_bytes = least.tier_bytes[TIER_DISK];
    return STATUS_OK;
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

/* The first plan that fits; of those that do not, the first with the least bytes. `least` is at first the setup's. */
static enum status find_fit(const struct train_setup *setup, struct plan *out, struct least *least) {
    struct plan plan = setup->plan;
    *out = plan;
    while (!least->fits && reduce_plan(&plan, setup->recipe_fixed)) {
        struct least found;
        TRY(measure_least(setup, &plan, &found));
        if (!found.fits && found.bytes >= least->bytes) continue;
        *least = found;
        *out = plan;
    }
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

/* A device tier of so many bytes: as an option, or, where the tier is what the system leaves, as memory that it is
 * short of. */
static enum status describe_memory(const struct train_setup *setup, int64_t device_bytes, char text[64]) {
    char size[SIZE_TEXT];
    if (setup->limits.device_bytes > 0 || setup->backend->memory) {
        snprintf(text, 64, "--device-memory %s", size_print_option(device_bytes, size));
        return STATUS_OK;
    }
    struct cluster_memory memory;
    TRY(cluster_measure_memory(&memory));
    int64_t missing = cluster_memory_missing(&memory, device_bytes + setup->limits.host_bytes);
    snprintf(text, 64, "%s more memory for the process", size_print_up(missing, size));
    return STATUS_OK;
}

/* All that would do: less of what the plan asks for, a disk, memory. Whatever is said has been compiled. */
static enum status hint_fit(const struct train_setup *setup, const struct plan *plan, const struct least *least,
                            int64_t needed, int64_t disk_bytes) {
    char size[SIZE_TEXT], change[128], memory[64], small_memory[64], less[256] = "", disk[64] = "", small[256] = "";
    describe_change(&setup->plan, plan, change);
    TRY(describe_memory(setup, needed, memory));
    TRY(describe_memory(setup, least->bytes, small_memory));
    bool saves = least->bytes < needed && strcmp(memory, small_memory) != 0;
    if (least->fits) snprintf(less, sizeof less, "%s would fit (%s); or ", change, size_print(least->bytes, size));
    if (!least->fits && saves) snprintf(small, sizeof small, "; or %s with %s", small_memory, change);
    if (disk_bytes > 0) snprintf(disk, sizeof disk, "--disk DIR with %s there; or ", size_print_up(disk_bytes, size));
    return status_hint(STATUS_NO_FIT, "%s%s%s%s", less, disk, memory, small);
}

enum status train_setup_check_memory(const struct train_setup *setup) {
    for (enum tier tier = TIER_HOST; tier < TIER_COUNT; tier++)
        TRY(check_lower_tier(setup, tier));
    int64_t bytes = setup->program_bytes[TIER_DEVICE], capacity = setup->capacity_bytes[TIER_DEVICE], disk_bytes;
    int64_t needed = setup->policy_fixed ? bytes : setup->least_bytes;
    struct least least = {.bytes = needed};
    struct plan plan;
    if (bytes <= capacity) return STATUS_OK;
    TRY(find_fit(setup, &plan, &least));
    TRY(measure_with_disk(setup, &disk_bytes));
    setup->backend->set_threads(setup->plan.recipe.threads);
    char need[SIZE_TEXT], over[SIZE_TEXT], there[SIZE_TEXT];
    status_set(STATUS_NO_FIT, "no plan fits: the device tier needs %s, %s more than the %s that there are",
               size_print(needed, need), size_print(needed - capacity, over), size_print(capacity, there));
    return hint_fit(setup, &plan, &least, needed, disk_bytes);
}
