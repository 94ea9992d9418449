/* Synthetic costs: machines of several kinds, for tests of decisions that depend on costs. */
#pragma once

#include "search/sim/costs.h"

/* How many times slower than the first machine's disk, copies and kernels are. */
#define SYNTHETIC_MACHINE_LIST(X)                                                                                      \
    X("even", 1, 1, 1)                                                                                                 \
    X("compute-bound", 1, 1, 30)                                                                                       \
    X("disk-bound", 30, 1, 1)                                                                                          \
    X("copy-bound", 3, 30, 1)

enum { SYNTHETIC_MACHINES = 4 };
const char *synthetic_machine_name(int machine);
/* By the operators' FLOPs and bytes, spread at random by `seed`, and so are the slowdowns, from 1 to 2. Ends the test
 * when out of memory. Free with costs_free. */
struct costs synthetic_costs(const struct graph *graph, int machine, uint64_t seed);
/* The same costs as a profile on a busy machine would have them: each kind of operator, each rate and latency, and what
 * each slowdown is above 1, times a factor from 1 - noise to 1 + noise. */
struct costs disturbed_costs(const struct graph *graph, const struct costs *costs, double noise, uint64_t seed);
