#include "profile/link_rates.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/fault.h"
#include "collective/schedule.h"
#include "plan/layout/sharding.h"
#include "profile/cache.h"
#include "profile/rate_work.h"

/* A pair is far where another has at least so many times its bytes a second: less tells nothing of wires. */
static const double LINK_ROWS_FAR = 2;

/* One operation on the measurement's own memory. */
struct link_bench {
    struct comm *comm;
    struct comm_shared_segment shared_segment; /* data; the output of all-to-all; staging, twice as much */
    bool on_device;                            /* it is the device's memory */
    int64_t max_bytes;                         /* of data */
    double seconds, spread_s;                  /* of all trials, and the noise in these times */
};
struct link_trial {
    enum comm_kind kind;
    struct comm_group group;
    bool in_place, flat;
    int64_t bytes;
};

static const int64_t POINT_BYTES[] = {4 << 10, 256 << 10, 2 << 20, 8 << 20};
enum { POINT_SIZES = 4, REPEATS_SMALL = 12, REPEATS_LARGE = 4, SMALL = 0, LARGE = 2 };

/* Creates it, on all ranks of its group. */
static enum status link_bench_begin(struct link_bench *bench, const struct link_trial *trial,
                                    struct comm_operation **out) {
    char *base = bench->shared_segment.base;
    struct comm_spec spec = {.kind = trial->kind,
                             .group = trial->group,
                             .data = base,
                             .bytes = trial->bytes,
                             .out = base + bench->max_bytes,
                             .staging = base + 2 * bench->max_bytes,
                             .in_place = trial->in_place,
                             .on_device = bench->on_device,
                             .flat = trial->flat && !bench->on_device};
    int64_t staging_bytes = 0;
    TRY(comm_staging_bytes(bench->comm, &spec, &staging_bytes));
    BUG_IF(staging_bytes > 2 * bench->max_bytes, "staging of %lld bytes", (long long)staging_bytes);
    return comm_create(bench->comm, &spec, out);
}

/* The largest of all ranks' values, or with `mean` their mean, on all ranks. Also a barrier. */
static enum status reduce(struct comm *comm, double mine, bool mean, double *out) {
    struct comm_group group = comm_group_all(comm);
    AUTO_FREE double *all = NULL;
    double largest = mine, sum = 0;
    TRY(mem_items(&all, (size_t)group.count));
    enum status status = comm_all_gather(comm, &group, &mine, sizeof mine, all);
    for (int rank = 0; rank < group.count && status == STATUS_OK; rank++) {
        largest = fmax(largest, all[rank]);
        sum += all[rank];
    }
    *out = mean ? sum / group.count : largest;
    return status;
}

static enum status link_largest(struct comm *comm, double mine, double *out) { return reduce(comm, mine, false, out); }
static enum status link_mean(struct comm *comm, double mine, double *out) { return reduce(comm, mine, true, out); }

static bool is_worth(const struct cluster_links *links) {
    int ranks = mesh_ranks(&links->mesh);
    double min = 0, max = 0;
    for (int i = 0; i < links->pair_count; i++) {
        double rate = links->pairs[i].rate.bytes_per_s;
        if (rate <= 0) return false;
        if (i == 0 || rate < min) min = rate;
        if (rate > max) max = rate;
    }
    return ranks > 2 && links->pair_count == ranks * (ranks - 1) / 2 && max >= LINK_ROWS_FAR * min;
}

enum status link_rows_find(const struct cluster_links *links, struct link_rows *out) {
    struct device_pair pairs[LINK_PAIRS_MAX];
    struct mesh_rows found;
    *out = (struct link_rows){.rows = 0};
    if (!is_worth(links)) return STATUS_OK;
    for (int i = 0; i < links->pair_count; i++) {
        const struct link_pair *pair = &links->pairs[i];
        pairs[i] = (struct device_pair){pair->first, pair->second, pair->rate.latency_s, 1 / pair->rate.bytes_per_s};
    }
    TRY(mesh_rows_search(mesh_ranks(&links->mesh), pairs, links->pair_count, &found));
    out->rows = found.rows, out->columns = found.columns;
    for (int i = 0; i < found.rows * found.columns; i++)
        out->ranks[i] = found.devices[i];
    mesh_rows_free(&found);
    return STATUS_OK;
}

