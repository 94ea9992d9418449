/* The plan for people: model, recipe, policy, the predicted step, and memory by kind of every tier. */
#ifndef BALLAST_REPORT_CONSOLE_PLAN_TABLE_H
#define BALLAST_REPORT_CONSOLE_PLAN_TABLE_H

#include <stdio.h>

#include "session/session_plan.h"

/* Exact bytes of each kind in each tier, the arena, the capacity, and "projected … of … available"; of the step that is
 * predicted (NULL: none is) its time, what each stream does and what binds; how the policy was chosen, and what else
 * there is. */
void plan_table_print(FILE *out, const struct session_plan *plan, const struct step_summary *prediction);

#endif
