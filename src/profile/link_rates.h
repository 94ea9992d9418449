/* Bandwidth and latency between ranks, measured by all of them together. */
#pragma once

#include "comm/comm.h"
#include "profile/profile.h"
#include "profile/rate_work.h"

struct link_options {
    bool thorough; /* all operations and pairs of ranks; else only sums and gathers of all ranks, and the axes */
    int threads;   /* of kernels */
    int64_t memory_bytes;
};

/* Collective over all ranks. Fills rates->links, rates->noise, and the slowdowns of messages and by messages; does
 * nothing where there is one rank. All ranks get the same values: of a time the slowest rank's, of a slowdown the mean.
 * Takes some 0.3 s, thorough a second or two (a pair sends 40 MiB: a third of a second at 1 Gb/s), and for that
 * time a shared segment of LINK_MEMORY_BYTES, less where memory_bytes is less. Sets the backend's threads. FAILED, on
 * all ranks, where one has no memory or comm fails. */
#define LINK_MEMORY_BYTES ((int64_t)32 << 20)
enum status link_rates_measure(struct comm *comm, const struct backend *backend, const struct link_options *options,
                               struct cluster_rates *rates);

/* What else than the mesh and the machine decides the rates: the MPI, shared segments or messages, the largest
 * operation. Ranks of the same way measure the same again, if they are on one host: else it is "", since the next start
 * may be given other hosts. */
enum { LINK_WAY_BYTES = 400 };
const char *link_rates_way(const struct comm *comm, const struct link_options *options, char way[LINK_WAY_BYTES]);

/* Keeps what was measured in the cache of these options, for ranks of the same way, and for processes without ranks
 * that plan for the same mesh on this machine. */
enum status link_rates_keep(const struct backend *backend, const struct profile_options *options, const char *way,
                            const struct cluster_rates *rates);
/* Fills `rates` as link_rates_measure did, or leaves it as it is. `way` NULL, without ranks: what was measured last;
 * else what was measured that way, and was not noisy. */
enum status link_rates_find(const struct backend *backend, const struct profile_options *options,
                            const struct mesh *mesh, const char *way, struct cluster_rates *rates);

/* --- what the two files of it share --- */

/* One operation on the measurement's own memory. */
struct link_bench {
    struct comm *comm;
    struct comm_shared_segment shared_segment; /* data; what all-to-all writes; staging, twice as much */
    bool on_device;                            /* it is the device's memory */
    int64_t max_bytes;                         /* of data */
    double seconds, spread_s;                  /* of all trials, and of these times what was noise */
};
struct link_trial {
    enum comm_kind kind;
    struct comm_group group;
    bool in_place, flat;
    int64_t bytes;
};
/* Creates it, on all ranks of its group. */
enum status link_bench_begin(struct link_bench *bench, const struct link_trial *trial, struct comm_operation **out);
/* The largest of all ranks' values, and the mean, on all ranks. Also a barrier. */
enum status link_largest(struct comm *comm, double mine, double *out);
enum status link_mean(struct comm *comm, double mine, double *out);

/* Fills the slowdowns. `alone_s`: of the operation. */
enum status link_slowdown_measure(struct link_bench *bench, const struct link_trial *trial, double alone_s,
                                  const struct rate_machine *machine, struct cluster_rates *rates);
