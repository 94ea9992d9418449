/* The plan for people: model, recipe, policy, the predicted step, and memory by kind of every tier. */
#pragma once

#include "base/base.h"
#include "machine/links.h"
#include "plan/plan.h"
#include "plan/ranks.h"
#include "search/sim/step_summary.h"
#include "session/layout_report.h"
#include "session/plan.h"

/* A policy as a line of text. */

enum { POLICY_TEXT_BYTES = 512 };

/* "2 micro-batches a wave; gradients and optimizer state on the disk; all of the first 3 chunks on the device; 8 blocks
 * recomputed"; returns `text`. `blocks`: the model's number of blocks. */
char *policy_text(const struct policy *policy, int32_t blocks, char text[POLICY_TEXT_BYTES]);
/* The settings that differ from the chosen policy: "1 micro-batch a wave; nothing recomputed". */
char *policy_difference_text(const struct policy *policy, const struct policy *chosen, int32_t blocks,
                             char text[POLICY_TEXT_BYTES]);

/* Prints the solver's partition of tensors among ranks, next to Megatron-LM's (session/layout_report.h). */

void layout_table_print(FILE *out, const struct layout_report *report);

/* The communication of several ranks per step, for people. */

/* Prints the ranks, the bytes that one of them moves, how much of the time overlaps with its compute, and how reliable
 * these seconds are. Prints nothing on one rank. */
void ranks_table_print(FILE *out, const struct rank_place *place, const struct step_summary *step,
                       const struct cluster_links *links);

/* Prints exact bytes of each kind in each tier, the arena, the capacity, and "projected … of … available". For a
 * predicted step (NULL: none): its time, each stream's activity, and the bottlenecks. Also how the policy was chosen,
 * and the alternatives. */
void plan_table_print(FILE *out, const struct session_plan *plan, const struct step_summary *prediction);
