/* The stages of a planned pipeline, for people. */
#ifndef BALLAST_REPORT_CONSOLE_STAGES_TABLE_H
#define BALLAST_REPORT_CONSOLE_STAGES_TABLE_H

#include <stdio.h>

#include "session/session_plan.h"

/* Nothing for a plan without a pipeline, or without a prediction. */
void stages_table_print(FILE *out, const struct session_plan *plan);

#endif
