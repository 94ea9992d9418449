#include "runtime/store/arena.h"

#include "base/fault.h"
#include "base/text.h"
#include "runtime/store/store.h"

/* The backend that allocates the tier's memory (`state`). */
static const struct backend_memory *memory_of(const struct arena *arena) { return arena->state; }

static enum status read_memory(const struct arena *from, int64_t offset, void *to, int64_t bytes, int channel) {
    (void)channel;
    const char *there = (const char *)from->base + offset;
    if (!from->mapped) return memory_of(from)->read(to, there, bytes);
    memcpy(to, there, (size_t)bytes);
    return STATUS_OK;
}

static enum status write_memory(const struct arena *to, int64_t offset, const void *from, int64_t bytes, int channel) {
    (void)channel;
    char *there = (char *)to->base + offset;
    if (!to->mapped) return memory_of(to)->write(there, from, bytes);
    memcpy(there, from, (size_t)bytes);
    return STATUS_OK;
}

/* The status of a tier that the system refuses. The message names the missing resource. */
static enum status refused(const struct arena *arena, enum status status) {
    char text[SIZE_TEXT];
    status = status_prefix(status, "%s for the %s arena", size_print(arena->bytes, text), tier_name(arena->tier));
    return status_hint(status, "lower --device-memory and --host-memory, or close other programs");
}

/* Tiers in this machine's memory. */

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

static void close_memory(struct arena *arena) { pages_release(arena->base, (size_t)arena->bytes); }

static const struct store memory_store = {
    .name = "memory", .open = open_memory, .read = read_memory, .write = write_memory, .close = close_memory};

/* Tiers in memory that the ranks of a node share: operations between them read it in place. */

struct shared_memory {
    struct comm *comm;
    struct comm_shared_segment shared_segment;
};

