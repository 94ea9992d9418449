#include "session/machine_costs.h"

#include "base/cache_folder.h"
#include "profile/described_device.h"
#include "profile/profile.h"
#include "profile/roofline.h"

/* The machine of the cluster file, or this one, without the rates that were not measured yet. */
static enum status describe(const struct machine *machine, struct cluster *out) {
    if (!machine->has_cluster) return machine->backend->measure(out);
    *out = machine->cluster;
    return STATUS_OK;
}

static bool has_tier(const struct machine *machine, const struct programs *programs, enum tier tier) {
    return machine->capacity_bytes[tier] > 0 || (programs && programs->tier_bytes[tier] > 0);
}

static struct profile_options options_of(const struct machine *machine, const struct programs *programs,
                                         const struct measuring *measuring, int threads, const char *cache) {
    bool disk = has_tier(machine, programs, TIER_DISK) && machine->limits.disk_folder[0];
    return (struct profile_options){.disk_folder = disk ? machine->limits.disk_folder : NULL,
                                    .host_tier = has_tier(machine, programs, TIER_HOST),
                                    .cache_folder = cache,
                                    .anew = measuring->anew,
                                    .threads = threads,
                                    .budget_s = measuring->budget_s};
}

enum status machine_costs_measure(const struct machine *machine, const struct programs *programs,
                                  const struct measuring *measuring, struct machine_costs *out) {
    const struct executable *main = programs_main(programs);
    struct machine_costs made = {.report = {.operators = 0}};
    TRY(describe(machine, &made.cluster));
    if (machine->backend == &backend_described) {
        TRY(roofline_costs(main->graph, &made.cluster, &made.costs));
        *out = made;
        return STATUS_OK;
    }
    char *cache = cache_folder();
    if (!cache) return STATUS_FAILED;
    struct profile_options options = options_of(machine, programs, measuring, main->threads, cache);
    enum status status =
        profile_model(machine->backend, main->graph, &made.cluster, &options, &made.costs, &made.report);
    mem_free(cache);
    if (status == STATUS_OK) *out = made;
    return status;
}

void machine_costs_free(struct machine_costs *costs) {
    costs_free(&costs->costs);
    profile_report_free(&costs->report);
}

enum status machine_costs_find(const struct machine *machine, const struct programs *programs, struct costs *out) {
    const struct executable *main = programs_main(programs);
    struct cluster cluster;
    bool found;
    *out = (struct costs){0};
    TRY(describe(machine, &cluster));
    if (machine->backend == &backend_described) return roofline_costs(main->graph, &cluster, out);
    char *cache = cache_folder();
    if (!cache) return STATUS_FAILED;
    struct profile_options options = options_of(machine, programs, &(struct measuring){0}, main->threads, cache);
    enum status status = profile_model_kept(machine->backend, main->graph, &cluster, &options, out, &found);
    mem_free(cache);
    return status;
}

enum status machine_measure(const struct machine *machine, int threads, const struct measuring *measuring,
                            struct cluster *out) {
    TRY(describe(machine, out));
    char *cache = cache_folder();
    if (!cache) return STATUS_FAILED;
    struct profile_options options = options_of(machine, NULL, measuring, threads, cache);
    enum status status = profile_machine(machine->backend, &options, out, NULL);
    mem_free(cache);
    return status;
}

enum status machine_matrix_rate(const struct machine *machine, const struct programs *programs,
                                const struct recipe *recipe, double *flops_per_s) {
    char *cache = cache_folder();
    if (!cache) return STATUS_FAILED;
    int64_t memory_bytes = profile_memory_of(machine->backend, programs_main(programs)->graph);
    enum status status =
        profile_matrix_rate_kept(machine->backend, recipe->dtype, recipe->threads, memory_bytes, cache, flops_per_s);
    mem_free(cache);
    return status;
}
