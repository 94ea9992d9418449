/* A walk through policies, to see what a search misses: changes of one or two fields at a time, beyond what a search's
 * space has, from the best policy known so far. */
#pragma once

#include "search/search.h"

/* Compiles up to `steps` policies; *best is where the walk begins, and the fastest that it found. The same seed walks
 * the same way. What the compiler refuses, and what does not fit, is passed by. FAILED without memory. */
enum status policy_walk(const struct search_input *input, int steps, uint64_t seed, struct trial *best);
