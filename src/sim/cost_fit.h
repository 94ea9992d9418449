/* Costs made to agree with a step that was recorded: a run times its own instructions, and so learns what they take. */
#ifndef BALLAST_SIM_COST_FIT_H
#define BALLAST_SIM_COST_FIT_H

#include "sim/simulate.h"

/* Multiplies the costs of what the recorded program does, kind by kind, by the quotient of its recorded seconds and
 * those that a simulation of the program gives. A kind is the kernels of one operator that had the same cost, copies
 * from one tier to another, or zeros and sums. Recorded and simulated instructions are both slowed down by what is
 * beside them; since other costs put other things beside each other, the program is simulated again until they agree.
 * Costs of what the program does not do, of operations between ranks, and slowdowns stay. FAILED without memory, or
 * where a transfer of the program has no rate. */
enum status costs_fit(const struct timeline *recorded, struct costs *costs);

#endif
