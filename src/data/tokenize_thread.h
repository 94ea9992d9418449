/* Tokenizing during training: a thread that makes the missing tokens of corpora, one chunk of text at a time.
 *
 * It is one thread with the lowest priority (nice 19): it takes 1.5% of a core while the compute threads use every
 * core, and all of an idle core. A reader that has to wait for rows makes them itself with all threads, which takes no
 * longer than tokenizing before the first step. So nothing depends on how fast training reads. */
#ifndef BALLAST_DATA_TOKENIZE_THREAD_H
#define BALLAST_DATA_TOKENIZE_THREAD_H

#include <stddef.h>

#include "data/corpus.h"

struct tokenize_thread;
/* The corpora must outlive it; the array is copied. FAILED when there is no memory or no thread. */
enum status tokenize_thread_start(struct corpus *const *corpora, size_t count, struct tokenize_thread **out);
/* Ends it after the chunk under way. NULL is allowed. */
void tokenize_thread_stop(struct tokenize_thread *thread);

#endif
