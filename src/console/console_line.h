/* The text of a step, for the console. */
#ifndef BALLAST_CONSOLE_CONSOLE_LINE_H
#define BALLAST_CONSOLE_CONSOLE_LINE_H

#include <stdbool.h>

#include "console/field_line.h"
#include "train/train.h"

/* What the live line tells beside the step. */
struct console_state {
    double valid_loss; /* the last one; NaN: none */
    bool saving;       /* a checkpoint is being written */
};

/* "step: 100  loss: 2.3456  grad_norm: 0.8123  lr: 3.00e-04  memory: 1.25 GiB  tps: 12345  mfu: 41.2%  left: 3m12s". */
void console_line_plain(const struct train_step *step, char line[FIELD_LINE_BYTES]);
/* One line of at most `columns` visible characters (field_line.h). `colour`: with ANSI colours. */
void console_line_live(const struct train_step *step, const struct console_state *state, int columns, bool colour,
                       char line[FIELD_LINE_BYTES]);
/* "3m12s", "1h04m", "2d03h"; "-" when not finite. */
char *console_print_time(double seconds, char text[24]);

#endif
