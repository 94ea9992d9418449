/* Costs: the seconds of each kind of instruction, from which a program can be simulated (search/sim/simulate.h).
 *
 * An instruction alone takes its own seconds, plus rates.wake_s before them if its stream slept until another's
 * instruction ended. Concurrent instructions share the machine as measured: each advances at the rate 1 / (1 + sum over
 * the others of (slowdown[mine][theirs] - 1)). This is exact for n equal users of one resource (slowdown 2, rate 1 / n)
 * and for users of different ones (slowdown 1). */
#pragma once

#include "compiler/program.h"
#include "machine/kernel_cost.h"

struct kernel_cost {
    double seconds; /* one call with nothing concurrent, with operands as cold as in a step */
    enum activity activity;
};

struct costs {
    struct kernel_cost *kernels;      /* by node id of one graph; a collective operator has no kernel, and its messages'
                                       * time (costs_set_collectives) */
    struct kernel_cost *host_kernels; /* in the host tier; NULL: as on the device */
    int32_t count;
    int32_t operators, extrapolated; /* number of distinct ones; of these, measured on a part of their operands */
    struct cluster_rates rates;
};

/* Cost of a node's kernel in that tier. */
static inline struct kernel_cost costs_of_kernel(const struct costs *costs, const struct node *node, enum tier tier) {
    return (tier == TIER_HOST && costs->host_kernels ? costs->host_kernels : costs->kernels)[node->id];
}

/* Seconds of adding so many bytes to sums, and of a collective, flat or hierarchical (machine/links.h). A collective
 * takes the same time on all of its ranks. 0 if links were not measured. */
double costs_add_s(const struct cluster_rates *rates, int64_t bytes);
double costs_collective_s(const struct cluster_rates *rates, const struct rank_place *place, bool flat,
                          const struct program_collective *collective);
/* Sets the costs of collective operators to those of the program's collectives. Links are known. */
void costs_set_collectives(struct costs *costs, const struct program *program);
enum activity activity_of_copy(enum tier from, enum tier to);
/* Seconds and activity of an instruction with nothing concurrent, including rates.issue_s. A copy's follow from its
 * operands' tiers and its size, in complete blocks on the disk. */
struct kernel_cost costs_of(const struct costs *costs, const struct program *program,
                            const struct instruction *instruction);
/* Costs of all nodes on a target device, with limits and rates; updates in the host tier use the host's memory rate.
 * The caller frees with costs_free. */
enum status roofline_costs(const struct graph *graph, const struct cluster *cluster, enum roofline_case which,
                           struct costs *out);
/* FAILED naming the first kind of transfer in the program whose rate was not measured. */
enum status costs_check(const struct costs *costs, const struct program *program);
/* A copy with its own memory. The caller frees it, also after a failure. */
enum status costs_copy(const struct costs *costs, struct costs *out);
void costs_free(struct costs *costs);
