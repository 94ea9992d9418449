/* Seconds of a step's operations between ranks under a partition, one after the other: what no program of it goes
 * below. With p, g and o the widths of parameters, gradients and optimizer states, a step has of each chunk: each
 * gather of its parameters   an all-gather among p neighbours each round, gradients whole     an all-reduce of fp32
 * sums over all ranks gradients cut in g  a reduce-scatter over all ranks; then those with the same g-shard gather it
 *     gradients cut                   an all-gather of the norms' block sums (fp64) among g neighbours
 *     states cut finer than           an all-gather of new parameters among the ranks that hold one p-shard
 *     parameters */
#ifndef BALLAST_SEARCH_COLLECTIVE_SECONDS_H
#define BALLAST_SEARCH_COLLECTIVE_SECONDS_H

#include "search/states.h"
#include "search/step_cut.h"

struct collective_seconds {
    double reduce_s;         /* of a step: sums of gradients, in all rounds to which every rank adds something */
    double once_s;           /* of a step: block sums of norms, and new parameters */
    double gather_s;         /* of each chunk's parameters once */
    double gather_again_s;   /* of those that backward reads */
    double largest_gather_s; /* of the chunk that takes most */
};

/* All 0 on one rank. `flat`: policy.flat. */
enum status collective_seconds_measure(const struct step_cut *cut, const struct states *states,
                                       const struct partition *partition, bool flat, const struct cluster_rates *rates,
                                       struct collective_seconds *out);

#endif
