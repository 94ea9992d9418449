/* Lines of the console: a bar and fields by importance, as many as there is space for, and those of a training step. */
#pragma once

#include "base/base.h"
#include "base/terminal.h"
#include "train/train.h"

enum { FIELD_LINE_BYTES = 1024, FIELD_BYTES = 112, FIELDS_MAX = 12 };

/* What the live line tells next to the step. */
struct console_state {
    double valid_loss; /* the last one; NaN: none */
    bool saving;       /* a checkpoint is being written */
};

/* "step: 100  loss: 2.3456  grad_norm: 0.8123  lr: 3.00e-04  memory: 1.25 GiB  tps: 12345  mfu: 41.2%  left: 3m12s". */
void console_line_plain(const struct train_step *step, char line[FIELD_LINE_BYTES]);
/* One line of at most `columns` visible characters (field_line_print). `colour`: with ANSI colours. */
void console_line_live(const struct train_step *step, const struct console_state *state, int columns, bool colour,
                       char line[FIELD_LINE_BYTES]);
/* "3m12s", "1h04m", "2d03h"; "-" when not finite. */
char *console_print_time(double seconds, char text[24]);

/* Shows how far long work is (base/terminal.h): on a terminal by a live line with a bar, which is gone when the work is
 * done; otherwise by a plain line every ten seconds and one at the end. What is done at once shows nothing. */

/* "[####....] reading the weights  1.20 GiB of 1.84 GiB  3s left  1.05 GiB/s" of at most `columns` visible characters;
 * `columns` 0: without the bar, and in full. `seconds`: since the work began. */
void progress_print_line(const struct progress *progress, double seconds, int columns, bool colour,
                         char text[FIELD_LINE_BYTES]);

/* Listens from now on. `out` is stderr. */
void progress_view_open(FILE *out);
