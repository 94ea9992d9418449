/* `train --continue`: one command line that begins a run, goes on with it, and does nothing once it is complete. */
#pragma once

#include "comm/comm.h"
#include "train/train.h"

enum run_found {
    RUN_FOUND_NONE, /* a new or empty directory: train_begin */
    RUN_FOUND_PART, /* run_continue_check, then train_resume */
    RUN_FOUND_WHOLE /* run_continue_check; it has all its steps and its model */
};

struct run_continue {
    enum run_found found;
    int64_t steps; /* that the run there has in all */
};

/* Collective where comm is not NULL: all ranks go by what rank 0 finds. `options` may make the run longer, by a greater
 * number of steps or epochs. BAD_INPUT where the directory holds something else. */
enum status run_continue_find(const char *run_folder, const struct train_options *options, struct comm *comm,
                              struct run_continue *out);

/* Of a run that is there: BAD_INPUT naming the first of the given settings that is another than the run's. What was not
 * given is as the run has it. What may be more than the run has, steps and epochs, goes to `out`; the plan options that
 * train_resume does not take are dropped. */
enum status run_continue_check(const char *model_folder, const char *run_folder, struct plan_options *plan,
                               const struct train_options *options, struct train_options *out);
