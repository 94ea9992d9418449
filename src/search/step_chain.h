/* A training step's blocks as a chain (plan/chain.h), for the solver that chooses what to recompute. */
#ifndef BALLAST_SEARCH_STEP_CHAIN_H
#define BALLAST_SEARCH_STEP_CHAIN_H

#include "plan/chain.h"
#include "search/schedule_cost.h"

/* For each block, embedding and head among them, in seconds and bytes of one micro-batch. `keep`: the cost of the
 * schedule that keeps all (lookahead 0); its groups give each block's temporary bytes. BAD_INPUT as chain_check. The
 * caller frees with chain_free. */
enum status step_chain_create(const struct graph *graph, const struct costs *costs, const struct schedule_cost *keep,
                              struct chain *out);

#endif
