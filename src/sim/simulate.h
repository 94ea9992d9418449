/* Runs a program against costs in place of a machine. */
#ifndef BALLAST_SIM_SIMULATE_H
#define BALLAST_SIM_SIMULATE_H

#include "sim/costs.h"
#include "sim/timeline.h"

/* One step that makes the deferred updates of a step before it (the steady state), in the very order and under the very
 * waits that the runner has. Deterministic. The caller frees with timeline_free. FAILED when out of memory or when a
 * transfer of the program was not measured (costs_check). */
enum status simulate(const struct program *program, const struct costs *costs, struct timeline *out);

/* What the step's time is made of: the streams and activities whose work nothing else hides, in the order of seconds.
 * They are of the chain of events that ends last, each of which began when the one that it waited for ended. */
struct bound {
    enum stream_role role;
    enum activity activity;
    enum phase phase; /* of the compute stream's kernel beside it: "disk writes during backward" */
    double seconds;   /* of the chain */
};
enum { BOUNDS_MAX = 4 };
/* out: the largest first; returns their number. The timeline may be measured or predicted. */
int timeline_bounds(const struct timeline *timeline, const struct costs *costs, struct bound out[BOUNDS_MAX]);

#endif
