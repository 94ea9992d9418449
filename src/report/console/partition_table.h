/* The partitions of a search: their times and memory, and why the plan's differs. */
#pragma once

#include "base/base.h"
#include "session/layout_report.h"
#include "session/plan.h"

/* Table of possible partitions of a plan's model among its ranks (session/layout_report.h). */

/* The cheapest strategy of each operator of a block of each kind, and why others were dropped. */
void strategies_table_print(FILE *out, const struct plan_strategies *strategies);

/* Prints the possible rank layouts of a plan, and the gain of each part of the plan. Prints nothing if the layout was
 * given. `explain`: also layouts that were refused or do not fit, each with its reason. */
void shapes_table_print(FILE *out, const struct session_plan *plan, bool explain);

/* Prints the Pareto front of partitions in time and device memory, by the best tried program of each. `explain`: all
 * partitions, with their outcomes. Prints nothing if there was no search. */
void partition_table_print(FILE *out, const struct session_plan *plan, bool explain);

/* The operators of a plan for a target device: expected times, next to the limits of the device's data sheet. */

/* For a step of so many seconds. FAILED if out of memory. */
enum status described_table_print(FILE *out, const struct session_plan *plan, double step_s);
