/* What a model's operators and the machine's tiers cost. The search for a policy, a run's
 * prediction, `ballast plan`, `simulate` and `profile` all ask here. What was measured before is in the cache
 * directory; a cluster file's rates stand in place of measured ones; costs on a device that is only described come from
 * its data sheet. Ranks of a node are measured as they will compute: as many at once as a node of the programs' mesh
 * has, in threads of the process that asks, whether the ranks are here or only planned for. A tier's copies are
 * measured where the machine has the tier or the programs use it. */
#pragma once

#include "comm/comm.h"
#include "machine/kernel_cost.h"
#include "profile/link_rates.h"
#include "profile/model.h"
#include "search/sim/simulate.h"
#include "session/programs.h"
#include "session/session.h"

/* Costs that all ranks know alike: rank 0 measures, and each rank fits them to its own steps (search/sim/simulate.h).
 */

/* Collective. `out` is a copy of rank 0's costs, which may have no kernels. Those of graphs of other numbers of nodes
 * than one rank has (`nodes`) are of no use to it: then no rank gets any. The caller frees, also after a failure. */
enum status rank_costs_share(struct comm *comm, const struct costs *mine, size_t nodes, struct costs *out);

/* The ranks as a sum; the comm is borrowed. */
struct fit_sum_over_ranks rank_costs_sum_over_ranks(struct comm *comm);

struct measuring {
    double budget_s;          /* for operators that no one has measured yet; 0: PROFILE_BUDGET_S */
    bool anew;                /* measures what is in the cache too */
    const char *cache_folder; /* NULL: the user's; else this one; "": none */
};

/* Costs of the main program's graph, with the machine that they are of. */
struct machine_costs {
    struct cluster cluster; /* with all rates */
    struct costs costs;
    struct profile_report report; /* all zero where nothing was or had to be measured */
};
/* Measures what is not known: some seconds the first time. The caller frees with machine_costs_free. */
enum status machine_costs_measure(const struct machine *machine, const struct programs *programs,
                                  const struct measuring *measuring, struct machine_costs *out);
void machine_costs_free(struct machine_costs *costs);

/* The same without measuring: `out` has no kernels where something of it is not known. The caller frees with
 * costs_free. */
enum status machine_costs_find(const struct machine *machine, const struct programs *programs, struct costs *out);
/* Of a described device: costs at an end of its range (machine/kernel_cost.h). The caller frees with costs_free. */
enum status machine_costs_described(const struct machine *machine, const struct programs *programs,
                                    enum roofline_case which, struct costs *out);

/* The best rates of the main program's kernels, forward and backward; at least 1. Links are not in them. */
struct layout_rates machine_costs_best_rates(const struct programs *programs, const struct costs *costs);

/* Before anything is compiled: costs of a step's graph that no program's go above. Kernels that no one has measured
 * cost nothing, and neither do operations between ranks outside of forward and backward. The caller frees with
 * costs_free. */
enum status machine_costs_bound(const struct machine *machine, const struct graph *graph, const struct plan *plan,
                                struct costs *out);

/* Only the machine's rates, with so many threads. */
enum status machine_measure(const struct machine *machine, int threads, const struct measuring *measuring,
                            struct cluster *out);
/* Only the rate of GEMMs in a recipe's dtype: the yardstick of MFU. In memory that the programs take anyway. */
enum status machine_matrix_rate(const struct machine *machine, const struct programs *programs,
                                const struct recipe *recipe, const struct measuring *measuring, double *flops_per_s);

/* Of what was measured between ranks the links, and the slowdowns of and by messages: 1 where nothing was. */
void machine_take_links(const struct cluster_rates *between, struct cluster_rates *rates);
/* Collective. Bandwidth and latency between the ranks, into machine->between: what is kept of the same ranks, else
 * measured and kept, by rank 0. */
enum status machine_find_links(struct comm *comm, const struct link_options *link, struct machine *machine);
/* Collective. Measures it and keeps it. */
enum status machine_measure_links(struct comm *comm, const struct link_options *link, struct machine *machine);
