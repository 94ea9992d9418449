/* Policies spread through the space: each choice takes all of its values about equally often. */
#pragma once

#include "ir/graph.h"
#include "plan/plan.h"

/* Number `index` of `count` policies for a graph whose step has `micro_batches` micro-batches; number 0 is the plain
 * one. The same seed gives the same policies. FAILED when out of memory. */
enum status policy_spread(const struct graph *graph, int64_t micro_batches, uint64_t seed, int64_t index, int64_t count,
                          struct policy *out);
enum { POLICY_TEXT = 96 };
/* "p=disk g=host o=disk u=host 1/4 b=3 l=1 n=2 recompute" and the like; returns `text`. */
char *policy_spread_print(const struct policy *policy, char text[POLICY_TEXT]);
