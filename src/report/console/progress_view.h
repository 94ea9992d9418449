/* Shows how far long work is (base/progress.h): on a terminal by a live line with a bar, which is gone when the work is
 * done; otherwise by a plain line every ten seconds and one at the end. What is done at once shows nothing. */
#ifndef BALLAST_REPORT_CONSOLE_PROGRESS_VIEW_H
#define BALLAST_REPORT_CONSOLE_PROGRESS_VIEW_H

#include <stdbool.h>
#include <stdio.h>

#include "base/progress.h"
#include "report/console/console_line.h"

/* "[####....] reading the weights  1.20 GiB of 1.84 GiB  3s left  1.05 GiB/s" of at most `columns` visible characters;
 * `columns` 0: without the bar, and in full. `seconds`: since the work began. */
void progress_print_line(const struct progress *progress, double seconds, int columns, bool colour,
                         char text[FIELD_LINE_BYTES]);

/* Listens from now on. `out` is stderr. */
void progress_view_open(FILE *out);

#endif