bool link_rows_are_nodes(const struct cluster_links *links) {
    if (links->rows.rows != links->mesh.nodes) return false;
    for (int i = 0; i < links->rows.rows * links->rows.columns; i++)
        if (links->rows.ranks[i] != i) return false;
    return true;
}

/* How much messages slow down kernels, and kernels messages: each rank repeats an operation in one thread and a kernel
 * in another, all ranks at once. */

enum { STARTS_MIN = 2, STARTS_MAX = 64 };
static const double INTERVAL_S = 0.03;

/* The thread that repeats the operation. Every rank repeats it as often, since they wait for each other. */
struct collective_run {
    struct comm_operation *operation;
    int starts;
    struct status_copy end;
    double seconds; /* of one */
    atomic_bool ended;
};

static void *repeat(void *argument) {
    struct collective_run *collective_run = argument;
    int64_t begin = clock_now_ns();
    enum status status = STATUS_OK;
    for (int i = 0; i < collective_run->starts && status == STATUS_OK; i++) {
        comm_start(collective_run->operation);
        status = comm_wait(collective_run->operation);
    }
    collective_run->seconds = (double)(clock_now_ns() - begin) * 1e-9 / collective_run->starts;
    status_save(status, &collective_run->end);
    atomic_store(&collective_run->ended, true);
    return NULL;
}

/* Repeats the kernel for a while, or until the collective has ended; seconds of one. */
static enum status repeat_kernel(struct rate_work *work, const struct collective_run *collective_run, double *out) {
    int64_t begin = clock_now_ns(), pieces = 0;
    for (bool more = true; more; pieces++) {
        TRY(rate_work_run(work));
        more = collective_run ? !atomic_load(&collective_run->ended)
                              : (double)(clock_now_ns() - begin) * 1e-9 < INTERVAL_S;
    }
    *out = (double)(clock_now_ns() - begin) * 1e-9 / (double)pieces;
    return STATUS_OK;
}

static enum status run_beside(struct rate_work *work, struct collective_run *collective_run, double *kernel_s) {
    pthread_t thread;
    int error = fault_point(FAULT_SUBMIT) ? errno : pthread_create(&thread, NULL, repeat, collective_run);
    if (error) return status_set(STATUS_FAILED, "cannot start a thread to measure with: %s", strerror(error));
    enum status status = repeat_kernel(work, collective_run, kernel_s);
    pthread_join(thread, NULL);
    return status == STATUS_OK ? status_restore(&collective_run->end) : status;
}

/* Slowdowns of this rank: of the kernel by messages, and of messages by the kernel. */
struct slowed {
    double kernel, messages;
};

static enum status measure_beside(struct link_bench *bench, struct rate_work *work, struct comm_operation *operation,
                                  double alone_s, struct slowed *out) {
    struct collective_run collective_run = {.operation = operation};
    double starts = fmin(STARTS_MAX, fmax(STARTS_MIN, INTERVAL_S / alone_s)), kernel_alone_s, kernel_s, together;
    collective_run.starts = (int)starts;
    TRY(rate_work_run(work));
    TRY(link_largest(bench->comm, 0, &together));
    TRY(repeat_kernel(work, NULL, &kernel_alone_s));
    TRY(link_largest(bench->comm, 0, &together));
    TRY(run_beside(work, &collective_run, &kernel_s));
    *out = (struct slowed){fmax(1, kernel_s / kernel_alone_s), fmax(1, collective_run.seconds / alone_s)};
    return STATUS_OK;
}

/* Next to one activity. A rank without memory for its kernel tells the others before they wait for it. */
static enum status measure_activity(struct link_bench *bench, struct comm_operation *operation, double alone_s,
                                    const struct rate_machine *machine, enum activity activity,
                                    struct cluster_rates *rates) {
    AUTO(rate_work_close) struct rate_work work = {.machine = NULL};
    struct slowed slowed = {1, 1};
    TRY(comm_agree(bench->comm, rate_work_open(machine, activity, 0, &work)));
    TRY(measure_beside(bench, &work, operation, alone_s, &slowed));
    TRY(link_mean(bench->comm, slowed.kernel, &rates->slowdown[activity][ACTIVITY_MESSAGE]));
    return link_mean(bench->comm, slowed.messages, &rates->slowdown[ACTIVITY_MESSAGE][activity]);
}

