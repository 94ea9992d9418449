/* Ranks on the same cores, or on cores of their own: how many threads each starts, and where all of them measure. */
#ifndef BALLAST_SESSION_RANK_CORES_H
#define BALLAST_SESSION_RANK_CORES_H

#include "comm/comm.h"
#include "profile/contention.h"

/* Collective. How many ranks may run on cores of this process's, itself included, for plan_options.core_sharers: 1
 * where the launcher bound each rank to cores of its own. */
enum status rank_cores_count_sharers(struct comm *comm, int *out);

/* Collective. The ranks on this host, to measure as many at once, for rank 0: with their cores where the launcher bound
 * them to different ones. Alone, with a note, where it lets no rank use another's. */
enum status rank_cores_find_contention(struct comm *comm, struct contention *out);

#endif
