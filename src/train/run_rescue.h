/* What becomes of a run whose folder was renamed or removed while it trained. */
#ifndef BALLAST_TRAIN_RUN_RESCUE_H
#define BALLAST_TRAIN_RUN_RESCUE_H

#include "train/train_loop.h"

/* Whether the run's name still leads to the folder that it holds open. */
bool run_is_in_place(const struct train_run *run);
/* For one that is not, when no checkpoint is being written: gives the run the folder's new path or, where it has none
 * any more, a new folder beside the old name (RUN.rescued), with its settings and metrics. What it may copy tokenizer
 * files from is there then too. `*how` says what happened, for a message: "renamed" or "removed". FAILED where nothing
 * can be written there. */
enum status run_rescue(struct train_run *run, const char **how);

#endif
