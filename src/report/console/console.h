/* Text for people: the console of a training run, on stderr (on a terminal a live line with a bar, otherwise a plain
 * line for each step, at most one a second, the last step always), and tables of plans and measurements.
 *
 * Files, in the order to read them:
 *   console: a run while it goes, and its end; console_line: a line of it, and how far other long work is;
 *   policy_text: a policy as a line of text;
 *   plan_table: a plan with its ranks, stages and layout; partition_table: partitions and shapes that one was chosen
 * from, how operators could be sharded, and devices that are only described; profile_table: what was measured. */
#pragma once

#include "base/base.h"
#include "train/train.h"

/* What is told at the end of a run. */

/* Of the steps of this process. */
struct console_account {
    char run_folder[4096]; /* "" before the run has begun */
    int64_t begun_steps;   /* that were done when this process went on */
    int64_t run_steps;     /* of the whole run */
    bool writes_text;      /* the model has a tokenizer */
    bool chats;            /* and a chat template */
    bool adapters;         /* adapters were trained */
    char checkpoint[4096]; /* the newest that this process wrote; "": none */
    int64_t began_ns;      /* when the first step came next */
    struct train_step first, last;
    int64_t steps, tokens; /* made here */
    int64_t valid_step, best_step;
    double valid_loss, best_loss; /* the last and the lowest; their steps are 0 where there is none */
};
void console_account_step(struct console_account *account, const struct train_step *step);
void console_account_validation(struct console_account *account, int64_t step, double loss);

/* "done: 3,000 steps in 1m58s, …", the losses, where the model is, and what can be done with it. */
void console_print_end(const struct console_account *account, FILE *out);

struct console;

/* `out` is usually stderr; whether it is a terminal, its width and NO_COLOR are looked up here. `quiet` prints nothing:
 * what train_begin itself reports is all. NULL when out of memory. */
struct console *console_create(FILE *out, bool quiet);
void console_free(struct console *console);
/* The events to hand to train_begin and train_resume; valid as long as the console. */
const struct train_events *console_events(const struct console *console);
/* What the steps came to, quiet or not. */
const struct console_account *console_account(const struct console *console);
