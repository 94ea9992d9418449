/* What the solver chose of tensors that ranks share, next to Megatron-LM's assignment (session/layout_report.h). */
#ifndef BALLAST_REPORT_CONSOLE_LAYOUT_TABLE_H
#define BALLAST_REPORT_CONSOLE_LAYOUT_TABLE_H

#include <stdio.h>

#include "session/layout_report.h"

void layout_table_print(FILE *out, const struct layout_report *report);

#endif
