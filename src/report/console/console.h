/* The console: text for people. A training run's progress goes to stderr. On a terminal it is a live line with a bar,
 * otherwise a plain line for each step, at most one per second and always for the last step. Tables show plans and
 * measurements.
 *
 * Files, in the order to read them:
 * - console: a run's progress, its lines and its end; progress of other long work
 * - plan_table: a policy as a line of text; a plan with its ranks, stages and layout
 * - partition_table: the partitions and shapes of a choice, shardings of operators, and target devices
 * - profile_table: measurements */
#pragma once

#include "base/base.h"
#include "base/terminal.h"
#include "train/train.h"

/* Lines of the console: a bar, and fields by importance as far as they fit; the fields of a training step. */

enum { FIELD_LINE_BYTES = 1024, FIELD_BYTES = 112, FIELDS_MAX = 12 };

/* State shown on the live line next to the step. */
struct console_state {
    double valid_loss; /* of the last validation; NaN: none */
    bool saving;       /* a checkpoint is being written */
};

/* "step: 100  loss: 2.3456  grad_norm: 0.8123  lr: 3.00e-04  memory: 1.25 GiB  tps: 12345  mfu: 41.2%  left: 3m12s". */
void console_line_plain(const struct train_step *step, char line[FIELD_LINE_BYTES]);
/* One line of at most `columns` visible characters (field_line_print). `colour`: with ANSI colors. */
void console_line_live(const struct train_step *step, const struct console_state *state, int columns, bool colour,
                       char line[FIELD_LINE_BYTES]);
/* "3m12s", "1h04m", "2d03h"; "-" if not finite. */
char *console_print_time(double seconds, char text[24]);

/* Shows the progress of long work (base/terminal.h). On a terminal, a live line with a bar, removed when the work is
 * done. Otherwise a plain line every ten seconds and one at the end. Instant work shows nothing. */

/* "[####....] reading the weights 1.20 GiB of 1.84 GiB 3s left 1.05 GiB/s" of at most `columns` visible characters.
 * `columns` 0: without the bar, and in full. `seconds`: since the work began. */
void progress_print_line(const struct progress *progress, double seconds, int columns, bool colour,
                         char text[FIELD_LINE_BYTES]);

/* Shows progress from now on. `out` is stderr. */
void progress_view_open(FILE *out);

/* Report at the end of a run. */

/* Steps of this process. */
struct console_account {
    char run_folder[4096]; /* "" before the run starts */
    int64_t begun_steps;   /* steps done before this process */
    int64_t run_steps;     /* of the whole run */
    bool writes_text;      /* the model has a tokenizer */
    bool chats;            /* and a chat template */
    bool adapters;         /* whether adapters were trained */
    char checkpoint[4096]; /* the newest one that this process wrote; "": none */
    int64_t began_ns;      /* time before the first step */
    struct train_step first, last;
    int64_t steps, tokens; /* of this process */
    int64_t valid_step, best_step;
    double valid_loss, best_loss; /* the last and the lowest; their steps are 0 if there is none */
};
void console_account_step(struct console_account *account, const struct train_step *step);
void console_account_validation(struct console_account *account, int64_t step, double loss);

/* "done: 3,000 steps in 1m58s, …", the losses, the model's path, and commands for it. */
void console_print_end(const struct console_account *account, FILE *out);

struct console;

/* `out` is usually stderr. Determines whether it is a terminal, its width, and NO_COLOR. `quiet` prints nothing, so
 * only train_begin's own messages appear. NULL if out of memory. */
struct console *console_create(FILE *out, bool quiet);
void console_free(struct console *console);
/* The events to pass to train_begin and train_resume; valid as long as the console. */
const struct train_events *console_events(const struct console *console);
/* The totals of the steps, quiet or not. */
const struct console_account *console_account(const struct console *console);
