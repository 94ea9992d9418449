#include "runtime/tier_copy.h"

enum status copy_stage_open(const struct backend *backend, struct copy_stage *stage) {
    for (int p = 0; p < STAGE_PLACES; p++) {
        void *place;
        TRY(backend->memory->take(TIER_HOST, STAGE_BYTES, &place));
        stage->place[p] = place;
        TRY(backend->streams->create_event(&stage->event[p]));
    }
    return STATUS_OK;
}

void copy_stage_close(const struct backend *backend, struct copy_stage *stage) {
    for (int p = 0; p < STAGE_PLACES; p++) {
        if (stage->place[p]) backend->memory->give_back(TIER_HOST, stage->place[p]);
        if (stage->event[p]) backend->streams->free_event(stage->event[p]);
    }
    *stage = (struct copy_stage){0};
}

static char *address(struct tier_place place) { return (char *)place.arena->base + place.offset; }

static int64_t piece_bytes(int64_t left) { return left < STAGE_BYTES ? left : STAGE_BYTES; }

/* The next place, after the device has finished with it. */
static enum status take_place(struct copy_stage *stage, const struct backend_streams *streams, int *place) {
    *place = stage->next;
    stage->next = (stage->next + 1) % STAGE_PLACES;
    return streams->await(stage->event[*place]);
}

static enum status bring(const struct backend *backend, struct copy_stage *stage, struct tier_place disk,
                         struct tier_place memory, int64_t bytes, int channel, void *stream) {
    while (bytes > 0) {
        int64_t count = piece_bytes(bytes);
        int place;
        TRY(take_place(stage, backend->streams, &place));
        TRY(arena_read(disk.arena, disk.offset, stage->place[place], count, channel));
        backend->copy(address(memory), stage->place[place], count, stream);
        TRY(backend->streams->record(stage->event[place], stream));
        disk.offset += count, memory.offset += count, bytes -= count;
    }
    return STATUS_OK;
}

/* Enqueues the device's copy of the next piece to a place. */
static enum status fill_place(const struct backend *backend, struct copy_stage *stage, struct tier_place memory,
                              int64_t bytes, void *stream, int *place) {
    TRY(take_place(stage, backend->streams, place));
    backend->copy(stage->place[*place], address(memory), piece_bytes(bytes), stream);
    return backend->streams->record(stage->event[*place], stream);
}

static enum status send(const struct backend *backend, struct copy_stage *stage, struct tier_place memory,
                        struct tier_place disk, int64_t bytes, int channel, void *stream) {
    int place = 0, following = 0;
    TRY(fill_place(backend, stage, memory, bytes, stream, &place));
    while (bytes > 0) {
        int64_t count = piece_bytes(bytes);
        memory.offset += count;
        if (bytes > count) TRY(fill_place(backend, stage, memory, bytes - count, stream, &following));
        TRY(backend->streams->await(stage->event[place]));
        TRY(arena_write(disk.arena, disk.offset, stage->place[place], count, channel));
        disk.offset += count, bytes -= count;
        place = following;
    }
    return STATUS_OK;
}

enum status tier_copy(const struct backend *backend, struct copy_stage *stage, struct tier_place from,
                      struct tier_place to, int64_t bytes, int channel, void *stream) {
    bool from_disk = from.arena->tier == TIER_DISK, to_disk = to.arena->tier == TIER_DISK;
    if (!from_disk && !to_disk)
        backend->copy(address(to), address(from), bytes, stream);
    else if (from_disk && to.arena->mapped)
        return arena_read(from.arena, from.offset, address(to), bytes, channel);
    else if (to_disk && from.arena->mapped)
        return arena_write(to.arena, to.offset, address(from), bytes, channel);
    else if (from_disk)
        return bring(backend, stage, from, to, bytes, channel, stream);
    else
        return send(backend, stage, from, to, bytes, channel, stream);
    return STATUS_OK;
}
