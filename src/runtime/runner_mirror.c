/* CPU copies of device-only inputs and results. */
#include "runtime/runner_state.h"

static bool has_mirror(const struct tensor *tensor) {
    return tensor->kind == TENSOR_INPUT || tensor->kind == TENSOR_RESULT || tensor->kept;
}

static enum status create_mirror(struct runner *runner, const struct tensor *tensor) {
    int64_t offset;
    const struct buffer *buffer = program_find_buffer(runner->executable->program, tensor, &offset);
    if (!buffer || runner->arenas[buffer->tier].mapped || runner->mirrors[buffer->id]) return STATUS_OK;
    return runner->executable->backend->memory->take(TIER_HOST, buffer->bytes, &runner->mirrors[buffer->id]);
}

enum status runner_mirrors_open(struct runner *runner) {
    const struct graph *graph = runner->executable->graph;
    if (!runner->executable->backend->memory) return STATUS_OK;
    runner->mirrors = mem_array(runner->executable->program->buffers.count, sizeof *runner->mirrors);
    if (!runner->mirrors) return STATUS_FAILED;
    for (size_t i = 0; i < graph->tensors.count; i++)
        if (has_mirror(graph->tensors.items[i])) TRY(create_mirror(runner, graph->tensors.items[i]));
    return STATUS_OK;
}

void runner_mirrors_close(struct runner *runner) {
    for (size_t b = 0; runner->mirrors && b < runner->executable->program->buffers.count; b++)
        if (runner->mirrors[b]) runner->executable->backend->memory->give_back(TIER_HOST, runner->mirrors[b]);
    mem_free(runner->mirrors);
}

enum status runner_mirrors_send(struct runner *runner) {
    const struct program *program = runner->executable->program;
    for (size_t b = 0; runner->mirrors && b < program->buffers.count; b++) {
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
