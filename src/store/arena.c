#include "store/arena.h"

#include <sys/mman.h>

#include "base/fault.h"
#include "base/size.h"

/* The system clears a page when it is first written to: one byte of each, by all threads. */
static void touch(volatile char *base, int64_t bytes) {
    enum { PAGE_BYTES = 4096 };
#pragma omp parallel for schedule(static)
    for (int64_t at = 0; at < bytes; at += PAGE_BYTES)
        base[at] = 0;
}

enum status arena_open(enum tier tier, int64_t bytes, struct arena *out) {
    BUG_IF(tier != TIER_DEVICE, "no memory for the %s tier on a CPU", tier_name(tier));
    struct arena arena = {.tier = tier, .bytes = bytes};
    if (bytes > 0) {
        arena.base = fault_point(FAULT_ALLOCATE)
                         ? MAP_FAILED
                         : mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (arena.base == MAP_FAILED) {
            char text[SIZE_TEXT];
            enum status status = status_set(STATUS_FAILED, "the system gives no %s for the %s arena",
                                            size_print(bytes, text), tier_name(tier));
            return status_hint(status, "lower --batch or --seq, or close other programs");
        }
        /* Huge pages: an arena is used from end to end each step, and 4 KiB pages cost address translation. */
        (void)madvise(arena.base, (size_t)bytes, MADV_HUGEPAGE);
        touch(arena.base, bytes);
    }
    *out = arena;
    return STATUS_OK;
}

void arena_close(struct arena *arena) {
    if (arena->base) munmap(arena->base, (size_t)arena->bytes);
    *arena = (struct arena){0};
}
