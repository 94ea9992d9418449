#include "session/machine_costs.h"

#include <math.h>

#include "base/folder.h"
#include "compiler/program.h"
#include "profile/described_device.h"
#include "profile/profile.h"

/* ---- the same costs on all ranks ---- */

struct head {
    int64_t nodes;
    struct costs costs; /* pointers in it are rank 0's */
};

static bool all_have(const struct head *heads, int count) {
    for (int rank = 1; rank < count; rank++)
        if (heads[rank].nodes != heads[0].nodes) return false;
    return heads[0].costs.kernels != NULL;
}

static enum status gather_heads(struct comm *comm, const struct head *mine, struct head *first, bool *same) {
    enum status status = STATUS_OK;
    AUTO_FREE struct head *heads = ranks_gather(comm, mine, sizeof *mine, &status);
    if (heads) *first = heads[0], *same = all_have(heads, mesh_ranks(&comm->mesh));
    return status;
}

static enum status share_kernels(struct comm *comm, const struct kernel_cost *mine, int32_t count,
                                 struct kernel_cost **out) {
    size_t bytes = (size_t)count * sizeof **out;
    *out = mem_array((size_t)count, sizeof **out);
    TRY(comm_agree(comm, *out ? STATUS_OK : STATUS_FAILED));
    if (comm->rank == 0) memcpy(*out, mine, bytes);
    return comm_share(comm, *out, bytes);
}

enum status rank_costs_share(struct comm *comm, const struct costs *mine, size_t nodes, struct costs *out) {
    const struct head head = {(int64_t)nodes, *mine};
    struct head first;
    bool same = false;
    *out = (struct costs){0};
    TRY(gather_heads(comm, &head, &first, &same));
    if (!same) return STATUS_OK;
    bool on_host = first.costs.host_kernels != NULL;
    *out = first.costs;
    out->kernels = out->host_kernels = NULL;
    TRY(share_kernels(comm, mine->kernels, out->count, &out->kernels));
    return on_host ? share_kernels(comm, mine->host_kernels, out->count, &out->host_kernels) : STATUS_OK;
}

static enum status add_ranks(void *payload, enum status mine, double *numbers, size_t count) {
    struct comm *comm = payload;
    AUTO_FREE double *each = ranks_gather(comm, numbers, count * sizeof *numbers, &mine);
    for (size_t i = 0; i < count && each; i++) {
        numbers[i] = 0;
        for (int rank = 0; rank < mesh_ranks(&comm->mesh); rank++)
            numbers[i] += each[(size_t)rank * count + i];
    }
    return mine;
}

struct fit_sum_over_ranks rank_costs_sum_over_ranks(struct comm *comm) {
    return (struct fit_sum_over_ranks){add_ranks, comm};
}

/* ---- costs on this machine ---- */

/* Sets `out` to the machine of the cluster file, or to this one, without the rates that are not measured yet. */
static enum status describe(const struct machine *machine, struct cluster *out) {
    if (!machine->has_cluster) return machine->backend->measure(out);
    *out = machine->cluster;
    return STATUS_OK;
}

static bool has_tier(const struct machine *machine, const struct programs *programs, enum tier tier) {
    return machine->capacity_bytes[tier] > 0 || (programs && programs->tier_bytes[tier] > 0);
}

/* The bytes that each concurrent rank may use to measure: at most a rank's arena, and at most the tensors of the graph.
 * Without a graph only the arena is the limit. 0 (no limit) on a device with its own memory. */
static int64_t memory_for(const struct machine *machine, const struct graph *graph) {
    int64_t bytes = machine->capacity_bytes[TIER_DEVICE];
    if (machine->backend->memory) return 0;
    if (graph && profile_memory_of(machine->backend, graph) < bytes) bytes = profile_memory_of(machine->backend, graph);
    return bytes > 0 ? bytes : 1;
}

enum { CACHE_BYTES = 4096 };

/* Input of a measurement. */
struct request {
    char cache[CACHE_BYTES]; /* its directory; "": none */
    struct contention contention;
    struct profile_options options;
};

/* The mesh of a step's program. */
static struct mesh mesh_of(const struct programs *programs) {
    const struct mesh one = {1, 1}, *mesh = &programs_main(programs)->program->place.mesh;
    return mesh->nodes > 0 ? *mesh : one;
}

/* The number of concurrent ranks: those of the programs' mesh on a node, connected or planned. */
static struct contention contention_of(const struct machine *machine, const struct mesh *mesh) {
    if (mesh->nodes == machine->mesh.nodes && mesh->per_node == machine->mesh.per_node) return machine->contention;
    return (struct contention){.members = mesh->per_node < CONTENTION_MAX ? mesh->per_node : CONTENTION_MAX};
}

