/* The CPU's view of a program's tensors: copies of data that only a device has, and reading and writing between
 * steps. */
#include "runtime/runner_state.h"

static enum status create_mirror(struct runner *runner, const struct tensor *tensor) {
    struct tensor_run run;
    bool result = tensor->kind == TENSOR_RESULT && !tensor->parameter;
    if (tensor->kind != TENSOR_INPUT && !result && !tensor->kept) return STATUS_OK;
    const struct buffer *buffer = program_find_buffer(runner->executable->program, tensor, &run);
    if (!buffer || runner->arenas[buffer->tier].mapped || runner->mirrors[buffer->id]) return STATUS_OK;
    return runner->executable->backend->memory->take(TIER_HOST, buffer->bytes, &runner->mirrors[buffer->id]);
}

enum { VALUES_BYTES = 2 * SCALAR_COUNT * sizeof(double) };

enum status runner_mirrors_open(struct runner *runner) {
    const struct graph *graph = runner->executable->graph;
    const struct backend_memory *memory = runner->executable->backend->memory;
    void *values;
    if (!memory) return STATUS_OK;
    TRY(memory->take(TIER_DEVICE, VALUES_BYTES, &values));
    runner->values = values;
    runner->mirrors = mem_array(runner->executable->program->buffers.count, sizeof *runner->mirrors);
    if (!runner->mirrors) return STATUS_FAILED;
    for (size_t i = 0; i < graph->tensors.count; i++)
        TRY(create_mirror(runner, graph->tensors.items[i]));
    return STATUS_OK;
}

void runner_mirrors_close(struct runner *runner) {
    for (size_t b = 0; runner->mirrors && b < runner->executable->program->buffers.count; b++)
        if (runner->mirrors[b]) runner->executable->backend->memory->give_back(TIER_HOST, runner->mirrors[b]);
    if (runner->values) runner->executable->backend->memory->give_back(TIER_DEVICE, runner->values);
    mem_free(runner->mirrors);
}

enum status runner_mirrors_send(struct runner *runner) {
    const struct program *program = runner->executable->program;
    double values[2][SCALAR_COUNT] = {{0}}; /* of the step; then the previous step's */
    if (!runner->values) return STATUS_OK;
    if (runner->scalars) memcpy(values[0], runner->scalars, sizeof values[0]);
    memcpy(values[1], runner->left, sizeof values[1]);
    TRY(runner->executable->backend->memory->write(runner->values, values, VALUES_BYTES));
    for (size_t b = 0; (runner->parts & PART_STEP) && b < program->buffers.count; b++) {
        const struct buffer *buffer = &program->buffers.items[b];
        if (!runner->mirrors[b] || buffer->kind != BUFFER_INPUTS) continue;
        TRY(arena_write(&runner->arenas[buffer->tier], buffer->offset, runner->mirrors[b], buffer->bytes, 0));
    }
    return STATUS_OK;
}

enum status runner_mirrors_fetch(struct runner *runner) {
    const struct program *program = runner->executable->program;
    for (size_t b = 0; runner->mirrors && b < program->buffers.count; b++) {
        const struct buffer *buffer = &program->buffers.items[b];
        if (!runner->mirrors[b] || buffer->kind == BUFFER_INPUTS) continue;
        TRY(arena_read(&runner->arenas[buffer->tier], buffer->offset, runner->mirrors[b], buffer->bytes, 0));
    }
    return STATUS_OK;
}

/* Reading and writing a program's tensors between steps. */

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

/* A range of a tier. */
struct tier_range {
    const struct arena *arena;
    int64_t begin, end;
};

/* Copies through the bounce buffer, in whole blocks: to `to` or, if that is NULL, from `from`. The first and the last
 * written block keep their neighbours' bytes. */
static enum status move_disk(struct runner *runner, struct tier_range range, char *to, const char *from) {
    char *bounce = runner->bounce_buffer;
    for (int64_t bytes; range.begin < range.end; range.begin += bytes) {
        int64_t begin = range.begin / DISK_ALIGNMENT * DISK_ALIGNMENT;
        int64_t end = (range.end + DISK_ALIGNMENT - 1) / DISK_ALIGNMENT * DISK_ALIGNMENT;
        if (end > begin + RUNNER_BOUNCE_BYTES) end = begin + RUNNER_BOUNCE_BYTES;
        bytes = (range.end < end ? range.end : end) - range.begin;
        bool whole = range.begin == begin && range.begin + bytes == end;
        if (to || !whole) TRY(arena_read(range.arena, begin, bounce, end - begin, 0));
        if (to) {
            memcpy(to, bounce + (range.begin - begin), (size_t)bytes);
            to += bytes;
        } else {
            memcpy(bounce + (range.begin - begin), from, (size_t)bytes);
            TRY(arena_write(range.arena, begin, bounce, end - begin, 0));
            from += bytes;
        }
    }
    return STATUS_OK;
}

static struct tier_range find_range(const struct runner *runner, const struct tensor *tensor, int64_t offset,
                                    int64_t bytes) {
    struct tensor_run run;
    const struct buffer *buffer = program_find_buffer(runner->executable->program, tensor, &run);
    BUG_IF(!buffer, "the program has no %s", tensor->name);
    int64_t element = dtype_bytes(tensor->shape.dtype), start = offset - run.first * element;
    BUG_IF(start < 0 || start + bytes > run.elements * element, "bytes of %s that another rank has", tensor->name);
    int64_t begin = buffer->offset + run.offset + start;
    return (struct tier_range){&runner->arenas[buffer->tier], begin, begin + bytes};
}

enum status runner_read(struct runner *runner, const struct tensor *tensor, int64_t offset, int64_t bytes, void *to) {
    struct tier_range range = find_range(runner, tensor, offset, bytes);
    if (range.arena->tier == TIER_DISK) return move_disk(runner, range, to, NULL);
    return arena_read(range.arena, range.begin, to, bytes, 0);
}

enum status runner_write(struct runner *runner, const struct tensor *tensor, int64_t offset, int64_t bytes,
                         const void *from) {
    struct tier_range range = find_range(runner, tensor, offset, bytes);
    if (range.arena->tier == TIER_DISK) return move_disk(runner, range, NULL, from);
    return arena_write(range.arena, range.begin, from, bytes, 0);
}
