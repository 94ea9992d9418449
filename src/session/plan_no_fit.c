/* Why no plan fits, and what would. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "machine/cluster.h"
#include "session/machine_costs.h"
#include "session/choose.h"
#include "session/session_plan.h"

enum { SEQUENCE_MIN = 32 };

/* The least memory of the same request with another plan, in tiers of these capacities. */
static enum status find_min_memory(const struct session_plan *plan, const struct plan *other,
                                   const int64_t capacity_bytes[TIER_COUNT], struct min_memory *out) {
    struct plan_request request = plan->request;
    request.plan = *other;
    return choose_min_memory(plan->session, &request, capacity_bytes, out);
}

/* The same plan with a disk of any size. A fixed policy takes what it takes. */
static enum status find_with_disk(const struct session_plan *plan, struct min_memory *out) {
    int64_t capacity_bytes[TIER_COUNT];
    *out = (struct min_memory){.min_bytes = INT64_MAX};
    if (plan->request.policy_fixed) return STATUS_OK;
    memcpy(capacity_bytes, plan->session->machine.capacity_bytes, sizeof capacity_bytes);
    capacity_bytes[TIER_DISK] = INT64_MAX / 4;
    return find_min_memory(plan, &plan->chosen, capacity_bytes, out);
}

/* Plans that take less, from the one that changes least: fewer micro-batches at once, smaller micro-batches, then
 * shorter sequences. Where the recipe is fixed, only the first. False after the last. */
static bool reduce_plan(struct plan *plan, bool recipe_fixed) {
    struct recipe *recipe = &plan->recipe;
    if (plan->policy.micro_batches_per_wave > 1)
        plan->policy.micro_batches_per_wave = 1;
    else if (recipe_fixed)
        return false;
    else if (recipe->micro_batch_sequences > recipe_together(recipe))
        recipe->micro_batch_sequences = recipe_together(recipe);
    else if (recipe->sequence_length >= 2 * SEQUENCE_MIN)
        recipe->sequence_length /= 2;
    else
        return false;
    return true;
}

static void describe_change(const struct plan *from, const struct plan *to, char text[128]) {
    int used = 0;
    if (from->policy.micro_batches_per_wave != to->policy.micro_batches_per_wave)
        used += snprintf(text, 128, "--micro-batches-per-wave 1, ");
    if (from->recipe.micro_batch_sequences != to->recipe.micro_batch_sequences)
        used +=
            snprintf(text + used, 128 - (size_t)used, "--micro-batch %" PRId64 ", ", to->recipe.micro_batch_sequences);
    if (from->recipe.sequence_length != to->recipe.sequence_length)
        used += snprintf(text + used, 128 - (size_t)used, "--seq %" PRId64 ", ", to->recipe.sequence_length);
    text[used > 2 ? used - 2 : 0] = '\0';
}