static enum status begin_request(const struct machine *machine, const struct programs *programs,
                                 const struct measuring *measuring, int threads, struct request *out) {
    const struct memory_options *limits = &machine->limits;
    bool disk = has_tier(machine, programs, TIER_DISK) && SETTINGS_HAVE(limits, disk_folder);
    AUTO_FREE char *cache = measuring->cache_folder ? mem_string(measuring->cache_folder) : cache_folder();
    if (!cache) return STATUS_FAILED;
    if (snprintf(out->cache, sizeof out->cache, "%s", cache) >= CACHE_BYTES)
        return status_set(STATUS_FAILED, "the cache directory: %s", strerror(ENAMETOOLONG));
    struct mesh mesh = programs ? mesh_of(programs) : machine->mesh;
    out->contention = contention_of(machine, &mesh);
    out->options = (struct profile_options){
        .disk_folder = disk ? limits->disk_folder : NULL,
        .host_tier = has_tier(machine, programs, TIER_HOST),
        .cache_folder = out->cache[0] ? out->cache : NULL,
        .anew = measuring->anew,
        .threads = threads,
        .budget_s = measuring->budget_s,
        .memory_bytes = memory_for(machine, programs ? programs_main(programs)->graph : NULL),
        .contention = &out->contention,
    };
    return STATUS_OK;
}

void machine_take_links(const struct cluster_rates *between, struct cluster_rates *rates) {
    rates->links = between->links;
    for (int a = 0; a < ACTIVITY_COUNT; a++) {
        bool measured = between->links.mesh.nodes > 0;
        rates->slowdown[a][ACTIVITY_MESSAGE] = measured ? between->slowdown[a][ACTIVITY_MESSAGE] : 1;
        rates->slowdown[ACTIVITY_MESSAGE][a] = measured ? between->slowdown[ACTIVITY_MESSAGE][a] : 1;
    }
}

/* Adds link rates: measured here between ranks, else from the cluster file, else measured earlier on this machine. The
 * last is skipped without `options`. */
static enum status add_links(const struct machine *machine, const struct mesh *mesh,
                             const struct profile_options *options, struct cluster_rates *rates) {
    struct cluster_rates between = machine->between;
    if (between.links.mesh.nodes == 0 && machine->has_cluster) between = machine->cluster.rates;
    if (between.links.mesh.nodes == 0 && machine->has_cluster && machine->cluster.network.devices > 0)
        cluster_describe_links(&machine->cluster, &between);
    if (between.links.mesh.nodes == 0 && mesh_ranks(mesh) > 1 && options)
        TRY(link_rates_find(machine->backend, options, mesh, NULL, &between));
    machine_take_links(&between, rates);
    return STATUS_OK;
}

/* Also adds the times of the graph's own collectives at these link rates. */
static enum status add_collectives(const struct machine *machine, const struct programs *programs,
                                   const struct profile_options *options, struct costs *costs) {
    struct mesh mesh = mesh_of(programs);
    TRY(add_links(machine, &mesh, options, &costs->rates));
    costs_set_collectives(costs, programs_main(programs)->program);
    return STATUS_OK;
}

enum status machine_costs_measure(const struct machine *machine, const struct programs *programs,
                                  const struct measuring *measuring, struct machine_costs *out) {
    const struct executable *main = programs_main(programs);
    AUTO(machine_costs_free) struct machine_costs made = {.report = {.operators = 0}};
    struct request request;
    TRY(describe(machine, &made.cluster));
    if (machine->backend == &backend_described) {
        TRY(roofline_costs(main->graph, &made.cluster, ROOFLINE_EXPECTED, &made.costs));
        TRY(add_collectives(machine, programs, NULL, &made.costs));
    } else {
        TRY(begin_request(machine, programs, measuring, main->threads, &request));
        TRY(profile_model(machine->backend, main->graph, &made.cluster, &request.options, &made.costs, &made.report));
        TRY(add_collectives(machine, programs, &request.options, &made.costs));
    }
    *out = TAKE(made);
    return STATUS_OK;
}

void machine_costs_free(struct machine_costs *costs) {
    costs_free(&costs->costs);
    profile_report_free(&costs->report);
}

enum status machine_costs_described(const struct machine *machine, const struct programs *programs,
                                    enum roofline_case which, struct costs *out) {
    TRY(roofline_costs(programs_main(programs)->graph, &machine->cluster, which, out));
    return add_collectives(machine, programs, NULL, out);
}

enum status machine_costs_find(const struct machine *machine, const struct programs *programs, struct costs *out) {
    const struct executable *main = programs_main(programs);
    struct cluster cluster;
    bool found;
    *out = (struct costs){0};
    TRY(describe(machine, &cluster));
    if (machine->backend == &backend_described)
        return machine_costs_described(machine, programs, ROOFLINE_EXPECTED, out);
    struct request request;
    TRY(begin_request(machine, programs, &(struct measuring){0}, main->threads, &request));
    TRY(profile_model_kept(machine->backend, main->graph, &cluster, &request.options, out, &found));
    return found ? add_collectives(machine, programs, &request.options, out) : STATUS_OK;
}

