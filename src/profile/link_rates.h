/* Bandwidth and latency between ranks, measured by all of them together. */
#pragma once

#include "comm/comm.h"
#include "machine/links.h"
#include "profile/profile.h"
#include "profile/rate_work.h"

/* Finds ranks near each other, from measurements between pairs. */

/* The ranks in rows of near ones (mesh_rows_search of plan/layout/sharding.h). None, with out->rows 0, where not
 * every pair was measured, or no pair is far. FAILED without memory. */
enum status link_rows_find(const struct cluster_links *links, struct link_rows *out);
/* Whether links->rows are the nodes of the mesh. */
bool link_rows_are_nodes(const struct cluster_links *links);

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

/* Conditions besides the mesh and the machine that decide the rates: the MPI, shared segments or messages, the largest
 * operation. On one host, ranks of the same way measure the same again. On several hosts it is "", since the next start
 * may get other hosts. */
enum { LINK_WAY_BYTES = 400 };
const char *link_rates_way(const struct comm *comm, const struct link_options *options, char way[LINK_WAY_BYTES]);

/* Keeps what was measured in the cache of these options, for ranks of the same way, and for processes without ranks
 * that plan for the same mesh on this machine. */
enum status link_rates_keep(const struct backend *backend, const struct profile_options *options, const char *way,
                            const struct cluster_rates *rates);
/* Fills `rates` as link_rates_measure did, or leaves it unchanged. With `way` NULL, without ranks, it uses the last
 * measurement. Otherwise it uses the measurement of that way, unless it was noisy. */
enum status link_rates_find(const struct backend *backend, const struct profile_options *options,
                            const struct mesh *mesh, const char *way, struct cluster_rates *rates);