static enum status open_shared_segment(struct arena *arena, const struct arena_settings *settings) {
    struct shared_memory *shared = mem_array(1, sizeof *shared);
    TRY(comm_agree(settings->shared_by, shared ? STATUS_OK : STATUS_FAILED));
    shared->comm = settings->shared_by;
    enum status status = comm_shared_segment_open(shared->comm, arena->bytes, &shared->shared_segment);
    if (status == STATUS_OK && !shared->shared_segment.shared) {
        comm_shared_segment_close(shared->comm, &shared->shared_segment);
        status = status_set(STATUS_FAILED, "the system gives the ranks of a node no common memory");
    }
    if (status != STATUS_OK) {
        mem_free(shared);
        return refused(arena, status);
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

static const struct store shared_segment_store = {.name = "window",
                                                  .open = open_shared_segment,
                                                  .read = read_memory,
                                                  .write = write_memory,
                                                  .close = close_shared_segment};

/* Tiers in a backend's memory: a GPU's own, and pinned host memory. */

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

static void close_device(struct arena *arena) { memory_of(arena)->give_back(arena->tier, arena->base); }

static const struct store device_store = {
    .name = "device", .open = open_device, .read = read_memory, .write = write_memory, .close = close_device};

static const struct store *store_of(enum tier tier, const struct arena_settings *settings) {
    if (tier == TIER_DISK) return &disk_store;
    if (settings && settings->shared_by) return &shared_segment_store;
    return settings && settings->memory ? &device_store : &memory_store;
}

enum status arena_open(enum tier tier, int64_t bytes, const struct arena_settings *settings, struct arena *out) {
    BUG_IF(bytes < 0, "an arena of %lld bytes", (long long)bytes);
    struct arena arena = {.tier = tier, .bytes = bytes, .store = bytes > 0 ? store_of(tier, settings) : NULL};
    if (arena.store) TRY(arena.store->open(&arena, settings));
    *out = arena;
    return STATUS_OK;
}

void arena_close(struct arena *arena) {
    if (arena->store) arena->store->close(arena);
    *arena = (struct arena){0};
}

static void check_range(const struct arena *arena, int64_t offset, int64_t bytes) {
    BUG_IF(offset < 0 || bytes < 0 || offset > arena->bytes || bytes > arena->bytes - offset,
           "%lld bytes at %lld of the %s arena, which has %lld", (long long)bytes, (long long)offset,
           tier_name(arena->tier), (long long)arena->bytes);
}

enum status arena_read(const struct arena *from, int64_t offset, void *to, int64_t bytes, int channel) {
    check_range(from, offset, bytes);
    return bytes == 0 ? STATUS_OK : from->store->read(from, offset, to, bytes, channel);
}

enum status arena_write(const struct arena *to, int64_t offset, const void *from, int64_t bytes, int channel) {
    check_range(to, offset, bytes);
    return bytes == 0 ? STATUS_OK : to->store->write(to, offset, from, bytes, channel);
}

enum status copy_staging_open(const struct backend *backend, struct copy_staging *staging) {
    for (int p = 0; p < STAGING_PLACES; p++) {
        void *place;
        TRY(backend->memory->take(TIER_HOST, STAGING_BYTES, &place));
        staging->place[p] = place;
        TRY(backend->streams->create_event(&staging->event[p]));
    }
    return STATUS_OK;
}

void copy_staging_close(const struct backend *backend, struct copy_staging *staging) {
    for (int p = 0; p < STAGING_PLACES; p++) {
        if (staging->place[p]) backend->memory->give_back(TIER_HOST, staging->place[p]);
        if (staging->event[p]) backend->streams->free_event(staging->event[p]);
    }
    *staging = (struct copy_staging){0};
}

static char *address(struct tier_place place) { return (char *)place.arena->base + place.offset; }

static int64_t piece_bytes(int64_t left) { return left < STAGING_BYTES ? left : STAGING_BYTES; }

/* The next place, after the device has finished with it. */
static enum status take_place(struct copy_staging *staging, const struct backend_streams *streams, int *place) {
    *place = staging->next;
    staging->next = (staging->next + 1) % STAGING_PLACES;
    return streams->await(staging->event[*place]);
}

static enum status bring(const struct backend *backend, struct copy_staging *staging, struct tier_place disk,
                         struct tier_place memory, int64_t bytes, int channel, void *stream) {
    while (bytes > 0) {
        int64_t count = piece_bytes(bytes);
        int place;
        TRY(take_place(staging, backend->streams, &place));
        TRY(arena_read(disk.arena, disk.offset, staging->place[place], count, channel));
        backend->copy(address(memory), staging->place[place], count, stream);
        TRY(backend->streams->record(staging->event[place], stream));
        disk.offset += count, memory.offset += count, bytes -= count;
    }
    return STATUS_OK;
}

/* Enqueues the device's copy of the next piece to a place. */
static enum status fill_place(const struct backend *backend, struct copy_staging *staging, struct tier_place memory,
                              int64_t bytes, void *stream, int *place) {
    TRY(take_place(staging, backend->streams, place));
    backend->copy(staging->place[*place], address(memory), piece_bytes(bytes), stream);
    return backend->streams->record(staging->event[*place], stream);
}

static enum status send(const struct backend *backend, struct copy_staging *staging, struct tier_place memory,
                        struct tier_place disk, int64_t bytes, int channel, void *stream) {
    int place = 0, following = 0;
    TRY(fill_place(backend, staging, memory, bytes, stream, &place));
    while (bytes > 0) {
        int64_t count = piece_bytes(bytes);
        memory.offset += count;
        if (bytes > count) TRY(fill_place(backend, staging, memory, bytes - count, stream, &following));
        TRY(backend->streams->await(staging->event[place]));
        TRY(arena_write(disk.arena, disk.offset, staging->place[place], count, channel));
        disk.offset += count, bytes -= count;
        place = following;
    }
    return STATUS_OK;
}

enum status tier_copy(const struct backend *backend, struct copy_staging *staging, struct tier_place from,
                      struct tier_place to, int64_t bytes, int channel, void *stream) {
    bool from_disk = from.arena->tier == TIER_DISK, to_disk = to.arena->tier == TIER_DISK;
    if (!from_disk && !to_disk)
        backend->copy(address(to), address(from), bytes, stream);
    else if (from_disk && to.arena->mapped)
        return arena_read(from.arena, from.offset, address(to), bytes, channel);
    else if (to_disk && from.arena->mapped)
        return arena_write(to.arena, to.offset, address(from), bytes, channel);
    else if (from_disk)
        return bring(backend, staging, from, to, bytes, channel, stream);
    else
        return send(backend, staging, from, to, bytes, channel, stream);
    return STATUS_OK;
}
