/* What a setup's operators and tiers cost, and the step that comes of it. */
#include <stdio.h>

#include "base/cache_folder.h"
#include "profile/profile_model.h"
#include "sim/simulate.h"
#include "train/train_setup.h"

/* A start waits for it: seconds for operators that no run before has measured. */
static const double OPERATORS_BUDGET_S = 1.0;

static enum status measure(struct train_setup *setup, const char *cache) {
    struct cluster cluster = setup->cluster;
    struct profile_report report;
    if (!cluster.rates.measured) TRY(cluster_measure(&cluster));
    snprintf(cluster.device.isa, sizeof cluster.device.isa, "%s", setup->backend->isa());
    const struct profile_options options = {
        .disk_folder =
            setup->capacity_bytes[TIER_DISK] > 0 && setup->limits.disk_folder[0] ? setup->limits.disk_folder : NULL,
        .host_tier = setup->capacity_bytes[TIER_HOST] > 0,
        .cache_folder = cache,
        .threads = setup->plan.recipe.threads,
        .budget_s = OPERATORS_BUDGET_S};
    TRY(profile_model(setup->backend, setup->main->graph, &cluster, &options, &setup->costs, &report));
    profile_report_free(&report);
    return STATUS_OK;
}

enum status train_setup_measure(struct train_setup *setup) {
    if (setup->costs.kernels) return STATUS_OK;
    char *cache = cache_folder();
    if (!cache) return STATUS_FAILED;
    enum status status = measure(setup, cache);
    mem_free(cache);
    return status;
}

enum status train_setup_predict(const struct train_setup *setup, struct step_summary *out) {
    struct timeline timeline;
    TRY(simulate(setup->main->program, &setup->costs, &timeline));
    step_summarise(&timeline, &setup->costs, out);
    timeline_free(&timeline);
    return STATUS_OK;
}
