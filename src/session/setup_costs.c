/* What a setup's operators and tiers cost, and the step that comes of it. */
#include <stdio.h>

#include "base/cache_folder.h"
#include "profile/described_device.h"
#include "profile/profile_model.h"
#include "profile/roofline.h"
#include "session/train_setup.h"
#include "sim/simulate.h"

/* A start waits for it: seconds for operators that no run before has measured. */
static const double OPERATORS_BUDGET_S = 1.0;

/* `found`: NULL: what is not kept is measured; else whether all was kept. */
static enum status find_costs(struct train_setup *setup, const char *cache, bool *found) {
    struct cluster cluster = setup->cluster;
    if (setup->backend == &backend_described) {
        if (found) *found = true;
        return roofline_costs(setup->main->graph, &cluster, &setup->costs);
    }
    const struct graph *graph = setup->main->graph;
    if (!cluster.rates.measured) TRY(setup->backend->measure(&cluster));
    snprintf(cluster.device.isa, sizeof cluster.device.isa, "%s", setup->backend->isa());
    const struct profile_options options = {
        .disk_folder =
            setup->capacity_bytes[TIER_DISK] > 0 && setup->limits.disk_folder[0] ? setup->limits.disk_folder : NULL,
        .host_tier = setup->capacity_bytes[TIER_HOST] > 0,
        .cache_folder = cache,
        .threads = setup->plan.recipe.threads,
        .budget_s = OPERATORS_BUDGET_S};
    return found ? profile_model_kept(setup->backend, graph, &cluster, &options, &setup->costs, found)
                 : profile_model(setup->backend, graph, &cluster, &options, &setup->costs, NULL);
}

static enum status find(struct train_setup *setup, bool *found) {
    if (setup->costs.kernels) return STATUS_OK;
    char *cache = cache_folder();
    if (!cache) return STATUS_FAILED;
    enum status status = find_costs(setup, cache, found);
    mem_free(cache);
    return status;
}

enum status train_setup_measure(struct train_setup *setup) { return find(setup, NULL); }

enum status train_setup_find_costs(struct train_setup *setup) {
    bool found;
    return find(setup, &found);
}

enum status train_setup_predict(const struct train_setup *setup, struct step_summary *out) {
    struct timeline timeline;
    *out = (struct step_summary){0};
    TRY(simulate(setup->main->program, &setup->costs, &timeline));
    step_summarise(&timeline, &setup->costs, out);
    timeline_free(&timeline);
    return STATUS_OK;
}
