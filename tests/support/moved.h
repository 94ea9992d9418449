/* Finds the elements of each parameter that a training run changed, to detect layouts in which some are never
 * updated. */
#pragma once

#include "support/harness.h"

enum { MOVED_MAX = 64 };

/* By parameter, in the graph's order, of all ranks together: one shard's replicas count once. */
struct moved {
    int count;
    bool trained[MOVED_MAX];
    int64_t elements[MOVED_MAX], moved[MOVED_MAX];
};

/* What this rank has of all parameters (of masters where there are some) before the first step. */
struct moved_start {
    unsigned char *bytes[MOVED_MAX];
};

void moved_begin(struct harness *harness, struct moved_start *out);
/* All ranks together, behind harness_finish. Frees what moved_begin took, also after a failure. FAILED where a
 * parameter has elements that no rank has, or not all replicas moved the same. */
enum status moved_end(struct harness *harness, struct moved_start *start, struct moved *out);
