#include "profile/model.h"

#include <math.h>
#include <sys/vfs.h>

#include "base/clock.h"
#include "base/terminal.h"
#include "profile/graph_walk.h"
#include "profile/machine_rates.h"
#include "profile/operator_bench.h"
#include "profile/points.h"

/* Nodes with one key. */
struct entry {
    const char *key;
    const struct node *node; /* the first of them */
    struct operands operands;
    struct point_set points;
    bool on_host;                 /* may be in the host tier of a device with memory of its own, */
    struct point_set host_points; /* and these are its points there */
    struct measurement measurement;
};

struct profile {
    const struct backend *backend;
    const struct graph *graph; /* NULL: the machine alone */
    const struct profile_options *options;
    bool kept_only; /* nothing is measured: `lacks` tells whether that would be needed */
    bool lacks;
    struct profile_cache cache;
    struct scratch keys;
    VEC(struct entry) entries;
    int32_t *entry_of; /* by node id; -1: no kernel is called for it */
    struct points points, host_points;
    int64_t begin_ns;
    int32_t measured;
};

/* The update of a parameter, which a policy may place in the host tier. */
static bool may_be_on_host(const struct backend *backend, const struct node *node) {
    return backend->host && node->phase == PHASE_UPDATE && curve_fits(node);
}

static enum status find_entry(struct profile *profile, const struct node *node, int32_t *out) {
    *out = -1;
    if (node->op->collective) return STATUS_OK;
    struct entry entry = {.node = node, .on_host = may_be_on_host(profile->backend, node)};
    operands_find(profile->graph, node, &entry.operands);
    entry.key = operator_key(&entry.operands, &profile->keys);
    if (!entry.key) return STATUS_FAILED;
    for (size_t i = 0; i < profile->entries.count; i++)
        if (strcmp(profile->entries.items[i].key, entry.key) == 0) {
            *out = (int32_t)i;
            return STATUS_OK;
        }
    *out = (int32_t)profile->entries.count;
    TRY(points_add(&profile->points, &entry.operands, &entry.points));
    if (entry.on_host) TRY(points_add(&profile->host_points, &entry.operands, &entry.host_points));
    return vec_push(&profile->entries, entry);
}

/* An operator that takes longer is measured on a part of it. */
static const double LARGE_S = 0.3;

/* From the rate of GEMMs, rounded to a power of two so that the limit does not change with every measurement. A
 * device's operators are short and measured whole. */
static double large_flops(const struct profile *profile, const struct cluster *cluster) {
    const struct cluster_device *device = &cluster->device;
    double rate = profile->graph->dtype == DTYPE_BF16 ? device->bf16_flops_per_s : device->fp32_flops_per_s;
    return profile->backend->streams || rate <= 0 ? 0 : LARGE_S * exp2(rint(log2(rate)));
}

/* The rate of GEMMs must be known. */
static enum status find_entries(struct profile *profile, const struct cluster *cluster) {
    size_t nodes = profile->graph->nodes.count;
    profile->points.large_flops = large_flops(profile, cluster);
    if (!profile->backend->streams) profile->points.graph = profile->graph;
    TRY(mem_items(&profile->entry_of, nodes));
    for (size_t i = 0; i < nodes; i++)
        TRY(find_entry(profile, profile->graph->nodes.items[i], &profile->entry_of[i]));
    return STATUS_OK;
}

int64_t profile_memory_of(const struct backend *backend, const struct graph *graph) {
    return backend->memory ? 0 : walk_step_bytes(graph);
}

/* Measuring takes no more memory than training the model. */
static enum status open_cache(struct profile *profile) {
    const struct profile_options *options = profile->options;
    int64_t memory_bytes =
        options->memory_bytes > 0 ? options->memory_bytes : profile_memory_of(profile->backend, profile->graph);
    return profile_cache_open(profile->backend, options, memory_bytes, &profile->cache);
}

/* The number of distinct operators that are measured on a part. */
static int32_t count_parts(const struct profile *profile) {
    int32_t count = 0;
    for (size_t i = 0; i < profile->entries.count; i++)
        count += point_set_extrapolates(&profile->entries.items[i].points);
    return count;
}

static enum status measure_entries(struct profile *profile) {
    double budget_s = profile->options->budget_s > 0 ? profile->options->budget_s : PROFILE_BUDGET_S;
    int64_t end_ns = clock_now_ns() + (int64_t)(budget_s * 1e9);
    if (profile->backend->host)
        TRY(points_measure(&profile->host_points, profile->backend->host, &profile->cache, end_ns, &profile->measured));
    TRY(points_measure(&profile->points, profile->backend, &profile->cache, end_ns, &profile->measured));
    for (size_t i = 0; i < profile->entries.count; i++) {
        struct entry *entry = &profile->entries.items[i];
        entry->measurement = points_cost(&profile->points, &entry->operands, &entry->points);
    }
    return STATUS_OK;
}

