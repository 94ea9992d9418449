/* What is told at the end of a run. */
#ifndef BALLAST_REPORT_CONSOLE_CONSOLE_END_H
#define BALLAST_REPORT_CONSOLE_CONSOLE_END_H

#include <stdbool.h>
#include <stdio.h>

#include "train/train.h"

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

void console_account_begin(struct console_account *account, const struct session_plan *plan, const char *run_folder,
                           int64_t first_step, int64_t steps);
void console_account_step(struct console_account *account, const struct train_step *step);
void console_account_validation(struct console_account *account, int64_t step, double loss);

/* "done: 3,000 steps in 1m58s, …", the losses, where the model is, and what can be done with it. */
void console_print_end(const struct console_account *account, FILE *out);

#endif
