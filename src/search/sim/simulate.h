/* Simulates a step: a program and costs give a timeline, by discrete events.
 *
 * Files, in the order to read them:
 * - costs: seconds of an instruction
 * - simulate: this file; also costs that agree with a measured step
 * - timeline: begin and end of each issue, measured or predicted, as a file; live bytes over time
 * - step_summary: a step's time in a few numbers */
#pragma once

#include "search/sim/costs.h"
#include "search/sim/timeline.h"

/* One step in the steady state, which includes the deferred updates of the step before, in the runner's order and with
 * its waits. Deterministic. The caller frees with timeline_free. FAILED if out of memory, or if a transfer of the
 * program was not measured (costs_check). */
enum status simulate(const struct program *program, const struct costs *costs, struct timeline *out);

/* Simulates a pipeline likewise: one rank of each stage, in the order of stages, all at the same place of the other
 * axes. A message begins when all its stages are ready. As in a measured step, its event begins when its own rank is
 * ready. Collectives of other groups begin as if all their ranks were ready. out[count]: the caller frees each. FAILED
 * as above, or if stages wait for each other in a cycle. */
enum status simulate_stages(const struct program *const *programs, int count, const struct costs *costs,
                            struct timeline *out);

/* Breakdown of the step's time: seconds by stream and activity on the critical path. This is the chain of events that
 * ends last, in which each event began when the one before it ended. */
struct bound {
    enum stream_role role;
    enum activity activity;
    enum phase phase; /* of the compute stream's concurrent kernel: "disk writes during backward" */
    double seconds;   /* on the chain */
};
enum { BOUNDS_MAX = 4 };
/* out: the largest first; returns their number. The timeline may be measured or predicted. */
int timeline_bounds(const struct timeline *timeline, const struct costs *costs, struct bound out[BOUNDS_MAX]);

/* Fits costs to a recorded step: a run learns the times of its instructions by timing them. */

/* Ranks that have the same costs and fit them together, each to a step of its own program. `add` sets each of `count`
 * numbers to the sum over all ranks, the same on all. `mine` is the caller's status so far; `add` returns the first
 * status that is not OK. */
struct fit_sum_over_ranks {
    enum status (*add)(void *payload, enum status mine, double *numbers, size_t count);
    void *payload;
};

/* Multiplies the costs of the recorded programs' instructions, kind by kind, by the ratio of recorded to simulated
 * seconds. A kind is the kernels of one operator that had the same cost, the copies from one tier to another, or zeros
 * and sums. Concurrent instructions slow down both recorded and simulated ones. New costs change which instructions are
 * concurrent, so the program is simulated again until both agree. Slowdowns, and costs of collectives and of other
 * instructions, do not change.
 *
 * `recorded`: a step of `program`, whose events' lengths count; NULL: none. `ranks` (NULL: none): all ranks call it
 * together, with the same costs of graphs of the same nodes, and have the same costs after it. FAILED without memory,
 * or if a transfer of the program has no rate. */
enum status costs_fit(const struct program *program, const struct timeline *recorded,
                      const struct fit_sum_over_ranks *ranks, struct costs *costs);