/* Logged once, before the first measurement. */
static void note_machine(int32_t measured) {
    if (measured == 0) log_note("measuring this machine's products and memory (kept for the next time)");
}

/* Whether to measure costs that the cache lacks. */
static bool may_measure(struct profile *profile) {
    profile->lacks |= profile->kept_only;
    return !profile->kept_only;
}

static enum status find_products(struct profile *profile, struct cluster_device *device) {
    const struct {
        enum dtype dtype;
        double *flops_per_s;
    } products[] = {{DTYPE_F32, &device->fp32_flops_per_s}, {DTYPE_BF16, &device->bf16_flops_per_s}};
    struct measurement kept;
    for (int i = 0; i < 2; i++) {
        if (*products[i].flops_per_s > 0) continue;
        bool found = profile_cache_find_product(&profile->cache, products[i].dtype, &kept);
        if ((!found || measurement_noisy(&kept)) && !may_measure(profile)) continue;
        if (!found) note_machine(profile->measured);
        TRY(profile_find_matrix_rate(profile->backend, products[i].dtype, &profile->cache, products[i].flops_per_s,
                                     &profile->measured));
    }
    return STATUS_OK;
}

static bool has_rates(const struct cluster_rates *rates, const struct profile_options *options) {
    if (!rates->measured) return false;
    if (options->host_tier && rates->copy[TIER_DEVICE][TIER_HOST].bytes_per_s == 0) return false;
    return !options->disk_folder || rates->copy[TIER_DISK][TIER_DEVICE].bytes_per_s > 0;
}

/* The filesystem that the disk's directory is on tells one disk from another. In fresh memory. */
static char *rates_key(const struct profile_options *options) {
    struct statfs disk = {0};
    if (!options->disk_folder || statfs(options->disk_folder, &disk) != 0)
        return mem_format("host %d", options->host_tier);
    uint64_t id;
    memcpy(&id, &disk.f_fsid, sizeof id);
    return mem_format("host %d, disk %lx %016" PRIx64 " of %llu blocks", options->host_tier, (unsigned long)disk.f_type,
                      id, (unsigned long long)disk.f_blocks);
}

static enum status find_rates(struct profile *profile, struct cluster_rates *rates) {
    const struct profile_options *options = profile->options;
    if (has_rates(rates, options)) return STATUS_OK;
    const struct rates_options machine = {options->disk_folder, options->host_tier, options->threads,
                                          profile->cache.memory_bytes, &profile->cache.contention};
    AUTO_FREE char *key = rates_key(options);
    if (!key) return STATUS_FAILED;
    if (profile_cache_find_rates(&profile->cache, key, rates) && !rates_noisy(rates)) return STATUS_OK;
    if (!may_measure(profile)) return STATUS_OK;
    note_machine(profile->measured);
    if (options->disk_folder) log_note("measuring the disk of %s", options->disk_folder);
    profile->measured++;
    TRY(machine_rates_measure(profile->backend, &machine, rates));
    TRY(profile_cache_put_rates(&profile->cache, key, rates));
    (void)profile_cache_find_rates(&profile->cache, key, rates); /* the merge of the new and the old rates */
    return STATUS_OK;
}

static enum status find_machine(struct profile *profile, struct cluster *cluster) {
    profile->backend->set_threads(profile->options->threads);
    TRY(find_products(profile, &cluster->device));
    TRY(find_rates(profile, &cluster->rates));
    profile->backend->set_threads(profile->options->threads);
    return STATUS_OK;
}

enum status profile_machine(const struct backend *backend, const struct profile_options *options,
                            struct cluster *cluster, int32_t *measured) {
    struct profile profile = {.backend = backend, .options = options};
    enum status status = profile_cache_open(backend, options, options->memory_bytes, &profile.cache);
    if (status == STATUS_OK) status = find_machine(&profile, cluster);
    profile_cache_close(&profile.cache);
    if (measured) *measured = profile.measured;
    return status;
}

/* The machine's rates come first: where one is missing, no node is looked up. */
static enum status find_all(struct profile *profile, struct cluster *cluster) {
    TRY(open_cache(profile));
    TRY(find_machine(profile, cluster));
    return profile->lacks ? STATUS_OK : find_entries(profile, cluster);
}

/* Arithmetic bounds the operator where its FLOPs a byte exceed the machine's FLOPs a second over its bandwidth; else
 * memory does. */
static enum activity activity_of(const struct node *node, const struct cluster *cluster) {
    const struct cluster_device *device = &cluster->device;
    bool bf16 = node->in[0] && node->in[0]->shape.dtype == DTYPE_BF16;
    double flops_per_s = bf16 ? device->bf16_flops_per_s : device->fp32_flops_per_s;
    struct op_cost cost;
    op_cost(node, &cost);
    return cost.flops / flops_per_s > cost.bytes / cluster->rates.zero.bytes_per_s ? ACTIVITY_PRODUCT
                                                                                   : ACTIVITY_STREAMING;
}