/* Fills the slowdowns. `alone_s`: of the operation. */
static enum status link_slowdown_measure(struct link_bench *bench, const struct link_trial *trial, double alone_s,
                                         const struct rate_machine *machine, struct cluster_rates *rates) {
    struct comm_operation *operation = NULL;
    enum status status;
    for (int a = 0; a < ACTIVITY_COUNT; a++)
        rates->slowdown[a][ACTIVITY_MESSAGE] = rates->slowdown[ACTIVITY_MESSAGE][a] = 1;
    TRY_GOTO(status, link_bench_begin(bench, trial, &operation), done);
    TRY_GOTO(status, measure_activity(bench, operation, alone_s, machine, ACTIVITY_PRODUCT, rates), done);
    TRY_GOTO(status, measure_activity(bench, operation, alone_s, machine, ACTIVITY_STREAMING, rates), done);
    /* Copies take memory's rate as streaming kernels do. */
    rates->slowdown[ACTIVITY_COPY][ACTIVITY_MESSAGE] = rates->slowdown[ACTIVITY_STREAMING][ACTIVITY_MESSAGE];
    rates->slowdown[ACTIVITY_MESSAGE][ACTIVITY_COPY] = rates->slowdown[ACTIVITY_MESSAGE][ACTIVITY_STREAMING];
done:
    if (operation) comm_free(operation);
    return status;
}

/* The median of several, after one that does not count. */
static enum status time_operation(struct comm_operation *operation, int repeats, struct measurement *out) {
    struct sample samples[REPEATS_SMALL];
    for (int i = -1; i < repeats; i++) {
        struct stopwatch watch = stopwatch_begin();
        comm_start(operation);
        TRY(comm_wait(operation));
        if (i >= 0) samples[i] = stopwatch_end(&watch);
    }
    *out = measurement_of(samples, repeats);
    return STATUS_OK;
}

/* Seconds of an operation, the slowest rank's. Ranks that are not `in` its group wait. */
static enum status time_trial(struct link_bench *bench, const struct link_trial *trial, bool in, double *out) {
    struct comm_operation *operation = NULL;
    struct measurement mine = {.seconds = 0};
    enum status status = STATUS_OK;
    TRY(link_largest(bench->comm, 0, out)); /* all begin together */
    if (in) {
        status = link_bench_begin(bench, trial, &operation);
        int repeats = trial->bytes <= POINT_BYTES[1] ? REPEATS_SMALL : REPEATS_LARGE;
        if (status == STATUS_OK) status = time_operation(operation, repeats, &mine);
        if (operation) comm_free(operation);
    }
    bench->seconds += mine.seconds;
    bench->spread_s += mine.seconds * mine.spread;
    return status == STATUS_OK ? link_largest(bench->comm, mine.seconds, out) : status;
}

static enum status add_point(struct link_bench *bench, struct link_point point, struct cluster_links *links) {
    struct comm *comm = bench->comm;
    struct comm_group group = mesh_group(&comm->mesh, comm->rank, point.group);
    point.in_place = bench->shared_segment.shared;
    if (point.kind == COMM_ALL_TO_ALL) point.bytes -= point.bytes % group.count;
    struct link_trial trial = {point.kind, group, point.in_place, point.flat, point.bytes};
    bool another = !point.flat || (!bench->on_device && links_flat_differs(&comm->mesh, &group, point.in_place));
    if (group.count == 1 || !another || links->point_count == LINK_POINTS_MAX) return STATUS_OK;
    TRY(time_trial(bench, &trial, true, &point.seconds));
    links->points[links->point_count++] = point;
    return STATUS_OK;
}

/* Whether a kind of group is one that MESH_ALL does not already stand for. */
static bool is_distinct(const struct mesh *mesh, enum mesh_group_kind group) {
    return group == MESH_ALL || (mesh->nodes > 1 && mesh->per_node > 1);
}

/* The collectives of partitioned states, flat or not. */
static bool is_for_shards(enum comm_kind kind) {
    return kind == COMM_ALL_GATHER || kind == COMM_REDUCE_SCATTER || kind == COMM_ALL_REDUCE;
}

