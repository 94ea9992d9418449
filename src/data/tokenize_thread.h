/* Tokenizing beside training: a thread that makes what corpora still lack, one chunk of text at a time.
 *
 * It is one thread, and last in line for the processor (nice 19): while the compute threads have every core it takes
 * 1.5% of one, where a core is idle all of it. That a reader waits for rows is no loss against tokenizing before the
 * first step: it then makes them itself with all threads. So nothing needs to be guessed of how fast training reads. */
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
