/* The operators of a plan for a device that is only described: what each is expected to take, next to what the device's
 * data sheet allows. */
#ifndef BALLAST_REPORT_CONSOLE_DESCRIBED_TABLE_H
#define BALLAST_REPORT_CONSOLE_DESCRIBED_TABLE_H

#include <stdio.h>

#include "session/session_plan.h"

/* Of a step of so many seconds. FAILED when out of memory. */
enum status described_table_print(FILE *out, const struct session_plan *plan, double step_s);

#endif