static enum status measure_sizes(struct link_bench *bench, struct link_point point, struct cluster_links *links) {
    for (int size = 0; size < POINT_SIZES; size++) {
        point.bytes = POINT_BYTES[size];
        if (point.bytes <= bench->max_bytes) TRY(add_point(bench, point, links));
    }
    return STATUS_OK;
}

static enum status measure_points(struct link_bench *bench, bool thorough, struct cluster_links *links) {
    for (int group = MESH_ALL; group <= MESH_PEERS; group++)
        for (int kind = 0; kind < COMM_KINDS; kind++)
            for (int flat = 0; flat < 2; flat++) {
                struct link_point point = {.kind = (enum comm_kind)kind, .group = (enum mesh_group_kind)group};
                point.flat = flat;
                if (flat && !is_for_shards(point.kind)) continue;
                if (!thorough && !(group == MESH_ALL && is_for_shards(point.kind))) continue;
                if (!is_distinct(&bench->comm->mesh, point.group)) continue;
                TRY(measure_sizes(bench, point, links));
            }
    return STATUS_OK;
}

/* Latency and rate of one rank, of the times of two sizes of an operation that moves `moved` bytes in so many phases
 * when its data have large_bytes. */
static struct transfer_rate make_rate(const double seconds[2], int64_t small_bytes, int64_t large_bytes, int64_t moved,
                                      int phases) {
    double share = (double)moved / (double)large_bytes; /* bytes moved for one of data */
    double slope = (seconds[1] - seconds[0]) / (share * (double)(large_bytes - small_bytes));
    if (!(slope > 0)) slope = seconds[1] / (share * (double)large_bytes);
    double latency_s = seconds[0] - slope * share * (double)small_bytes;
    return (struct transfer_rate){fmax(latency_s, 0) / phases, 1 / slope};
}

/* All-gathers of all groups along an axis at once, by messages or in place. */
static enum status measure_axis(struct link_bench *bench, enum mesh_group_kind kind, bool in_place,
                                struct transfer_rate *out) {
    struct comm *comm = bench->comm;
    int64_t large = POINT_BYTES[LARGE] < bench->max_bytes ? POINT_BYTES[LARGE] : bench->max_bytes;
    const int64_t sizes[2] = {POINT_BYTES[SMALL], large};
    struct link_trial trial = {
        .kind = COMM_ALL_GATHER, .group = mesh_group(&comm->mesh, comm->rank, kind), .in_place = in_place};
    double seconds[2];
    if (trial.group.count == 1) return STATUS_OK;
    for (int i = 0; i < 2; i++) {
        trial.bytes = sizes[i];
        TRY(time_trial(bench, &trial, true, &seconds[i]));
    }
    int64_t moved = large / trial.group.count * (trial.group.count - 1);
    *out = make_rate(seconds, sizes[0], large, moved, in_place ? 1 : lane_levels(trial.group.count));
    return STATUS_OK;
}

static enum status measure_axes(struct link_bench *bench, struct cluster_links *links) {
    TRY(measure_axis(bench, MESH_NODE, false, &links->message[MESH_IN_NODE]));
    TRY(measure_axis(bench, MESH_PEERS, false, &links->message[MESH_ACROSS]));
    return links->shared ? measure_axis(bench, MESH_NODE, true, &links->read) : STATUS_OK;
}

/* The large ones are beyond what a network lets pass at once before its own rate holds (a token bucket's burst): the
 * first of them, which does not count, uses that up. */
static enum status add_pair(struct link_bench *bench, int first, int second, struct cluster_links *links) {
    struct link_trial trial = {.kind = COMM_BROADCAST, .group = mesh_group_pair(first, second)};
    const int64_t sizes[2] = {POINT_BYTES[SMALL], bench->max_bytes};
    double seconds[2];
    bool in = bench->comm->rank == first || bench->comm->rank == second;
    for (int i = 0; i < 2; i++) {
        trial.bytes = sizes[i];
        TRY(time_trial(bench, &trial, in, &seconds[i]));
    }
    links->pairs[links->pair_count++] =
        (struct link_pair){first, second, make_rate(seconds, sizes[0], sizes[1], sizes[1], 1)};
    return STATUS_OK;
}

/* With many ranks, only the first pairs are measured: those within the first node, and those of its first rank with
 * others. */
