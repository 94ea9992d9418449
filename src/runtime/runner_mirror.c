/* CPU copies of device-only inputs and results, and the step's values for the device. */
#include <string.h>

#include "runtime/runner_state.h"

static bool has_mirror(const struct tensor *tensor) {
    bool result = tensor->kind == TENSOR_RESULT && !tensor->parameter;
    return tensor->kind == TENSOR_INPUT || result || tensor->kept;
}

static enum status create_mirror(struct runner *runner, const struct tensor *tensor) {
    struct tensor_run run;
    const struct buffer *buffer = program_find_buffer(runner->executable->program, tensor, &run);
    if (!buffer || runner->arenas[buffer->tier].mapped || runner->mirrors[buffer->id]) return STATUS_OK;
    return runner->executable->backend->memory->take(TIER_HOST, buffer->bytes, &runner->mirrors[buffer->id]);
}

enum { VALUES_BYTES = 2 * SCALAR_COUNT * sizeof(double) };

/* Those of the step, then those that the step before left. */
static enum status send_values(struct runner *runner) {
    double values[2][SCALAR_COUNT] = {{0}};
    if (runner->scalars) memcpy(values[0], runner->scalars, sizeof values[0]);
    memcpy(values[1], runner->left, sizeof values[1]);
    return runner->executable->backend->memory->write(runner->values, values, VALUES_BYTES);
}

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
        if (has_mirror(graph->tensors.items[i])) TRY(create_mirror(runner, graph->tensors.items[i]));
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
    if (!runner->values) return STATUS_OK;
    TRY(send_values(runner));
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
