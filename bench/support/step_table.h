/* Where the time of a step goes, operator by operator: watched in the real step, between its instructions. */
#ifndef BALLAST_BENCH_STEP_TABLE_H
#define BALLAST_BENCH_STEP_TABLE_H

#include <stdio.h>

#include "support/model_step.h"

struct step_table {
    int64_t *ns;  /* by instruction, over all watched steps */
    int64_t last; /* when the instruction before ended */
    int64_t steps;
};

enum status step_table_open(const struct model_step *step, struct step_table *out);
void step_table_close(struct step_table *table);
/* One step, watched. */
enum status step_table_run(struct step_table *table, struct model_step *step);
/* Seconds of a watched step, as the sum of its operators. */
double step_table_seconds(const struct step_table *table, const struct model_step *step);
/* One line for each operator and weight shape of each phase, the slowest first. The limit of an operator is its FLOPs
 * at `flops_per_s` or its bytes (op_cost) at `bytes_per_s`, whichever takes longer; "over" is the time above it.
 * Caches can beat a limit that comes from bytes. */
enum status step_table_print(const struct step_table *table, const struct model_step *step, double flops_per_s,
                             double bytes_per_s, FILE *out);

#endif
