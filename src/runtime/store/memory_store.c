/* Tiers in this machine's memory. */
#include <string.h>

#include "base/pages.h"
#include "base/size.h"
#include "runtime/store/store.h"

static enum status open_memory(struct arena *arena, const struct arena_settings *settings) {
    (void)settings;
    if (arena->bytes == 0) return STATUS_OK;
    arena->base = pages_take((size_t)arena->bytes);
    if (!arena->base) {
        char text[SIZE_TEXT];
        enum status status = status_set(STATUS_FAILED, "the system gives no %s for the %s arena",
                                        size_print(arena->bytes, text), tier_name(arena->tier));
        return status_hint(status, "lower --device-memory and --host-memory, or close other programs");
    }
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

static void close_memory(struct arena *arena) { pages_release(arena->base, (size_t)arena->bytes); }

const struct store memory_store = {.name = "memory",
                                   .open = open_memory,
                                   .read = store_read_memory,
                                   .write = store_write_memory,
                                   .close = close_memory};
