/* The tiers that are this machine's memory. */
#include <string.h>
#include <sys/mman.h>

#include "base/fault.h"
#include "base/size.h"
#include "store/store.h"

/* The system clears a page when it is first written to: one byte of each, by all threads. */
static void touch(volatile char *base, size_t bytes) {
    enum { PAGE_BYTES = 4096 };
#pragma omp parallel for schedule(static)
    for (size_t at = 0; at < bytes; at += PAGE_BYTES)
        base[at] = 0;
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
    touch(base, bytes);
    arena->base = base;
    arena->mapped = true;
    return STATUS_OK;
}

static enum status read_memory(const struct arena *from, int64_t offset, void *to, int64_t bytes, int channel) {
    (void)channel;
    memcpy(to, (const char *)from->base + offset, (size_t)bytes);
    return STATUS_OK;
}

static enum status write_memory(const struct arena *to, int64_t offset, const void *from, int64_t bytes, int channel) {
    (void)channel;
    memcpy((char *)to->base + offset, from, (size_t)bytes);
    return STATUS_OK;
}

static void close_memory(struct arena *arena) {
    if (arena->base) munmap(arena->base, (size_t)arena->bytes);
}

const struct store memory_store = {
    .name = "memory", .open = open_memory, .read = read_memory, .write = write_memory, .close = close_memory};
