/* The partitions that a search chose from: their times and memory, and why the plan's is another. */
#ifndef BALLAST_REPORT_CONSOLE_PARTITION_TABLE_H
#define BALLAST_REPORT_CONSOLE_PARTITION_TABLE_H

#include <stdio.h>

#include "session/session_plan.h"

/* The Pareto front: partitions of which none that is faster takes less of the device, by the best program of each that
 * was tried. `explain`: all of them, and what became of them. Nothing where none were searched. */
void partition_table_print(FILE *out, const struct session_plan *plan, bool explain);

#endif
