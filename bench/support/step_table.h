/* The time of a step by operator, measured in the real step, between its instructions. */
#pragma once

#include <stdio.h>

#include "support/memory_rate.h"
#include "support/model_step.h"

enum { STEP_TABLE_STEPS = 100 /* at most */ };

struct step_table {
    VEC(int64_t) ns; /* by step and instruction */
    int64_t *now;    /* of the step under way */
    int64_t last;    /* when the instruction before ended */
    int64_t steps;
};

/* Zero-initialise. */
void step_table_close(struct step_table *table);
/* One step, watched. */
enum status step_table_run(struct step_table *table, struct model_step *step);
/* Seconds of a watched step, as the sum of its instructions' medians. */
double step_table_seconds(const struct step_table *table, const struct model_step *step);
/* One line for each operator and weight shape of each phase, the slowest first. The limit of an operator is its FLOPs
 * at `flops_per_s` or its bytes (op_cost) at the rate of MEMORY_ADDS, whichever takes longer; "over" is the time above
 * it. "of use" is the share of the same limit with the rate of the loop that uses memory as the operator does: that
 * only reads, only writes, overwrites what it does not read, or changes what it reads. Caches can beat a limit that
 * comes from bytes. "profiled" is what `costs` of the step's graph say, and "of it" how much longer the operator took
 * in the step. */
struct step_limits {
    double flops_per_s, bytes_per_s[MEMORY_USES];
};
enum status step_table_print(const struct step_table *table, const struct model_step *step, struct step_limits limits,
                             const struct costs *costs, FILE *out);