/* Next to a device, kernels on the host keep the host's memory busy, as copies do, and leave the device alone. */
static void fill_host_costs(const struct profile *profile, struct costs *costs) {
    for (int32_t i = 0; i < costs->count; i++) {
        costs->host_kernels[i] = costs->kernels[i];
        if (profile->entry_of[i] < 0) continue;
        const struct entry *entry = &profile->entries.items[profile->entry_of[i]];
        if (!entry->on_host) continue;
        struct measurement measurement = points_cost(&profile->host_points, &entry->operands, &entry->host_points);
        costs->host_kernels[i] = (struct kernel_cost){.seconds = measurement.seconds, .activity = ACTIVITY_COPY};
    }
}

/* The caller frees, also after a failure. */
static enum status fill_costs(const struct profile *profile, const struct cluster *cluster, struct costs *out) {
    size_t nodes = profile->graph->nodes.count;
    *out = (struct costs){.count = (int32_t)nodes,
                          .operators = (int32_t)profile->entries.count,
                          .extrapolated = count_parts(profile),
                          .rates = cluster->rates};
    TRY(mem_items(&out->kernels, nodes));
    for (size_t i = 0; i < nodes; i++) {
        if (profile->entry_of[i] < 0) continue;
        out->kernels[i] = (struct kernel_cost){
            .seconds = profile->entries.items[profile->entry_of[i]].measurement.seconds,
            .activity = activity_of(profile->graph->nodes.items[i], cluster),
        };
    }
    if (!profile->backend->host) return STATUS_OK;
    TRY(mem_items(&out->host_kernels, nodes));
    fill_host_costs(profile, out);
    return STATUS_OK;
}

static enum status fill_report(struct profile *profile, const struct costs *costs, struct profile_report *out) {
    *out = (struct profile_report){.operators = (int32_t)profile->entries.count, .measured = profile->measured};
    TRY(mem_items(&out->list, profile->entries.count));
    for (size_t i = 0; i < profile->entries.count; i++) {
        const struct entry *entry = &profile->entries.items[i];
        const struct node *node = entry->node;
        struct kernel_cost cost = costs->kernels[node->id];
        out->list[i] = (struct profiled_operator){node, cost.seconds, entry->measurement.spread, cost.activity,
                                                  point_set_extrapolates(&entry->points)};
        if (entry->measurement.spread <= out->noise) continue;
        out->noise = entry->measurement.spread;
        out->noisiest = node->name;
    }
    out->of_node = profile->entry_of;
    profile->entry_of = NULL;
    out->seconds = (double)(clock_now_ns() - profile->begin_ns) * 1e-9;
    return STATUS_OK;
}

static void close_profile(struct profile *profile) {
    profile_cache_close(&profile->cache);
    points_free(&profile->points);
    points_free(&profile->host_points);
    vec_free(&profile->entries);
    mem_free(profile->entry_of);
    scratch_free(&profile->keys);
}

enum status profile_model(const struct backend *backend, const struct graph *graph, struct cluster *cluster,
                          const struct profile_options *options, struct costs *out, struct profile_report *report) {
    struct profile profile = {.backend = backend,
                              .graph = graph,
                              .options = options,
                              .host_points = {.on_host = true},
                              .begin_ns = clock_now_ns()};
    struct costs costs = {0};
    enum status status;
    TRY_GOTO(status, find_all(&profile, cluster), failed);
    TRY_GOTO(status, measure_entries(&profile), failed);
    TRY_GOTO(status, fill_costs(&profile, cluster, &costs), failed);
    if (report) TRY_GOTO(status, fill_report(&profile, &costs, report), failed);
    close_profile(&profile);
    *out = costs;
    return STATUS_OK;
failed:
    close_profile(&profile);
    costs_free(&costs);
    return status;
}

/* Noisy ones would be measured again. */
static bool are_points_kept(const struct profile_cache *cache, const struct points *points) {
    bool kept = true;
    for (size_t i = 0; i < points->list.count && kept; i++) {
        struct measurement measurement;
        kept = profile_cache_find(cache, points->list.items[i].key, &measurement) && !measurement_noisy(&measurement);
    }
    return kept;
}

enum status profile_model_kept(const struct backend *backend, const struct graph *graph, struct cluster *cluster,
                               const struct profile_options *options, struct costs *out, bool *found) {
    struct profile profile = {
        .backend = backend, .graph = graph, .options = options, .kept_only = true, .host_points = {.on_host = true}};
    struct cluster known = *cluster;
    *out = (struct costs){0};
    enum status status = find_all(&profile, &known);
    *found = status == STATUS_OK && !profile.lacks && are_points_kept(&profile.cache, &profile.points) &&
             are_points_kept(&profile.cache, &profile.host_points);
    close_profile(&profile);
    return *found ? profile_model(backend, graph, cluster, options, out, NULL) : status;
}

void profile_report_free(struct profile_report *report) {
    mem_free(report->list);
    mem_free(report->of_node);
    *report = (struct profile_report){0};
}
