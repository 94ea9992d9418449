/* A walk through policies that shows what a search misses. From the best known policy, it changes one or two fields
 * at a time, also beyond the search's space. */
#pragma once

#include "search/search.h"

/* Compiles up to `steps` policies; *best is where the walk begins, and the fastest that it found. The same seed walks
 * the same way. What the compiler refuses, and what does not fit, is passed by. FAILED without memory. */
enum status policy_walk(const struct search_input *input, int steps, uint64_t seed, struct trial *best);
