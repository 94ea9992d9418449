/* A step's loss from its shares' losses, added in the order in which gradients are (plan/lane_shares.h), in double. */
#ifndef BALLAST_SESSION_LOSS_SUM_H
#define BALLAST_SESSION_LOSS_SUM_H

#include "plan/lane_shares.h"

struct loss_sum {
    const struct recipe *recipe; /* borrowed */
    struct lane_tree tree;       /* of the recipe's lanes */
    struct lane_shares shares;   /* the rank's: slot i of its losses is that of share i */
    double *by;                  /* by round * lanes + lane: room for all ranks' shares */
};

/* The caller frees with loss_sum_free, also after a failure. */
enum status loss_sum_create(const struct plan *plan, struct loss_sum *out);
void loss_sum_free(struct loss_sum *sum);

/* Puts the rank's losses, slot by slot, where they belong in `by`. */
void loss_sum_take(struct loss_sum *sum, const double *slots);
/* Of all shares, which are in `by`. */
double loss_sum_total(const struct loss_sum *sum);

#endif
