/* Tiers in this machine's memory. */
#include <string.h>
#include <sys/mman.h>

#include "base/fault.h"
#include "base/progress.h"
#include "base/size.h"
#include "store/store.h"

/* The system clears a page at the first write to it: all threads write one byte of each page. In a virtual machine this
 * is most of the time of loading. */
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

static enum status open_memory(struct arena *arena, const struct arena_settings *settings) {
    (void)settings;
    if (arena->bytes == 0) return STATUS_OK;
    size_t bytes = (size_t)arena->bytes;
    void *base = fault_point(FAULT_ALLOCATE)
                     ? MAP_FAILED
                     : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) {
        char text[SIZE_TEXT];
        enum status status = status_set(STATUS_FAILED, "the system gives no %s for the %s arena",
                                        size_print(arena->bytes, text), tier_name(arena->tier));
        return status_hint(status, "lower --device-memory and --host-memory, or close other programs");
    }
    /* Huge pages: an arena is used from end to end each step, and 4 KiB pages cost address translation. */
    (void)madvise(base, bytes, MADV_HUGEPAGE);
    progress_begin(PROGRESS_BYTES, arena->bytes, "taking memory");
    touch(base, bytes);
    progress_end();
    arena->base = base;
    arena->mapped = true;
    return STATUS_OK;
}

enum status store_read_memory(const struct arena *from, int64_t offset, void *to, int64_t bytes, int channel) {
    (void)channel;
    memcpy(to, (const char *)from->base + offset, (size_t)bytes);
    return STATUS_OK;
}

enum status store_write_memory(const struct arena *to, int64_t offset, const void *from, int64_t bytes, int channel) {
    (void)channel;
    memcpy((char *)to->base + offset, from, (size_t)bytes);
    return STATUS_OK;
}

static void close_memory(struct arena *arena) {
    if (arena->base) munmap(arena->base, (size_t)arena->bytes);
}

const struct store memory_store = {.name = "memory",
                                   .open = open_memory,
                                   .read = store_read_memory,
                                   .write = store_write_memory,
                                   .close = close_memory};
