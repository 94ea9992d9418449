/* Placement in the order of time, as an allocator would do it: each buffer takes the lowest gap that is large enough
 * when it becomes live, and frees it when it dies. Gaps are few, so this is near linear in the number of buffers. */
#ifndef BALLAST_COMPILER_SWEEP_H
#define BALLAST_COMPILER_SWEEP_H

#include "compiler/program.h"

/* Sets the offsets of `count` buffers, given by their first use and again by their last use, from `base` on, in
 * multiples of `alignment`. *top is where the highest one ends. */
enum status sweep_place(struct buffer *const *by_first, struct buffer *const *by_last, size_t count, int64_t alignment,
                        int64_t base, int64_t *top);

#endif
