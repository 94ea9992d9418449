/* RUN_DIR/end.json: how the last process that worked on a run ended. A run that goes on has none, and neither has one
 * that was killed: what holds the directory's lock tells them apart. */
#pragma once

#include "base/base.h"

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
