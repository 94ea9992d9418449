/* Copies between tiers, moved to bytes that were not in use shortly before.
 *
 * A copy waits for whatever had its bytes before it. Placement looks at the peak alone and has all copies of a kind at
 * one offset, so each fetch waits for the store before it, though memory is free for most of a step. Here each copy
 * goes where the fewest groups wait for it or are waited for; the arena stays as large as it is. */
#ifndef BALLAST_COMPILER_PLACE_APART_H
#define BALLAST_COMPILER_PLACE_APART_H

#include "compiler/program.h"

/* `list`: the tier's buffers that are not persistent, with offsets in [base, top); their order changes. */
enum status place_apart(const struct program *program, struct buffer **list, size_t count, int64_t base, int64_t top);

#endif
