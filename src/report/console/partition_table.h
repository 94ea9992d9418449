/* The partitions that a search chose from: their times and memory, and why the plan's is another. */
#pragma once

#include "base/base.h"
#include "session/layout_report.h"
#include "session/plan.h"

/* How a plan's model could be cut among its ranks (session/layout_report.h), as a table. */

/* The cheapest strategy of each operator of a block of each kind, and why others were dropped. */
void strategies_table_print(FILE *out, const struct plan_strategies *strategies);

/* The shapes that a plan's ranks could have, and what each part of the plan gained. Prints nothing where the shape was
 * given. `explain`: also those that were refused or do not fit, each with its reason. */
void shapes_table_print(FILE *out, const struct session_plan *plan, bool explain);

/* The Pareto front: partitions of which none that is faster takes less of the device, by the best program of each that
 * was tried. `explain`: all of them, and what became of them. Nothing where none were searched. */
void partition_table_print(FILE *out, const struct session_plan *plan, bool explain);

/* The operators of a plan for a device that is only described: what each is expected to take, next to what the device's
 * data sheet allows. */

/* Of a step of so many seconds. FAILED when out of memory. */
enum status described_table_print(FILE *out, const struct session_plan *plan, double step_s);
