/* A policy in a line of words. */
#ifndef BALLAST_REPORT_POLICY_WORDS_H
#define BALLAST_REPORT_POLICY_WORDS_H

#include "plan/plan.h"

enum { POLICY_WORDS_BYTES = 320 };

/* "2 grains a pass; gradients and optimizer on the disk but for 3 chunks; 8 of 14 blocks recomputed"; returns `text`.
 * `blocks` are those of the model's passes. */
char *policy_words(const struct policy *policy, int32_t blocks, char text[POLICY_WORDS_BYTES]);

#endif
