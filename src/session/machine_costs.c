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

/* By data sheet, where nothing was measured: a node's rate is shared by its devices. */
static struct cluster_links describe_links(const struct cluster_network *network) {
    struct cluster_links links = {.mesh = {1, (int)network->devices}};
    links.message[MESH_IN_NODE] = (struct transfer_rate){network->hop_s, network->link_bytes_per_s};
    links.message[MESH_ACROSS] =
        (struct transfer_rate){network->hop_s, network->node_bytes_per_s / (double)network->devices};
    return links;
}

/* What was measured here between ranks, else what the cluster file has, else what it says of the network. */
static void add_links(const struct machine *machine, struct cluster_rates *rates) {
    const struct cluster_rates *between = &machine->between;
    const struct cluster_network *network = &machine->cluster.network;
    if (between->links.mesh.nodes == 0 && machine->has_cluster) between = &machine->cluster.rates;
    rates->links = between->links;
    if (between->links.mesh.nodes == 0 && machine->has_cluster && network->devices > 0)
        rates->links = describe_links(network);
    for (int a = 0; a < ACTIVITY_COUNT; a++) {
        bool measured = between->links.mesh.nodes > 0;
        rates->slowdown[a][ACTIVITY_MESSAGE] = measured ? between->slowdown[a][ACTIVITY_MESSAGE] : 1;
        rates->slowdown[ACTIVITY_MESSAGE][a] = measured ? between->slowdown[ACTIVITY_MESSAGE][a] : 1;
    }
}

static bool has_tier(const struct machine *machine, const struct programs *programs, enum tier tier) {
    return machine->capacity_bytes[tier] > 0 || (programs && programs->tier_bytes[tier] > 0);
}

/* What measuring is told; `cache` is in fresh memory. */
struct asking {
    char *cache;
    struct profile_options options;
};

static enum status begin_asking(const struct machine *machine, const struct programs *programs,
                                const struct measuring *measuring, int threads, struct asking *out) {
    const struct memory_options *limits = &machine->limits;
    bool disk = has_tier(machine, programs, TIER_DISK) && SETTINGS_HAVE(limits, disk_folder);
    const char *cache = measuring->cache_folder;
    out->cache = cache ? mem_string(cache) : cache_folder();
    if (!out->cache) return STATUS_FAILED;
    out->options = (struct profile_options){
        .disk_folder = disk ? limits->disk_folder : NULL,
        .host_tier = has_tier(machine, programs, TIER_HOST),
        .cache_folder = out->cache[0] ? out->cache : NULL,
        .anew = measuring->anew,
        .threads = threads,
        .budget_s = measuring->budget_s,
    };
    return STATUS_OK;
}

enum status machine_costs_measure(const struct machine *machine, const struct programs *programs,
                                  const struct measuring *measuring, struct machine_costs *out) {
    const struct executable *main = programs_main(programs);
    struct machine_costs made = {.report = {.operators = 0}};
    struct asking asking;
    TRY(describe(machine, &made.cluster));
    if (machine->backend == &backend_described) {
        TRY(roofline_costs(main->graph, &made.cluster, &made.costs));
        add_links(machine, &made.costs.rates);
        *out = made;
        return STATUS_OK;
    }
    TRY(begin_asking(machine, programs, measuring, main->threads, &asking));
    enum status status =
        profile_model(machine->backend, main->graph, &made.cluster, &asking.options, &made.costs, &made.report);
    mem_free(asking.cache);
    add_links(machine, &made.costs.rates);
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
    if (machine->backend == &backend_described) {
        TRY(roofline_costs(main->graph, &cluster, out));
        add_links(machine, &out->rates);
        return STATUS_OK;
    }
    struct asking asking;
    TRY(begin_asking(machine, programs, &(struct measuring){0}, main->threads, &asking));
    enum status status = profile_model_kept(machine->backend, main->graph, &cluster, &asking.options, out, &found);
    mem_free(asking.cache);
    add_links(machine, &out->rates);
    return status;
}

enum status machine_measure(const struct machine *machine, int threads, const struct measuring *measuring,
                            struct cluster *out) {
    struct asking asking;
    TRY(describe(machine, out));
    TRY(begin_asking(machine, NULL, measuring, threads, &asking));
    enum status status = profile_machine(machine->backend, &asking.options, out, NULL);
    mem_free(asking.cache);
    return status;
}

enum status machine_matrix_rate(const struct machine *machine, const struct programs *programs,
                                const struct recipe *recipe, double *flops_per_s) {
    char *cache = cache_folder();
    if (!cache) return STATUS_FAILED;
    const struct executable *main = programs_main(programs);
    int64_t memory_bytes = profile_memory_of(machine->backend, main->graph);
    enum status status =
        profile_matrix_rate_kept(machine->backend, recipe->dtype, main->threads, memory_bytes, cache, flops_per_s);
    mem_free(cache);
    return status;
}
