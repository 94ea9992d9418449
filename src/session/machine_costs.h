/* Costs of a model's operators and of the machine's tiers. The policy search, a run's prediction, `ballast plan`,
 * `simulate` and `profile` all use them.
 *
 * The cache directory holds earlier measurements. A cluster file's rates replace measured ones. Costs of a target
 * device come from its data sheet. Ranks of a node are measured concurrently, as many as a node of the programs' mesh
 * has, in threads of the calling process. This holds for connected and planned ranks. A tier's copies are measured if
 * the machine has the tier or the programs use it. */
#pragma once

#include "comm/comm.h"
#include "machine/kernel_cost.h"
#include "profile/link_rates.h"
#include "profile/model.h"
#include "search/sim/simulate.h"
#include "session/programs.h"
#include "session/session.h"

/* Costs that are the same on all ranks: rank 0 measures, and each rank fits them to its own steps
 * (search/sim/simulate.h). */

/* Collective. `out` is a copy of rank 0's costs, which may have no kernels. If one rank's graph has another number of
 * nodes (`nodes`), no rank gets any kernels. The caller frees, also after a failure. */
enum status rank_costs_share(struct comm *comm, const struct costs *mine, size_t nodes, struct costs *out);

/* The ranks as a sum. The comm is borrowed. */
struct fit_sum_over_ranks rank_costs_sum_over_ranks(struct comm *comm);

struct measuring {
    double budget_s;          /* for operators that are not measured yet; 0: PROFILE_BUDGET_S */
    bool anew;                /* measures cached operators, too */
    const char *cache_folder; /* NULL: the user's cache; "": none */
};

/* Costs of the main program's graph, and the machine they belong to. */
struct machine_costs {
    struct cluster cluster; /* with all rates */
    struct costs costs;
    struct profile_report report; /* all zero if nothing was measured */
};
/* Finds costs and measures unknown ones, which takes some seconds the first time. The caller frees with
 * machine_costs_free. */
enum status machine_costs_measure(const struct machine *machine, const struct programs *programs,
                                  const struct measuring *measuring, struct machine_costs *out);
void machine_costs_free(struct machine_costs *costs);

/* Finds costs without measuring. `out` has no kernels if some are unknown. The caller frees with costs_free. */
enum status machine_costs_find(const struct machine *machine, const struct programs *programs, struct costs *out);
/* Costs of a target device at an end of its range (machine/kernel_cost.h). The caller frees with costs_free. */
enum status machine_costs_described(const struct machine *machine, const struct programs *programs,
                                    enum roofline_case which, struct costs *out);

/* The best rates of the main program's kernels, forward and backward; at least 1. Excludes links. */
struct layout_rates machine_costs_best_rates(const struct programs *programs, const struct costs *costs);

/* Lower bounds on the costs of a step's graph, before anything is compiled. Kernels that were never measured cost
 * nothing; neither do collectives outside of the forward and backward passes. The caller frees with costs_free. */
enum status machine_costs_bound(const struct machine *machine, const struct graph *graph, const struct plan *plan,
                                struct costs *out);

/* Measures only the machine's rates, with so many threads. */
enum status machine_measure(const struct machine *machine, int threads, const struct measuring *measuring,
                            struct cluster *out);
/* Only the rate of GEMMs in a recipe's dtype: the yardstick of MFU. In memory that the programs take anyway. */
enum status machine_matrix_rate(const struct machine *machine, const struct programs *programs,
                                const struct recipe *recipe, const struct measuring *measuring, double *flops_per_s);

/* Copies link rates, and the slowdowns of and by messages, from rates between ranks. Slowdowns are 1 if nothing was
 * measured. */
void machine_take_links(const struct cluster_rates *between, struct cluster_rates *rates);
/* Collective. Finds bandwidth and latency between the ranks, into machine->between. Rank 0 reads an earlier measurement
 * of the same ranks, or measures and saves it. */
enum status machine_find_links(struct comm *comm, const struct link_options *link, struct machine *machine);
/* Collective. Measures and saves it. */
enum status machine_measure_links(struct comm *comm, const struct link_options *link, struct machine *machine);
