/* Writing behind: a thread writes pieces of a file while their owner prepares the next ones. Private to src/base. */
#pragma once

#include "base/base.h"

/* Each piece of a file but the last has this many bytes: direct writes of 1 to 8 MiB, one or two in flight, are equally
 * fast on the machines of bench/RESULTS.md. */
enum { FILE_PIECE_BYTES = 1 << 20 };

struct file_behind;

/* The descriptor stays the caller's and open until file_behind_end. FAILED when there is no memory or no thread. */
enum status file_behind_begin(int descriptor, struct file_behind **out);
/* FILE_PIECE_BYTES of aligned memory for the next piece; waits until there are some. */
unsigned char *file_behind_take(struct file_behind *behind);
/* Queues the piece that was taken last for writing. Returns 0 or the errno of the first write that failed, after which
 * no other write begins. */
int file_behind_put(struct file_behind *behind, size_t bytes);
/* Waits for the last piece and ends the thread. Returns as file_behind_put. */
int file_behind_end(struct file_behind *behind);

/* Writes all, past the page cache while the descriptor has O_DIRECT, which it loses where the file system refuses a
 * write for its alignment. 0 or an errno. */
int file_write_fully(int descriptor, const void *data, size_t bytes);