struct layout_rates machine_costs_best_rates(const struct programs *programs, const struct costs *costs) {
    const struct graph *graph = programs_main(programs)->graph;
    struct layout_rates best = {.flops_per_s = 1, .bytes_per_s = 1};
    for (size_t n = 0; n < graph->nodes.count; n++) {
        struct op_cost cost;
        double seconds = costs->kernels[n].seconds;
        if (graph->nodes.items[n]->phase > PHASE_BACKWARD || seconds <= 0) continue;
        op_cost(graph->nodes.items[n], &cost);
        best.flops_per_s = fmax(best.flops_per_s, cost.flops / seconds);
        best.bytes_per_s = fmax(best.bytes_per_s, cost.bytes / seconds);
    }
    return best;
}

/* Costs for a lower bound on any step: kernels that were never measured cost nothing. */
static enum status find_kernels(const struct machine *machine, const struct graph *graph, const struct plan *plan,
                                struct cluster *cluster, struct costs *out) {
    struct request request;
    bool found;
    if (machine->backend == &backend_described) {
        TRY(roofline_costs(graph, cluster, ROOFLINE_EXPECTED, out));
        return add_links(machine, &plan->place.mesh, NULL, &out->rates);
    }
    TRY(begin_request(machine, NULL, &(struct measuring){0}, plan->threads, &request));
    request.contention = contention_of(machine, &plan->place.mesh);
    request.options.memory_bytes = memory_for(machine, graph);
    TRY(profile_model_kept(machine->backend, graph, cluster, &request.options, out, &found));
    if (found) return add_links(machine, &plan->place.mesh, &request.options, &out->rates);
    out->kernels = mem_array(graph->nodes.count, sizeof *out->kernels);
    out->count = (int32_t)graph->nodes.count;
    return out->kernels ? STATUS_OK : STATUS_FAILED;
}

enum status machine_costs_bound(const struct machine *machine, const struct graph *graph, const struct plan *plan,
                                struct costs *out) {
    struct program priced = {.place = plan->place, .lanes = plan->recipe.lanes, .flat = plan->policy.flat};
    struct cluster cluster;
    *out = (struct costs){0};
    TRY(describe(machine, &cluster));
    enum status status = find_kernels(machine, graph, plan, &cluster, out);
    if (status == STATUS_OK && out->rates.links.mesh.nodes > 0) status = collectives_of_graph(&priced, graph);
    if (status == STATUS_OK) costs_set_collectives(out, &priced);
    vec_free(&priced.collectives);
    return status;
}

enum status machine_measure(const struct machine *machine, int threads, const struct measuring *measuring,
                            struct cluster *out) {
    struct request request;
    TRY(describe(machine, out));
    TRY(begin_request(machine, NULL, measuring, threads, &request));
    return profile_machine(machine->backend, &request.options, out, NULL);
}

enum status machine_matrix_rate(const struct machine *machine, const struct programs *programs,
                                const struct recipe *recipe, const struct measuring *measuring, double *flops_per_s) {
    const struct executable *main = programs_main(programs);
    struct request request;
    TRY(begin_request(machine, programs, measuring, main->threads, &request));
    return profile_matrix_rate_kept(machine->backend, recipe->dtype, &request.options, flops_per_s);
}

static enum status keep_links(const struct comm *comm, const struct link_options *link, const struct machine *machine) {
    char way[LINK_WAY_BYTES];
    struct request request;
    TRY(begin_request(machine, NULL, &(struct measuring){0}, link->threads, &request));
    return link_rates_keep(machine->backend, &request.options, link_rates_way(comm, link, way), &machine->between);
}

enum status machine_measure_links(struct comm *comm, const struct link_options *link, struct machine *machine) {
    TRY(link_rates_measure(comm, machine->backend, link, &machine->between));
    return comm_agree(comm, comm->rank == 0 ? keep_links(comm, link, machine) : STATUS_OK);
}

static enum status find_kept_links(const struct comm *comm, const struct link_options *link,
                                   const struct machine *machine, struct cluster_rates *out) {
    char way[LINK_WAY_BYTES];
    struct request request;
    TRY(begin_request(machine, NULL, &(struct measuring){0}, link->threads, &request));
    return link_rates_find(machine->backend, &request.options, &comm->mesh, link_rates_way(comm, link, way), out);
}

enum status machine_find_links(struct comm *comm, const struct link_options *link, struct machine *machine) {
    struct cluster_rates kept = {.measured = false};
    TRY(comm_agree(comm, comm->rank == 0 ? find_kept_links(comm, link, machine, &kept) : STATUS_OK));
    TRY(comm_share(comm, &kept, sizeof kept));
    if (kept.links.mesh.nodes == 0) return machine_measure_links(comm, link, machine);
    machine->between = kept;
    return STATUS_OK;
}
