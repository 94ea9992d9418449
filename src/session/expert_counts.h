/* How many slots the experts of each layer had in a step: tokens that were routed to them. */
#ifndef BALLAST_SESSION_EXPERT_COUNTS_H
#define BALLAST_SESSION_EXPERT_COUNTS_H

#include "comm/comm.h"
#include "plan/plan.h"
#include "runtime/runner.h"

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

#endif
