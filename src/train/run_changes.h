/* run.json against the checkpoint that a run goes on from. run.json is there to be edited, where that makes sense: what
 * may differ is said, what may not is refused by name. */
#ifndef BALLAST_TRAIN_RUN_CHANGES_H
#define BALLAST_TRAIN_RUN_CHANGES_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/run_folder.h"

/* `state` is the checkpoint's, with the changes of its recipe that run.json records (recipe_change.h). BAD_INPUT
 * "RUN/run.json: FIELD: …" for another recipe, or other settings that say which data come when. Notes for all else. */
enum status run_changes_check(const char *run_folder, const struct run_settings *settings, const char *checkpoint,
                              const struct checkpoint_state *state);
/* The same for a run that has no checkpoint yet: its plan against the one in RUN/plan.json, where that can be read. */
enum status run_changes_check_begun(const char *run_folder, struct run_settings *settings);

#endif
