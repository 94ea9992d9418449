/* How a plan's model could be cut among its ranks (session/layout_report.h), as a table. */
#ifndef BALLAST_REPORT_CONSOLE_STRATEGIES_TABLE_H
#define BALLAST_REPORT_CONSOLE_STRATEGIES_TABLE_H

#include <stdio.h>

#include "session/layout_report.h"

/* The cheapest strategy of each operator of a block of each kind, and why others were dropped. */
void strategies_table_print(FILE *out, const struct plan_strategies *strategies);

#endif
