/* A policy as a line of text. */
#pragma once

#include "plan/plan.h"

enum { POLICY_TEXT_BYTES = 512 };

/* "2 micro-batches a wave; gradients and optimizer state on the disk; all of the first 3 chunks on the device; 8 blocks
 * computed again"; returns `text`. `blocks`: the model's number of blocks. */
char *policy_text(const struct policy *policy, int32_t blocks, char text[POLICY_TEXT_BYTES]);
/* The same for the settings that differ from the chosen policy: "1 micro-batch a wave; nothing computed again". */
char *policy_difference_text(const struct policy *policy, const struct policy *chosen, int32_t blocks,
                             char text[POLICY_TEXT_BYTES]);
