/* Simulates a step: a program and costs give a timeline, by discrete events.
 *
 * Files, in the order to read them: costs (seconds of an instruction), simulate (this; costs that agree with a measured
 * step), timeline (when each issue began and ended, measured or predicted, as a file, and live bytes over time),
 * step_summary (what a step's time is made of, in a few numbers). */
#pragma once

#include "search/sim/costs.h"
#include "search/sim/timeline.h"

/* One step in the steady state, that is with the deferred updates of a step before it, in the order and under the waits
 * of the runner. Deterministic. The caller frees with timeline_free. FAILED when out of memory or when a
 * transfer of the program was not measured (costs_check). */
enum status simulate(const struct program *program, const struct costs *costs, struct timeline *out);

/* The same of a pipeline: one rank of each stage, in the order of stages, each at the same place of the other axes. A
 * message begins when all stages that it is between are ready for it; its event, as in a measured step, when its own
 * rank is. Collectives of other groups are made as if all of them were ready. out[count]: the caller frees each. FAILED
 * as above, or where stages wait for each other. */
enum status simulate_stages(const struct program *const *programs, int count, const struct costs *costs,
                            struct timeline *out);

/* What the step's time is made of: seconds by stream and activity on the critical path, the chain of events that ends
 * last, in which each event began when the one before it ended. */
struct bound {
    enum stream_role role;
    enum activity activity;
    enum phase phase; /* of the compute stream's concurrent kernel: "disk writes during backward" */
    double seconds;   /* of the chain */
};
enum { BOUNDS_MAX = 4 };
/* out: the largest first; returns their number. The timeline may be measured or predicted. */
int timeline_bounds(const struct timeline *timeline, const struct costs *costs, struct bound out[BOUNDS_MAX]);

/* Costs made to agree with a step that was recorded: a run times its own instructions, and so learns what they take. */

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
