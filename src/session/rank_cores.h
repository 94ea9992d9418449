/* Ranks on the same cores: without this each would start a thread on all of them. */
#ifndef BALLAST_SESSION_RANK_CORES_H
#define BALLAST_SESSION_RANK_CORES_H

#include "comm/comm.h"

/* Collective. How many ranks may run on cores of this process's, itself included, for plan_options.core_sharers: 1
 * where the launcher bound each rank to cores of its own. */
enum status rank_cores_count_sharers(struct comm *comm, int *out);

#endif
