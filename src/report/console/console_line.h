/* Lines of the console: a bar and fields by importance, as many as there is space for, and those of a training step. */
#ifndef BALLAST_REPORT_CONSOLE_CONSOLE_LINE_H
#define BALLAST_REPORT_CONSOLE_CONSOLE_LINE_H

#include <stdbool.h>

#include "train/train.h"

enum { FIELD_LINE_BYTES = 1024, FIELD_BYTES = 112, FIELDS_MAX = 12 };

struct field_line {
    char fields[FIELDS_MAX][FIELD_BYTES]; /* the most important first; ASCII */
    int count;
    int strong;  /* the field that stands out where there is colour; -1: none */
    double part; /* of the bar that is full, 0 to 1 */
};

/* The next field, FIELD_BYTES large. */
char *field_line_add(struct field_line *line);
/* At most `columns` visible characters. The bar has a sixth of them, 8 to 30, for which lesser fields free space; it is
 * left out where the first two fields do not fit next to it. `colour`: with ANSI colours. */
void field_line_print(const struct field_line *line, int columns, bool colour, char text[FIELD_LINE_BYTES]);

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

#endif