/* The first plan that fits; of those that do not, the first with the least bytes. `min` is at first the plan's. */
static enum status find_fit(const struct session_plan *plan, struct plan *out, struct min_memory *min) {
    struct plan other = plan->chosen;
    *out = other;
    while (!min->fits && reduce_plan(&other, plan->request.recipe_fixed)) {
        struct min_memory found;
        TRY(find_min_memory(plan, &other, plan->session->machine.capacity_bytes, &found));
        if (!found.fits && found.min_bytes >= min->min_bytes) continue;
        *min = found;
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

/* The memory that the processes of this host lack, by what is in use now and by what was when the capacity was
 * measured. Ranks measure it at different moments of each other's starts, so that a few hundred KiB differ. */
static enum status find_missing(const struct machine *machine, int processes, int64_t device_bytes, int64_t *missing) {
    enum { START_BYTES = 1 << 20 };
    int64_t lack = device_bytes - machine->capacity_bytes[TIER_DEVICE];
    int64_t then = (int64_t)(processes * (double)lack / (1 - CLUSTER_RESERVE_FRACTION));
    struct cluster_memory memory;
    TRY(cluster_measure_memory(&memory));
    *missing = cluster_memory_missing(&memory, processes, device_bytes + machine->limits.host_bytes);
    if (*missing < then) *missing = then;
    if (processes > 1) *missing += (int64_t)processes * START_BYTES;
    return STATUS_OK;
}

/* How to get a device tier of so many bytes: by the option, or, where the tier is what the system leaves, by the
 * memory that is missing. */
static enum status describe_memory(const struct session_plan *plan, int64_t device_bytes, char text[64]) {
    const struct machine *machine = &plan->session->machine;
    char size[SIZE_TEXT];
    if (SETTINGS_HAVE(&machine->limits, device_bytes) || machine->backend->memory) {
        snprintf(text, 64, "--device-memory %s", size_print_option(device_bytes, size));
        return STATUS_OK;
    }
    int processes = machine->sharers > 1 ? machine->sharers : 1;
    int64_t missing;
    TRY(find_missing(machine, processes, device_bytes, &missing));
    snprintf(text, 64, "%s more memory for the process%s", size_print_up(missing, size), processes > 1 ? "es" : "");
    return STATUS_OK;
}

/* The rate of transfers large enough to hide the latency; 0: not measured. */
static double gb_per_s(const struct transfer_rate *rate) {
    enum { PIECE_BYTES = 1 << 24 };
    if (!(rate->bytes_per_s > 0)) return 0;
    return PIECE_BYTES * 1e-9 / (rate->latency_s + PIECE_BYTES / rate->bytes_per_s);
}

/* "; DIR has 57.9 GiB free, of which the disk tier may take 500 MiB; it reads 1.20 GB/s and writes 0.90 GB/s". Rates
 * that cannot be measured are left out. */
static enum status describe_disk(const struct session_plan *plan, int64_t free_bytes, char **out) {
    const struct machine *machine = &plan->session->machine;
    struct cluster cluster = {.rates.measured = false};
    char there[SIZE_TEXT], size[SIZE_TEXT], taken[64] = "", rates[64] = "";
    if (SETTINGS_HAVE(&machine->limits, disk_bytes) && machine->capacity_bytes[TIER_DISK] < free_bytes)
        snprintf(taken, sizeof taken, ", of which the disk tier may take %s",
                 size_print(machine->capacity_bytes[TIER_DISK], size));
    bool leads = plan->session->comm->rank == 0;
    if (leads && machine_measure(machine, plan->chosen.threads, &(struct measuring){0}, &cluster) != STATUS_OK)
        status_clear();
    double read = gb_per_s(&cluster.rates.copy[TIER_DISK][TIER_DEVICE]);
    double write = gb_per_s(&cluster.rates.copy[TIER_DEVICE][TIER_DISK]);
    if (read > 0 && write > 0) snprintf(rates, sizeof rates, "; it reads %.2f GB/s and writes %.2f GB/s", read, write);
    *out = mem_format("; %s has %s free%s%s", machine->limits.disk_folder, size_print(free_bytes, there), taken, rates);
    return *out ? STATUS_OK : STATUS_FAILED;
}

/* Proposes a disk ("--disk DIR with 1.31 GiB free; or "), or less device memory with a larger one. */
static enum status offer_disk(const struct session_plan *plan, const struct min_memory *with_disk, int64_t needed,
                              int64_t free_bytes, char **out) {
    const struct memory_options *limits = &plan->session->machine.limits;
    const char *folder = SETTINGS_HAVE(limits, disk_folder) ? limits->disk_folder : "DIR";
    bool given = SETTINGS_HAVE(limits, disk_folder);
    int64_t bytes = with_disk->tier_bytes[TIER_DISK];
    char size[SIZE_TEXT], memory[64];
    if (!with_disk->fits && (!given || with_disk->min_bytes >= needed))
        *out = mem_string("");
    else if (!with_disk->fits) {
        TRY(describe_memory(plan, with_disk->min_bytes, memory));
        *out = mem_format("%s with a larger --disk; or ", memory);
    } else if (!given)
        *out = mem_format("--disk DIR with %s free; or ", size_print_up(bytes, size));
    else if (free_bytes >= bytes)
        *out = mem_format("--disk %s:%s; or ", folder, size_print_option(bytes, size));
    else
        *out = mem_format("--disk DIR on a file system with %s free; or ", size_print_up(bytes, size));
    return *out ? STATUS_OK : STATUS_FAILED;
}

/* Hints at all that would fit: a smaller plan, a disk, more memory. Each of them was compiled. `disk`: about the disk
 * that was given. */
static enum status hint_fit(const struct session_plan *plan, const struct plan *other, const struct min_memory *min,
                            int64_t needed, const char *offer, const char *disk) {
    char size[SIZE_TEXT], change[128], memory[64], small_memory[64], less[256] = "", small[256] = "";
    describe_change(&plan->chosen, other, change);
    TRY(describe_memory(plan, needed, memory));
    TRY(describe_memory(plan, min->min_bytes, small_memory));
    bool saves = min->min_bytes < needed && strcmp(memory, small_memory) != 0;
    if (min->fits) snprintf(less, sizeof less, "%s would fit (%s); or ", change, size_print(min->min_bytes, size));
    if (!min->fits && saves) snprintf(small, sizeof small, "; or %s with %s", small_memory, change);
    return status_hint(STATUS_NO_FIT, "%s%s%s%s%s", less, offer, memory, small, disk);
}

static enum status refuse_device(const struct session_plan *plan, int64_t needed) {
    const struct machine *machine = &plan->session->machine;
    struct min_memory min = {.min_bytes = needed}, with_disk;
    struct plan other;
    char need[SIZE_TEXT], over[SIZE_TEXT], there[SIZE_TEXT], *offer = NULL, *disk = NULL;
    int64_t capacity = machine->capacity_bytes[TIER_DEVICE], free_bytes = 0;
    enum status status;
    TRY(find_fit(plan, &other, &min));
    TRY(find_with_disk(plan, &with_disk));
    bool given = SETTINGS_HAVE(&machine->limits, disk_folder);
    if (given) TRY(machine_measure_disk(machine->limits.disk_folder, &free_bytes));
    TRY_GOTO(status, offer_disk(plan, &with_disk, needed, free_bytes, &offer), done);
    if (given) TRY_GOTO(status, describe_disk(plan, free_bytes, &disk), done);
    machine->backend->set_threads(plan->chosen.threads);
    status_set(STATUS_NO_FIT, "no plan fits: the device tier needs %s, %s more than the %s that there are",
               size_print(needed, need), size_print(needed - capacity, over), size_print(capacity, there));
    status = hint_fit(plan, &other, &min, needed, offer, disk ? disk : "");
done:
    mem_free(offer);
    mem_free(disk);
    return status;
}

enum status session_plan_check_memory(const struct session_plan *plan) {
    const struct machine *machine = &plan->session->machine;
    for (enum tier tier = TIER_HOST; tier < TIER_COUNT; tier++)
        TRY(check_lower_tier(plan, tier));
    int64_t bytes = plan->programs.tier_bytes[TIER_DEVICE];
    if (bytes <= machine->capacity_bytes[TIER_DEVICE]) return STATUS_OK;
    return refuse_device(plan, plan->request.policy_fixed ? bytes : plan->min_bytes);
}
