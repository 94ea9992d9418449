/* RUN_DIR/end.json: how the last process of a run ended. A running process has none, and neither has one that was
 * killed. The lock of the directory distinguishes these. */
#pragma once

#include "base/base.h"
#include "comm/comm.h"
#include "train/train.h"

/* {"version", "how": "finished", "stopped" or "failed", "step", "message"} for a run's status. Returns that status with
 * its message and hint unchanged. If a finished run's file cannot be written, returns that error; an earlier error has
 * priority. */
enum status run_end_write(const char *run_folder, enum status status, int64_t step);
/* Removes the file: the run continues. */
enum status run_end_clear(const char *run_folder);

enum run_state { RUN_GOES_ON, RUN_FINISHED, RUN_STOPPED, RUN_FAILED, RUN_INTERRUPTED };
/* The end of a run with this status: finished, stopped or failed. */
enum run_state run_state_of(enum status status);
/* "goes on", "finished", "stopped", "failed", "interrupted" */
const char *run_state_name(enum run_state state);
/* Reads the state: a locked directory is running; otherwise end.json tells, and without it the run was interrupted.
 * `message` is that of a failure, otherwise ""; the caller frees it with mem_free. BAD_INPUT if end.json is damaged. */
enum status run_end_read(const char *run_folder, enum run_state *state, char **message);

/* `train --continue`: one command line that starts a run, resumes it, and does nothing once it is complete. */

enum run_found {
    RUN_FOUND_NONE, /* a new or empty directory: train_begin */
    RUN_FOUND_PART, /* run_continue_check, then train_resume */
    RUN_FOUND_WHOLE /* run_continue_check; has all its steps and its model */
};

struct run_continue {
    enum run_found found;
    int64_t steps; /* total steps of the existing run */
};

/* Collective if comm is not NULL: all ranks use rank 0's result. `options` may lengthen the run by more steps or
 * epochs. BAD_INPUT if the directory holds something else. */
enum status run_continue_find(const char *run_folder, const struct train_options *options, struct comm *comm,
                              struct run_continue *out);

/* Compares the given settings with an existing run's. BAD_INPUT naming the first that differs. Settings that were not
 * given are the run's. Steps and epochs may be larger than the run's, and go to `out`. Plan options that train_resume
 * does not accept are dropped. */
enum status run_continue_check(const char *model_folder, const char *run_folder, struct plan_options *plan,
                               const struct train_options *options, struct train_options *out);
