#include "base/pages.h"

#include <sys/mman.h>

#include "base/fault.h"
#include "base/progress.h"

/* The system clears a page at the first write to it, which takes most of the time of loading in a virtual machine: all
 * threads write one byte of each page. */
static void touch(volatile char *base, size_t bytes) {
    enum { PAGE_BYTES = 4096, BLOCK_BYTES = 16 << 20 };
#pragma omp parallel for schedule(static)
    for (size_t first = 0; first < bytes; first += BLOCK_BYTES) {
        size_t end = bytes - first < BLOCK_BYTES ? bytes : first + BLOCK_BYTES;
        for (size_t at = first; at < end; at += PAGE_BYTES)
            base[at] = 0;
        progress_add((int64_t)(end - first));
    }
}

void *pages_take(size_t bytes) {
    if (fault_point(FAULT_ALLOCATE)) return NULL;
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return NULL;
    /* An arena is used from end to end each step, and 4 KiB pages cost address translation. */
    (void)madvise(base, bytes, MADV_HUGEPAGE);
    progress_begin(PROGRESS_BYTES, (int64_t)bytes, "taking memory");
    touch(base, bytes);
    progress_end();
    return base;
}

void pages_release(void *base, size_t bytes) {
    if (base) munmap(base, bytes);
}
