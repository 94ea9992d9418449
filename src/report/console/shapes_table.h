/* The shapes that a plan's ranks could have, and what each part of the plan gained. */
#ifndef BALLAST_REPORT_CONSOLE_SHAPES_TABLE_H
#define BALLAST_REPORT_CONSOLE_SHAPES_TABLE_H

#include <stdio.h>

#include "session/session_plan.h"

/* Nothing where the shape was given. `explain`: also those that were refused or do not fit, each with its reason. */
void shapes_table_print(FILE *out, const struct session_plan *plan, bool explain);

#endif
