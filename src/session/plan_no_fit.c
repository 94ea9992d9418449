/* Why no plan fits, and what would. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "cluster/cluster.h"
#include "session/plan_policy.h"

enum { SEQUENCE_LEAST = 32 };

/* The least memory of the same request with another plan, in tiers of these capacities. */
static enum status find_least(const struct session_plan *plan, const struct plan *other,
                              const int64_t capacity_bytes[TIER_COUNT], struct least_memory *out) {
    struct plan_request request = plan->request;
    request.plan = *other;
    return plan_policy_find_least(plan->session, &request, capacity_bytes, out);
}

/* The same plan, were there a disk, or a larger one: what it would have to hold; 0: that would not do. */
static enum status find_disk_bytes(const struct session_plan *plan, int64_t *disk_bytes) {
    int64_t capacity_bytes[TIER_COUNT];
    struct least_memory least;
    *disk_bytes = 0;
    if (plan->request.policy_fixed) return STATUS_OK;
    memcpy(capacity_bytes, plan->session->machine.capacity_bytes, sizeof capacity_bytes);
    capacity_bytes[TIER_DISK] = INT64_MAX / 4;
    TRY(find_least(plan, &plan->chosen, capacity_bytes, &least));
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
    else if (recipe->grain_sequences > recipe_together(recipe))
        recipe->grain_sequences = recipe_together(recipe);
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

/* The first plan that fits; of those that do not, the first with the least bytes. `least` is at first the plan's. */
static enum status find_fit(const struct session_plan *plan, struct plan *out, struct least_memory *least) {
    struct plan other = plan->chosen;
    *out = other;
    while (!least->fits && reduce_plan(&other, plan->request.recipe_fixed)) {
        struct least_memory found;
        TRY(find_least(plan, &other, plan->session->machine.capacity_bytes, &found));
        if (!found.fits && found.least_bytes >= least->least_bytes) continue;
        *least = found;
        *out = other;
    }
    return STATUS_OK;
}

enum { TOTAL_BYTES = 64 };

/* The memory of some virtual machines grows on demand, so that less is available than can be had. */
static const char *describe_total(char text[TOTAL_BYTES]) {
    struct cluster_memory memory;
    char size[SIZE_TEXT];
    cluster_find_memory(&memory);
    snprintf(text, TOTAL_BYTES, " (MemTotal is %s now)", size_print(memory.total_bytes, size));
    return text;
}

/* Only a given plan can ask for more than the tiers below the device hold. */
static enum status check_lower_tier(const struct session_plan *plan, enum tier tier) {
    static const char *const options[] = {[TIER_HOST] = "--host-memory SIZE", [TIER_DISK] = "--disk DIR"};
    int64_t bytes = plan->programs.tier_bytes[tier], capacity = plan->session->machine.capacity_bytes[tier];
    char need[SIZE_TEXT], there[SIZE_TEXT], total[TOTAL_BYTES];
    if (bytes <= capacity) return STATUS_OK;
    enum status status = status_set(STATUS_NO_FIT, "no plan fits: the %s tier needs %s of the %s that there are",
                                    tier_name(tier), size_print(bytes, need), size_print(capacity, there));
    return status_hint(status, "give it more by %s%s, or another plan", options[tier],
                       tier == TIER_HOST ? describe_total(total) : "");
}

/* How to get a device tier of so many bytes: by the option, or, where the tier is what the system leaves, by the
 * memory that is missing. */
static enum status describe_memory(const struct session_plan *plan, int64_t device_bytes, char text[64]) {
    const struct memory_options *limits = &plan->session->machine.limits;
    char size[SIZE_TEXT];
    if (SETTINGS_HAVE(limits, device_bytes) || plan->session->machine.backend->memory) {
        snprintf(text, 64, "--device-memory %s", size_print_option(device_bytes, size));
        return STATUS_OK;
    }
    struct cluster_memory memory;
    TRY(cluster_measure_memory(&memory));
    int64_t missing = cluster_memory_missing(&memory, device_bytes + limits->host_bytes);
    snprintf(text, 64, "%s more memory for the process", size_print_up(missing, size));
    return STATUS_OK;
}

/* Hints at all that would fit: a smaller plan, a disk, more memory. Each of them was compiled. */
static enum status hint_fit(const struct session_plan *plan, const struct plan *other, const struct least_memory *least,
                            int64_t needed, int64_t disk_bytes) {
    char size[SIZE_TEXT], change[128], memory[64], small_memory[64], less[256] = "", disk[64] = "", small[256] = "";
    describe_change(&plan->chosen, other, change);
    TRY(describe_memory(plan, needed, memory));
    TRY(describe_memory(plan, least->least_bytes, small_memory));
    bool saves = least->least_bytes < needed && strcmp(memory, small_memory) != 0;
    if (least->fits)
        snprintf(less, sizeof less, "%s would fit (%s); or ", change, size_print(least->least_bytes, size));
    if (!least->fits && saves) snprintf(small, sizeof small, "; or %s with %s", small_memory, change);
    if (disk_bytes > 0) snprintf(disk, sizeof disk, "--disk DIR with %s there; or ", size_print_up(disk_bytes, size));
    return status_hint(STATUS_NO_FIT, "%s%s%s%s", less, disk, memory, small);
}

enum status session_plan_check_memory(const struct session_plan *plan) {
    const struct machine *machine = &plan->session->machine;
    for (enum tier tier = TIER_HOST; tier < TIER_COUNT; tier++)
        TRY(check_lower_tier(plan, tier));
    int64_t bytes = plan->programs.tier_bytes[TIER_DEVICE], capacity = machine->capacity_bytes[TIER_DEVICE], disk_bytes;
    int64_t needed = plan->request.policy_fixed ? bytes : plan->least_bytes;
    struct least_memory least = {.least_bytes = needed};
    struct plan other;
    if (bytes <= capacity) return STATUS_OK;
    TRY(find_fit(plan, &other, &least));
    TRY(find_disk_bytes(plan, &disk_bytes));
    machine->backend->set_threads(plan->chosen.threads);
    char need[SIZE_TEXT], over[SIZE_TEXT], there[SIZE_TEXT];
    status_set(STATUS_NO_FIT, "no plan fits: the device tier needs %s, %s more than the %s that there are",
               size_print(needed, need), size_print(needed - capacity, over), size_print(capacity, there));
    return hint_fit(plan, &other, &least, needed, disk_bytes);
}
