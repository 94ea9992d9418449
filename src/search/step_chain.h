/* A training step's blocks as a chain (plan/chain.h), for the solver that says what to compute again. */
#ifndef BALLAST_SEARCH_STEP_CHAIN_H
#define BALLAST_SEARCH_STEP_CHAIN_H

#include "plan/chain.h"
#include "search/way.h"

/* One stage a block, embedding and head among them, in seconds and bytes of one grain. `keep`: the way that keeps all
 * (lookahead 0), whose groups tell what a block takes while it runs. BAD_INPUT as chain_check. The caller frees with
 * chain_free. */
enum status step_chain_create(const struct graph *graph, const struct costs *costs, const struct way *keep,
                              struct chain *out);

#endif
