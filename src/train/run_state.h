/* RUN_DIR/end.json: how the last process that worked on a run ended. A run that goes on has none, and neither has one
 * that was killed: what holds the directory's lock tells them apart. */
#pragma once

#include "base/base.h"
#include "comm/comm.h"
#include "train/train.h"

/* {"version", "how": "finished", "stopped" or "failed", "step", "message"}: of a run's status, which is returned with
 * its message and hint as they are set. Where a finished run's file cannot be written, that is returned; what else went
 * wrong comes first. */
enum status run_end_write(const char *run_folder, enum status status, int64_t step);
/* Removes it: the run goes on. */
enum status run_end_clear(const char *run_folder);

enum run_state { RUN_GOES_ON, RUN_FINISHED, RUN_STOPPED, RUN_FAILED, RUN_INTERRUPTED };
/* How a run with this status ended: finished, stopped or failed. */
enum run_state run_state_of(enum status status);
/* "goes on", "finished", "stopped", "failed", "interrupted" */
const char *run_state_name(enum run_state state);
/* What the directory says: whether a process has its lock, else by end.json; interrupted where there is none.
 * `message` of a failure, "" else, is to be freed by mem_free. BAD_INPUT for an end.json that is damaged. */
enum status run_end_read(const char *run_folder, enum run_state *state, char **message);

/* `train --continue`: one command line that begins a run, goes on with it, and does nothing once it is complete. */

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
