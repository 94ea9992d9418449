/* Large blocks of whole pages, for arenas: from mmap, on huge pages where the system has them, zeroed and touched by
 * all threads, so that their memory is there before the first step. */
#ifndef BALLAST_BASE_PAGES_H
#define BALLAST_BASE_PAGES_H

#include <stddef.h>

/* At a multiple of 4096. NULL, without a message, when the system refuses or FAULT_ALLOCATE is injected. */
void *pages_take(size_t bytes);
/* With the bytes that were taken; NULL is fine. */
void pages_release(void *base, size_t bytes);

#endif
