/* Reading and writing a program's tensors between steps. */
#include <string.h>

#include "runtime/runner_state.h"

void *runner_local_shard(const struct runner *runner, const struct tensor *tensor, int64_t *first, int64_t *elements) {
    struct tensor_run run = {.first = 0};
    const struct buffer *buffer = program_find_buffer(runner->executable->program, tensor, &run);
    *first = run.first;
    *elements = run.elements;
    if (run.elements == 0) return NULL;
    const struct arena *arena = &runner->arenas[buffer->tier];
    if (arena->mapped) return (char *)arena->base + buffer->offset + run.offset;
    char *mirror = runner->mirrors ? runner->mirrors[buffer->id] : NULL;
    return mirror ? mirror + run.offset : NULL;
}

void *runner_data(const struct runner *runner, const struct tensor *tensor) {
    int64_t first, elements;
    void *data = runner_local_shard(runner, tensor, &first, &elements);
    return elements == shape_elements(&tensor->shape) ? data : NULL;
}

void *runner_operand(const struct runner *runner, const struct operand *operand, int64_t repetition) {
    bool mapped =
        operand->buffer >= 0 && runner->arenas[runner->executable->program->buffers.items[operand->buffer].tier].mapped;
    return mapped ? runner_address(runner, operand, repetition) : NULL;
}

enum status runner_read_operand(const struct runner *runner, const struct operand *operand, int64_t repetition,
                                void *to) {
    const struct buffer *buffer = &runner->executable->program->buffers.items[operand->buffer];
    return arena_read(&runner->arenas[buffer->tier], buffer->offset + operand->offset + repetition * operand->stride,
                      to, operand->bytes, 0);
}

/* A range of a tier; on the disk also the whole blocks around it that fit into the bounce buffer. */
struct disk_range {
    const struct arena *arena;
    int64_t begin, end;             /* what is left of the range */
    int64_t block_begin, block_end; /* moved */
};

static void settle_blocks(struct disk_range *disk_range) {
    disk_range->block_begin = disk_range->begin / DISK_ALIGNMENT * DISK_ALIGNMENT;
    int64_t end = (disk_range->end + DISK_ALIGNMENT - 1) / DISK_ALIGNMENT * DISK_ALIGNMENT;
    int64_t max = disk_range->block_begin + RUNNER_BOUNCE_BYTES;
    disk_range->block_end = end < max ? end : max;
}

static int64_t present_bytes(const struct disk_range *disk_range) {
    return (disk_range->end < disk_range->block_end ? disk_range->end : disk_range->block_end) - disk_range->begin;
}

static enum status load_bounce_buffer(const struct runner *runner, const struct disk_range *disk_range) {
    return arena_read(disk_range->arena, disk_range->block_begin, runner->bounce_buffer,
                      disk_range->block_end - disk_range->block_begin, 0);
}

static enum status read_disk(struct runner *runner, struct disk_range disk_range, char *to) {
    while (disk_range.begin < disk_range.end) {
        settle_blocks(&disk_range);
        TRY(load_bounce_buffer(runner, &disk_range));
        int64_t bytes = present_bytes(&disk_range);
        memcpy(to, (char *)runner->bounce_buffer + (disk_range.begin - disk_range.block_begin), (size_t)bytes);
        to += bytes;
        disk_range.begin += bytes;
    }
    return STATUS_OK;
}

/* In the blocks at both ends the neighbours' bytes stay as they are. */
static enum status write_disk(struct runner *runner, struct disk_range disk_range, const char *from) {
    while (disk_range.begin < disk_range.end) {
        settle_blocks(&disk_range);
        int64_t bytes = present_bytes(&disk_range);
        bool whole = disk_range.begin == disk_range.block_begin && disk_range.begin + bytes == disk_range.block_end;
        if (!whole) TRY(load_bounce_buffer(runner, &disk_range));
        memcpy((char *)runner->bounce_buffer + (disk_range.begin - disk_range.block_begin), from, (size_t)bytes);
        TRY(arena_write(disk_range.arena, disk_range.block_begin, runner->bounce_buffer,
                        disk_range.block_end - disk_range.block_begin, 0));
        from += bytes;
        disk_range.begin += bytes;
    }
    return STATUS_OK;
}

static struct disk_range find_range(const struct runner *runner, const struct tensor *tensor, int64_t offset,
                                    int64_t bytes) {
    struct tensor_run run;
    const struct buffer *buffer = program_find_buffer(runner->executable->program, tensor, &run);
    BUG_IF(!buffer, "the program has no %s", tensor->name);
    int64_t element = dtype_bytes(tensor->shape.dtype), start = offset - run.first * element;
    BUG_IF(start < 0 || start + bytes > run.elements * element, "bytes of %s that another rank has", tensor->name);
    int64_t begin = buffer->offset + run.offset + start;
    return (struct disk_range){.arena = &runner->arenas[buffer->tier], .begin = begin, .end = begin + bytes};
}

enum status runner_read(struct runner *runner, const struct tensor *tensor, int64_t offset, int64_t bytes, void *to) {
    struct disk_range disk_range = find_range(runner, tensor, offset, bytes);
    if (disk_range.arena->tier == TIER_DISK) return read_disk(runner, disk_range, to);
    return arena_read(disk_range.arena, disk_range.begin, to, bytes, 0);
}

enum status runner_write(struct runner *runner, const struct tensor *tensor, int64_t offset, int64_t bytes,
                         const void *from) {
    struct disk_range disk_range = find_range(runner, tensor, offset, bytes);
    if (disk_range.arena->tier == TIER_DISK) return write_disk(runner, disk_range, from);
    return arena_write(disk_range.arena, disk_range.begin, from, bytes, 0);
}
