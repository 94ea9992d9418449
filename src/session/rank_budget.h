/* What each of several ranks may take of a machine's memory and disk. */
#ifndef BALLAST_SESSION_RANK_BUDGET_H
#define BALLAST_SESSION_RANK_BUDGET_H

#include "comm/comm.h"
#include "session/machine.h"

/* Collective. Divides measured capacities among the ranks on this host, after each rank's CLUSTER_PROCESS_BYTES.
 * Capacities from options, and those of connected devices (rank_devices.h), are a rank's already. Then all ranks get
 * the least capacity of any rank, since all make the same plan. Does nothing on one rank. */
enum status rank_budget_share(struct comm *comm, struct machine *machine);
/* Collective: the least that one of them has. */
enum status rank_budget_min(struct comm *comm, int64_t *bytes);
/* As rank_budget_share, for ranks that are only planned for, `per_node` on a machine like this one. A device with
 * memory of its own is one rank's. */
void rank_budget_plan(int per_node, struct machine *machine);

#endif