static enum status measure_pairs(struct link_bench *bench, struct cluster_links *links) {
    int ranks = mesh_ranks(&bench->comm->mesh);
    for (int first = 0; first < ranks; first++)
        for (int second = first + 1; second < ranks && links->pair_count < LINK_PAIRS_MAX; second++)
            TRY(add_pair(bench, first, second, links));
    return STATUS_OK;
}

static enum status measure(struct link_bench *bench, const struct backend *backend, const struct link_options *options,
                           struct cluster_rates *rates) {
    struct comm *comm = bench->comm;
    struct cluster_links links = {.mesh = comm->mesh,
                                  .shared = bench->shared_segment.shared && comm->mesh.per_node > 1};
    struct rate_machine machine = rate_machine_make(backend, options->threads, options->memory_bytes);
    struct link_trial sum = {.kind = COMM_ALL_REDUCE,
                             .group = comm_group_all(comm),
                             .in_place = bench->shared_segment.shared,
                             .bytes = bench->max_bytes};
    double alone_s;
    TRY(measure_axes(bench, &links));
    TRY(measure_points(bench, options->thorough, &links));
    if (options->thorough) TRY(measure_pairs(bench, &links));
    TRY(link_rows_find(&links, &links.rows));
    TRY(time_trial(bench, &sum, true, &alone_s));
    TRY(link_slowdown_measure(bench, &sum, alone_s, &machine, rates));
    rates->links = links;
    return link_largest(comm, bench->spread_s / bench->seconds, &rates->noise);
}

/* Measures device memory if collectives work on it. */
static enum status open_memory(struct link_bench *bench, const struct backend *backend) {
    struct comm *comm = bench->comm;
    int64_t bytes = 4 * bench->max_bytes;
    bench->on_device = comm->devices != NULL;
    if (!bench->on_device) return comm_shared_segment_open(comm, bytes, &bench->shared_segment);
    bench->shared_segment.bytes = bytes;
    return comm_agree(comm, backend->memory->take(TIER_DEVICE, bytes, &bench->shared_segment.base));
}

static void close_memory(struct link_bench *bench, const struct backend *backend) {
    if (bench->on_device)
        backend->memory->give_back(TIER_DEVICE, bench->shared_segment.base);
    else
        comm_shared_segment_close(bench->comm, &bench->shared_segment);
}

static int64_t find_max_bytes(const struct link_options *options) {
    int64_t bytes = POINT_BYTES[POINT_SIZES - 1];
    while (bytes > POINT_BYTES[SMALL] && 4 * bytes > options->memory_bytes)
        bytes /= 2;
    return bytes;
}

enum status link_rates_measure(struct comm *comm, const struct backend *backend, const struct link_options *options,
                               struct cluster_rates *rates) {
    if (mesh_ranks(&comm->mesh) == 1) return STATUS_OK;
    struct link_bench bench = {.comm = comm, .max_bytes = find_max_bytes(options)};
    backend->set_threads(options->threads);
    TRY(open_memory(&bench, backend));
    enum status status = measure(&bench, backend, options, rates);
    close_memory(&bench, backend);
    return status;
}

const char *link_rates_way(const struct comm *comm, const struct link_options *options, char way[LINK_WAY_BYTES]) {
    snprintf(way, LINK_WAY_BYTES, "%s, by %s, up to %lld bytes", comm->library,
             comm->devices         ? "devices"
             : comm->shares_memory ? "windows"
                                   : "messages",
             (long long)find_max_bytes(options));
    for (int rank = 1; rank < mesh_ranks(&comm->mesh); rank++)
        if (strcmp(comm->host[rank], comm->host[0]) != 0) way[0] = '\0';
    return way;
}

enum status link_rates_keep(const struct backend *backend, const struct profile_options *options, const char *way,
                            const struct cluster_rates *rates) {
    AUTO(profile_cache_close) struct profile_cache cache = {0};
    TRY(profile_cache_open(backend, options, 0, &cache));
    return profile_cache_put_links(&cache, way, rates);
}

enum status link_rates_find(const struct backend *backend, const struct profile_options *options,
                            const struct mesh *mesh, const char *way, struct cluster_rates *rates) {
    AUTO(profile_cache_close) struct profile_cache cache = {0};
    TRY(profile_cache_open(backend, options, 0, &cache));
    (void)profile_cache_find_links(&cache, mesh, way, rates);
    return STATUS_OK;
}
