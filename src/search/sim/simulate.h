/* Simulates a step: a program and costs give a timeline, by discrete events.
 *
 * Files, in the order to read them: costs (seconds of an instruction), simulate (this), timeline (when each issue began
 * and ended, measured or predicted), cost_fit (costs that agree with a measured one), bounds (what a step's time is
 * made of), timeline_json (its file), timeline_memory (live bytes over time), step_summary (a timeline in a few
 * numbers). */
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
