/* Tiers in this machine's memory. */

#include "base/fault.h"
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

/* Of tiers whose base the CPU may use. */
static enum status store_read_memory(const struct arena *from, int64_t offset, void *to, int64_t bytes, int channel) {
    (void)channel;
    memcpy(to, (const char *)from->base + offset, (size_t)bytes);
    return STATUS_OK;
}

static enum status store_write_memory(const struct arena *to, int64_t offset, const void *from, int64_t bytes,
                                      int channel) {
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

/* Tiers in memory that the ranks of a node share: operations between them read it in place. */

struct shared_memory {
    struct comm *comm;
    struct comm_shared_segment shared_segment;
};

static enum status take(struct arena *arena, struct shared_memory *shared) {
    char text[SIZE_TEXT];
    enum status status = comm_shared_segment_open(shared->comm, arena->bytes, &shared->shared_segment);
    if (status == STATUS_OK && !shared->shared_segment.shared) {
        comm_shared_segment_close(shared->comm, &shared->shared_segment);
        status = status_set(STATUS_FAILED, "the system gives the ranks of a node no common memory");
    }
    if (status == STATUS_OK) return STATUS_OK;
    status = status_prefix(status, "%s for the %s arena", size_print(arena->bytes, text), tier_name(arena->tier));
    return status_hint(status, "lower --device-memory and --host-memory, or close other programs");
}

static enum status open_shared_segment(struct arena *arena, const struct arena_settings *settings) {
    struct shared_memory *shared = mem_array(1, sizeof *shared);
    TRY(comm_agree(settings->shared_by, shared ? STATUS_OK : STATUS_FAILED));
    shared->comm = settings->shared_by;
    enum status status = take(arena, shared);
    if (status != STATUS_OK) {
        mem_free(shared);
        return status;
    }
    arena->base = shared->shared_segment.base;
    arena->mapped = true;
    arena->state = shared;
    return STATUS_OK;
}

static void close_shared_segment(struct arena *arena) {
    struct shared_memory *shared = arena->state;
    comm_shared_segment_close(shared->comm, &shared->shared_segment);
    mem_free(shared);
}

const struct store shared_segment_store = {.name = "window",
                                           .open = open_shared_segment,
                                           .read = store_read_memory,
                                           .write = store_write_memory,
                                           .close = close_shared_segment};

/* Tiers in a backend's memory: a GPU's own, and pinned host memory. */

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
