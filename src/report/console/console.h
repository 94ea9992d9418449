/* Text for people: the console of a training run, on stderr (on a terminal a live line with a bar, otherwise a plain
 * line for each step, at most one a second, the last step always), and tables of plans and measurements.
 *
 * Files, in the order to read them:
 *   console, console_line, console_end: a run while it goes, a line of it, and what is said when it has ended;
 *   progress_view: how far other long work is;
 *   policy_text: a policy as a line of text;
 *   plan_table, partition_table, shapes_table, strategies_table, layout_table, described_table, ranks_table,
 * stages_table, profile_table: plans, the partitions that one was chosen from, how operators could be cut, devices that
 * are only described, collectives, a pipeline's stages, and what was measured. */
#ifndef BALLAST_REPORT_CONSOLE_CONSOLE_H
#define BALLAST_REPORT_CONSOLE_CONSOLE_H

#include <stdbool.h>
#include <stdio.h>

#include "report/console/console_end.h"
#include "train/train.h"

struct console;

/* `out` is usually stderr; whether it is a terminal, its width and NO_COLOR are looked up here. `quiet` prints nothing:
 * what train_begin itself reports is all. NULL when out of memory. */
struct console *console_create(FILE *out, bool quiet);
void console_free(struct console *console);
/* The events to hand to train_begin and train_resume; valid as long as the console. */
const struct train_events *console_events(const struct console *console);
/* What the steps came to, quiet or not. */
const struct console_account *console_account(const struct console *console);

#endif
