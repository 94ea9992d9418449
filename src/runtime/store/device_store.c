/* Tiers in a backend's memory: a GPU's own, and pinned host memory. */
#include <string.h>

#include "base/fault.h"
#include "base/size.h"
#include "runtime/store/store.h"

static const struct backend_memory *memory_of(const struct arena *arena) { return arena->state; }

static enum status open_device(struct arena *arena, const struct arena_settings *settings) {
    const struct backend_memory *memory = settings->memory;
    char text[SIZE_TEXT];
    enum status status = fault_point(FAULT_ALLOCATE) ? status_set(STATUS_FAILED, "out of memory")
                                                     : memory->take(arena->tier, arena->bytes, &arena->base);
    if (status != STATUS_OK) {
        status = status_prefix(status, "%s for the %s arena", size_print(arena->bytes, text), tier_name(arena->tier));
        return status_hint(status, "lower --%s-memory, or close other programs", tier_name(arena->tier));
    }
    arena->mapped = arena->tier == TIER_HOST;
    /* `const` is dropped from a table of functions, which nobody writes to. */
    arena->state = (void *)(uintptr_t)memory;
    return STATUS_OK;
}

static enum status read_device(const struct arena *from, int64_t offset, void *to, int64_t bytes, int channel) {
    (void)channel;
    const char *there = (const char *)from->base + offset;
    if (!from->mapped) return memory_of(from)->read(to, there, bytes);
    memcpy(to, there, (size_t)bytes);
    return STATUS_OK;
}

static enum status write_device(const struct arena *to, int64_t offset, const void *from, int64_t bytes, int channel) {
    (void)channel;
    char *there = (char *)to->base + offset;
    if (!to->mapped) return memory_of(to)->write(there, from, bytes);
    memcpy(there, from, (size_t)bytes);
    return STATUS_OK;
}

static void close_device(struct arena *arena) { memory_of(arena)->give_back(arena->tier, arena->base); }

const struct store device_store = {
    .name = "device", .open = open_device, .read = read_device, .write = write_device, .close = close_device};
