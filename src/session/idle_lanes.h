/* Lanes and ranks for which a batch has no micro-batches. */
#ifndef BALLAST_SESSION_IDLE_LANES_H
#define BALLAST_SESSION_IDLE_LANES_H

#include "plan/plan.h"

/* What a batch leaves without micro-batches, and the next settings that would not: 0 where there are none. */
struct idle_lanes {
    int lanes, ranks;  /* without micro-batches */
    int64_t batch;     /* the next one that gives every lane as many */
    int lanes_instead; /* the most, fewer than there are, that these ranks hold and that all get micro-batches */
    int64_t micro_batch_instead; /* sequences: the largest smaller micro-batch with which all lanes get some */
};

/* Of a plan that was checked. FAILED without memory. */
enum status idle_lanes_find(const struct plan *plan, struct idle_lanes *out);
/* A warning with what would change it; nothing where all lanes have micro-batches. */
enum status idle_lanes_warn(const struct plan *plan);

#endif
