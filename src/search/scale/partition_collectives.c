#include "search/scale/partition_collectives.h"

#include <math.h>

enum { WEIGHT_BYTES = 2 };

/* Data-parallel ranks, context ranks among them: they hold the same weights. */
static int64_t data_ranks(const struct training *job) { return job->layout.data * job->layout.context; }

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t data_in_node(const struct training *job) {
    int64_t in_node = job->cluster.network.devices / job->layout.tensor;
    return smaller(in_node > 0 ? in_node : 1, data_ranks(job));
}

/* Of so many neighbours, which fill a node first. */
static struct rank_group near_group(const struct training *job, int64_t ranks) {
    int64_t in_node = smaller(ranks, data_in_node(job));
    return (struct rank_group){in_node, (ranks + in_node - 1) / in_node};
}

/* Of so many, one from each of the groups of `apart` neighbours. */
static struct rank_group far_group(const struct training *job, int64_t ranks, int64_t apart) {
    int64_t in_node = data_in_node(job) / smaller(apart, data_in_node(job));
    in_node = smaller(in_node > 0 ? in_node : 1, ranks);
    return (struct rank_group){in_node, (ranks + in_node - 1) / in_node};
}

struct rank_group expert_group(const struct training *job) {
    return near_group(job, layout_expert_ranks(&job->layout));
}

/* In `calls` equal parts, one after the other. */
static struct collective_load collective_load_of(const struct fabric *fabric, enum comm_kind kind, double bytes,
                                                 int64_t calls, struct rank_group group) {
    double parts = calls > 0 ? (double)calls : 1;
    double seconds = parts * collective_s(fabric, kind, bytes / parts, group);
    double moved = (kind == COMM_ALL_REDUCE ? 2 : 1) * bytes;
    double busy = seconds > 0 ? moved / seconds / fabric->link_bytes_per_s : 0;
    return (struct collective_load){seconds, fmin(1, busy)};
}

/* Among `ranks` who hold shards of parameters, with calls of `piece_s` for the piece of each. */
static struct collective_load shard_collective(const struct training *job, const struct fabric *fabric,
                                               enum comm_kind kind, double bytes, int64_t ranks, double piece_s) {
    int64_t collectives = job->system.gathers > 0 ? job->system.gathers : 1;
    struct collective_load out = collective_load_of(fabric, kind, bytes, collectives, near_group(job, ranks));
    if (ranks > 1) out.seconds += (double)(collectives * ranks) * piece_s;
    return out;
}

static struct collective_load gather_among(const struct training *job, const struct fabric *fabric, double parameters,
                                           int64_t ranks, double piece_s) {
    return shard_collective(job, fabric, COMM_ALL_GATHER, WEIGHT_BYTES * parameters, ranks,
                            (double)job->system.gather_calls * piece_s);
}

struct collective_load partition_gather(const struct training *job, const struct fabric *fabric, double parameters,
                                        double piece_s) {
    return gather_among(job, fabric, parameters, job->layout.partition.parameters, piece_s);
}

struct collective_load partition_gather_again(const struct training *job, const struct fabric *fabric,
                                              double parameters, double piece_s) {
    int64_t second = job->layout.second_parameters;
    return gather_among(job, fabric, parameters, second > 0 ? second : job->layout.partition.parameters, piece_s);
}

/* Ballast scatters over all ranks, and those with the same shard gather it (search/collective_seconds.h). */
static struct collective_load own_scatter(const struct training *job, const struct fabric *fabric, double bytes) {
    int64_t cut = job->layout.partition.gradients, ranks = data_ranks(job);
    struct collective_load out = collective_load_of(fabric, COMM_REDUCE_SCATTER, bytes, 1, near_group(job, ranks));
    if (cut == ranks) return out;
    struct collective_load gather =
        collective_load_of(fabric, COMM_ALL_GATHER, bytes / (double)cut, 1, far_group(job, ranks / cut, cut));
    return (struct collective_load){out.seconds + gather.seconds, fmax(out.link_part, gather.link_part)};
}

struct collective_load partition_scatter(const struct training *job, const struct fabric *fabric, double parameters,
                                         double piece_s) {
    double bytes = (double)job->system.gradient_bytes * parameters;
    if (job->system.own_kernels) return own_scatter(job, fabric, bytes);
    return shard_collective(job, fabric, COMM_REDUCE_SCATTER, bytes, job->layout.partition.parameters,
                            (double)job->system.scatter_calls * piece_s);
}

/* Ranks that share an update which is cut `cut` times, of those that hold the same. */
static int64_t owners_of(int64_t cut, int64_t apart) { return cut > apart ? cut / apart : 1; }

/* Where every rank owns a part of the update and takes its new weights from an all-gather, the sum is scattered. */
struct collective_load partition_reduce(const struct training *job, const struct fabric *fabric, double parameters,
                                        bool experts) {
    const struct partition_triple *cut = &job->layout.partition;
    bool own = job->system.own_kernels;
    bool scatters = own ? cut->gradients > 1 : cut->optimizer == data_ranks(job) && !job->system.broadcasts;
    if (own && cut->parameters > 1) return (struct collective_load){0, 0}; /* partition_scatter adds over all */
    double bytes = (double)job->system.gradient_bytes * parameters / (double)cut->parameters;
    int64_t apart = experts ? layout_expert_ranks(&job->layout) : cut->parameters;
    struct rank_group group = far_group(job, data_ranks(job) / apart, apart);
    return collective_load_of(fabric, scatters ? COMM_REDUCE_SCATTER : COMM_ALL_REDUCE, bytes, 1, group);
}

struct collective_load partition_update(const struct training *job, const struct fabric *fabric, double parameters,
                                        bool experts, double broadcast_s) {
    const struct partition_triple *cut = &job->layout.partition;
    int64_t apart = experts ? layout_expert_ranks(&job->layout) : cut->parameters;
    int64_t owners = owners_of(cut->optimizer, apart);
    double bytes = WEIGHT_BYTES * parameters / (double)cut->parameters;
    struct collective_load out = collective_load_of(fabric, COMM_ALL_GATHER, bytes, 1, far_group(job, owners, apart));
    if (owners > 1 && job->system.broadcasts) out.seconds += (double)owners * broadcast_s;
    return out;
}
