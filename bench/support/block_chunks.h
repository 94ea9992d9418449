/* Counts the chunks that a block needs at once, which is the minimum number of a policy's buffers. */
#pragma once

#include "plan/chunks.h"

/* Counts the most chunks with index `first` or higher that the nodes of one block read. FAILED without memory. */
enum status max_chunks_in_a_block(const struct graph *graph, const struct chunk_list *chunks, int64_t first,
                                  int64_t *out);
