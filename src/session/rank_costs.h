/* Costs that all ranks know alike: rank 0 measures, and each rank fits them to its own steps (search/sim/cost_fit.h).
 */
#ifndef BALLAST_SESSION_RANK_COSTS_H
#define BALLAST_SESSION_RANK_COSTS_H

#include "comm/comm.h"
#include "search/sim/cost_fit.h"

/* Collective. `out` is a copy of rank 0's costs, which may have no kernels. Those of graphs of other numbers of nodes
 * than one rank has (`nodes`) are of no use to it: then no rank gets any. The caller frees, also after a failure. */
enum status rank_costs_share(struct comm *comm, const struct costs *mine, size_t nodes, struct costs *out);

/* The ranks as a sum; the comm is borrowed. */
struct fit_sum_over_ranks rank_costs_sum_over_ranks(struct comm *comm);

#endif
