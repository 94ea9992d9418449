/* The loss over batches that ranks share. Batch b is computed by rank b % ranks; what the batches come to is added in
 * their order, so that the sum has the bits of one rank's. */
#ifndef BALLAST_TRAIN_LOSS_SUM_H
#define BALLAST_TRAIN_LOSS_SUM_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/comm.h"
#include "session/engine.h"

/* Of one batch, or of all so far. */
struct loss_sum {
    double figures[LOSS_FIGURES_MAX]; /* the loss first */
    int64_t targets;                  /* that count, or pairs */
    bool stopped;                     /* a rank was asked to stop, and the batches of this turn may be missing */
};

/* Collective: adds a batch of each rank, in the order of ranks. `mine` is what this rank's came to: of all zeros where
 * there is none for it any more. With its status; a failure of one is all ranks'. */
enum status loss_sum_add(struct comm *comm, enum status status, const struct loss_sum *mine, struct loss_sum *sum);
/* The figures by what counts; as they are where nothing does. */
void loss_sum_means(const struct loss_sum *sum, double means[LOSS_FIGURES_MAX]);

#endif
