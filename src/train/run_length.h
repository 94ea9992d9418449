/* How long a run is that is given in epochs: passes over its training data. Without weights each row of the data comes
 * once an epoch (data/dataset.h). */
#ifndef BALLAST_TRAIN_RUN_LENGTH_H
#define BALLAST_TRAIN_RUN_LENGTH_H

#include "train/train_data.h"

/* Where options->epochs is given, sets options->steps to what they take, rounded up to whole steps; that waits until
 * all training text is tokenized, and is a function of data, batch and epochs alone. Then fixes the warm-up. `done`:
 * steps that were made. BAD_INPUT where sources have weights, so that each has passes of its own length; where the
 * steps are too many, or fewer than are done. */
enum status run_length_settle(struct dataset *dataset, const struct recipe *recipe, int64_t done,
                              struct train_options *options);

/* Passes made after `steps`; 0 where the run's length is not given in epochs. */
double run_length_epoch(const struct dataset *dataset, const struct recipe *recipe, const struct train_options *options,
                        int64_t steps);

#endif
