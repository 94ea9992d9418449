#include "runtime/tier_copy.h"

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
