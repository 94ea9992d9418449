/* Costs made to agree with a step that was recorded: a run times its own instructions, and so learns what they take. */
#pragma once

#include "search/sim/simulate.h"

/* Those who have the same costs and fit them together, each to a step of a program of its own: ranks. `add` makes each
 * of `count` numbers the sum of all of theirs, the same on all; `mine` is how the caller fared so far, and what it
 * returns the first status that is not OK. */
struct fit_sum_over_ranks {
    enum status (*add)(void *payload, enum status mine, double *numbers, size_t count);
    void *payload;
};

/* Multiplies the costs of what recorded programs do, kind by kind, by the quotient of its recorded seconds and those
 * that a simulation of the program gives. A kind is the kernels of one operator that had the same cost, copies from one
 * tier to another, or zeros and sums. Recorded and simulated instructions are both slowed down by concurrent ones;
 * since other costs make other things concurrent, the program is simulated again until they agree. Costs of what
 * the programs do not do, of operations between ranks, and slowdowns stay.
 *
 * `recorded`: a step of `program`, of whose events the lengths count; NULL: none. `ranks` (NULL: none): all of it
 * call together, with the same costs of graphs of the same nodes, and have the same costs after it. FAILED without
 * memory, or where a transfer of the program has no rate. */
enum status costs_fit(const struct program *program, const struct timeline *recorded,
                      const struct fit_sum_over_ranks *ranks, struct costs *costs);
