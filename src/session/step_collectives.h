/* What ranks tell each other around a step: how many targets their rows have, the losses of their shares, and whether
 * one was asked to stop or failed. One operation, which is there before the first step: a step allocates nothing.
 *
 * All calls but opening's counterpart are collective: each rank makes the same ones in the same order. */
#pragma once

#include "comm/comm.h"
#include "plan/lane_shares.h"
#include "plan/plan.h"
#include "runtime/runner.h"

struct step_collectives {
    struct comm *comm;
    const struct recipe *recipe; /* borrowed */
    struct rank_place place;
    struct lane_tree tree; /* of the recipe's lanes */
    struct comm_operation *gather;
    char *entries; /* one of each rank, `entry_bytes` apart */
    void *staging;
    int64_t entry_bytes, slots;
    int64_t *places;              /* by rank and slot: round * lanes + lane, -1 where the slot holds no share */
    int figures;                  /* that a loss has: itself, then what else its program sums up */
    double *by;                   /* one figure of the losses, by round and lane */
    struct group_axis loss_parts; /* of ranks that share tensors, those along it have parts of their losses */
};

/* For a plan whose ranks hold the lanes, and losses of so many figures; 0: for one without a training step, which may
 * be any. The caller closes, also after a failure. */
enum status step_collectives_open(struct comm *comm, const struct plan *plan, int figures,
                                  struct step_collectives *out);
void step_collectives_close(struct step_collectives *collectives);

/* The first status by rank that is not OK. A stop (status_is_stop) has no message yet; an error has that of its rank.
 */
enum status step_collectives_agree(struct step_collectives *collectives, enum status mine);
/* The same, and the least of all ranks' values. */
enum status step_collectives_min(struct step_collectives *collectives, enum status mine, int64_t value, int64_t *min);
/* The same, and the sum over all data ranks of the targets that count. */
enum status step_collectives_targets(struct step_collectives *collectives, enum status mine, int64_t targets,
                                     int64_t *all);
/* The figures of the step's loss, each added as gradients are: lanes by the tree, rounds in order. `mine`: by share of
 * this rank, the figures of each side by side. */
enum status step_collectives_loss(struct step_collectives *collectives, const double *mine, double *all);

/* How many slots the experts of each layer had in a step: tokens that were routed to them. */

struct expert_counts {
    int64_t layers, experts;       /* 0: the step counts none */
    double *of;                    /* [layers, experts], of the last collect: over all ranks */
    const struct tensor **results; /* by layer: what its node adds to, for each share of the step */
    double *every;                 /* ranks' counts, one after the other */
};

/* Of the layers of a training step's graph whose router has a gradient. The caller closes, also after a failure. */
enum status expert_counts_open(const struct graph *graph, const struct comm *comm, struct expert_counts *out);
void expert_counts_close(struct expert_counts *counts);
/* Fills in `of` for the last step, of which this rank computed so many shares. `counts_once`: of ranks that compute the
 * same rows, whether this one speaks for them. Collective. */
enum status expert_counts_collect(struct expert_counts *counts, const struct runner *runner, struct comm *comm,
                                  int64_t shares, bool counts_once);

/* The least and the most slots of an expert, over all layers, as parts of what each of the layer's would have if all
 * had the same number. */
struct expert_spread {
    double min, max;
};
struct expert_spread expert_counts_spread(const struct expert_counts *counts);
