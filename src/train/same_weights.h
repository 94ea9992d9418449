/* Whether all ranks read the same model: the files' names do not tell. */
#ifndef BALLAST_TRAIN_SAME_WEIGHTS_H
#define BALLAST_TRAIN_SAME_WEIGHTS_H

#include "session/engine.h"

/* Collective, when the weights are loaded. BAD_INPUT on all ranks, naming one that has others. Where each rank has all
 * weights these are compared; where it read but runs of them, the files, each rank's part with what its neighbour has
 * there. */
enum status same_weights_require(const struct engine *engine);

#endif
