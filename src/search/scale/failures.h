/* What failing nodes cost a training: checkpoints, work that is done again, restarts (J. T. Daly, "A higher order
 * estimate of the optimum checkpoint interval for restart dumps", Future Generation Computer Systems 22, 2006).
 * Failures come independently of each other, at any time, at a constant rate. */
#pragma once

#include "base/base.h"

struct failures {
    double node_mtbf_s;  /* mean time between failures of one node; above 0 */
    double checkpoint_s; /* for which a checkpoint holds the training up; at least 0 */
    double restart_s;    /* from a failure until the training goes on from its last checkpoint; at least 0 */
};

/* Seconds of work between two checkpoints for which the most of the time is work that lasts: where
 * (1 - x) exp(x + c) = 1, with x the interval and c a checkpoint, both of the time between failures of so many nodes.
 */
double failures_best_interval_s(const struct failures *failures, int64_t nodes);
/* Of the expected time, the part that is work which lasts, with a checkpoint after each `interval_s` of work:
 * t / (M exp(R / M) (exp((t + C) / M) - 1)), M the time between failures of so many nodes. 0 to 1. */
double failures_useful_part(const struct failures *failures, int64_t nodes, double interval_s);
