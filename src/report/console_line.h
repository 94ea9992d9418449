/* The text of a step, for the console. */
#ifndef BALLAST_REPORT_CONSOLE_LINE_H
#define BALLAST_REPORT_CONSOLE_LINE_H

#include <stdbool.h>

#include "train/train.h"

enum { CONSOLE_LINE_BYTES = 1024 };

/* "step: 100  loss: 2.3456  grad_norm: 0.8123  lr: 3.00e-04  memory: 1.25 GiB  tps: 12345  mfu: 41.2%  left: 3m12s". */
void console_line_plain(const struct train_step *step, char line[CONSOLE_LINE_BYTES]);
/* One line of at most `columns` visible characters, with a bar that takes what the numbers leave; the least important
 * numbers are left out where there is no room. `valid_loss` NaN: none yet. `colour`: with ANSI colours. */
void console_line_live(const struct train_step *step, double valid_loss, int columns, bool colour,
                       char line[CONSOLE_LINE_BYTES]);
/* "3m12s", "1h04m", "2d03h"; "-" when not finite. */
char *console_print_time(double seconds, char text[24]);

#endif
