/* Loops over OpenMP's threads whose results do not depend on how many there are: work is cut into fixed blocks, and a
 * block is done by one thread. */
#pragma once

#include "base/base.h"

/* Work on [begin, end) of the loop; on one task, by a thread that has a number below `threads`. */
typedef void parallel_body(const void *context, int64_t begin, int64_t end);
typedef void parallel_task(const void *context, int64_t task, int thread);

/* Calls body for [0, block), [block, 2 block), … up to count. The calling thread does a single block itself. */
void parallel_for(int64_t count, int64_t block, parallel_body *body, const void *context);
/* Calls body for each task, on at most `threads` threads (each has its own part of a workspace); they take tasks as
 * they become free, highest first: give later tasks more work. */
void parallel_tasks(int64_t count, int threads, parallel_task *body, const void *context);
/* How many threads the calling thread's loops use: what workspaces are made for. */
int parallel_threads(void);
/* Rows of `columns` elements that are worth a block. */
int64_t parallel_rows(int64_t columns);
/* Columns that are worth a block of a loop whose body goes through all rows. The result depends on the number of
 * threads, so it is only for sums that stay within one column. */
int64_t parallel_columns(int64_t columns);
