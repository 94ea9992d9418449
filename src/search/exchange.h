/* Seconds of a step's operations between ranks under a partition, one after the other: what no program of it goes below
 * (plan/partition_traffic.h says which there are). */
#ifndef BALLAST_SEARCH_EXCHANGE_H
#define BALLAST_SEARCH_EXCHANGE_H

#include "search/states.h"
#include "search/step_cut.h"

struct exchange {
    double reduce_s;         /* of a step: sums of gradients, in all rounds to which every rank adds something */
    double once_s;           /* of a step: block sums of norms, and new parameters */
    double gather_s;         /* of each chunk's parameters once */
    double gather_again_s;   /* of those that backward reads */
    double largest_gather_s; /* of the chunk that takes most */
};

/* All 0 on one rank. `flat`: policy.flat. */
enum status exchange_measure(const struct step_cut *cut, const struct states *states, const struct partition *partition,
                             bool flat, const struct cluster_rates *rates, struct exchange *out);

#endif
