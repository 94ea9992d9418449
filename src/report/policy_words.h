/* A policy and what binds a step, in a line of words. */
#ifndef BALLAST_REPORT_POLICY_WORDS_H
#define BALLAST_REPORT_POLICY_WORDS_H

#include "plan/plan.h"
#include "sim/simulate.h"

enum { POLICY_WORDS_BYTES = 320, BOUND_WORDS_BYTES = 96 };

/* "2 grains a pass; gradients and optimizer on the disk but for 3 chunks; 8 of 14 blocks recomputed"; returns `text`.
 * `blocks` are those of the model's passes. */
char *policy_words(const struct policy *policy, int32_t blocks, char text[POLICY_WORDS_BYTES]);
/* "disk writes during backward"; returns `text`. */
char *bound_words(const struct bound *bound, char text[BOUND_WORDS_BYTES]);

#endif
