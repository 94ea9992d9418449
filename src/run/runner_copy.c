/* Copies between tiers. */
#include "run/runner_state.h"

/* One end of a copy. */
struct end {
    const struct arena *arena;
    int64_t offset;
};

static char *address(struct end end) { return (char *)end.arena->base + end.offset; }

static struct end end_of(const struct runner *runner, const struct operand *operand) {
    const struct buffer *buffer = &runner->executable->program->buffers.items[operand->buffer];
    return (struct end){&runner->arenas[buffer->tier], buffer->offset};
}

static int64_t piece_bytes(int64_t left) { return left < STAGE_BYTES ? left : STAGE_BYTES; }

/* The place whose turn it is, when the device has done with it. */
static enum status take_place(struct stage *stage, const struct backend_streams *streams, int *place) {
    *place = stage->next;
    stage->next = (stage->next + 1) % STAGE_PLACES;
    return streams->await(stage->event[*place]);
}

static enum status bring(const struct backend *backend, struct stage *stage, struct end disk, struct end memory,
                         int64_t bytes, int channel, void *stream) {
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

/* Has the device copy the next piece to a place. */
static enum status fill_place(const struct backend *backend, struct stage *stage, struct end memory, int64_t bytes,
                              void *stream, int *place) {
    TRY(take_place(stage, backend->streams, place));
    backend->copy(stage->place[*place], address(memory), piece_bytes(bytes), stream);
    return backend->streams->record(stage->event[*place], stream);
}

static enum status send(const struct backend *backend, struct stage *stage, struct end memory, struct end disk,
                        int64_t bytes, int channel, void *stream) {
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

enum status runner_copy(struct runner *runner, const struct instruction *instruction, void *stream) {
    const struct program *program = runner->executable->program;
    const struct backend *backend = runner->executable->backend;
    struct end from = end_of(runner, &instruction->operands[0]);
    struct end to = end_of(runner, &instruction->operands[OP_INPUTS_MAX]);
    int64_t bytes = program_moved_bytes(program, program->buffers.items[instruction->operands[0].buffer].bytes);
    bool from_disk = from.arena->tier == TIER_DISK, to_disk = to.arena->tier == TIER_DISK;
    struct stage *stage = &runner->stages[instruction->stream];
    if (!from_disk && !to_disk)
        backend->copy(address(to), address(from), bytes, stream);
    else if (from_disk && to.arena->mapped)
        return arena_read(from.arena, from.offset, address(to), bytes, instruction->stream);
    else if (to_disk && from.arena->mapped)
        return arena_write(to.arena, to.offset, address(from), bytes, instruction->stream);
    else if (from_disk)
        return bring(backend, stage, from, to, bytes, instruction->stream, stream);
    else
        return send(backend, stage, from, to, bytes, instruction->stream, stream);
    return STATUS_OK;
}
