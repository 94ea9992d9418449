/* A pairwise cover of cases for ranks: each pair of values of two axes occurs. A separate job trains each case. */
#pragma once

#include "support/rank_case.h"

/* In fresh memory. */
struct rank_case *rank_cover_pairs(uint64_t seed, size_t *count);
/* Moves the cases with that value to the front of a list, and counts them. */
size_t rank_cover_take(struct rank_case *cases, size_t count, enum rank_axis axis, int value);
