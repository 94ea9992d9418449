/* A program's copies. */
#include "runtime/runner_state.h"

static struct tier_place place_of(const struct runner *runner, const struct operand *operand) {
    const struct buffer *buffer = &runner->executable->program->buffers.items[operand->buffer];
    return (struct tier_place){&runner->arenas[buffer->tier], buffer->offset};
}

enum status runner_copy(struct runner *runner, const struct instruction *instruction, void *stream) {
    const struct program *program = runner->executable->program;
    int64_t bytes = program_moved_bytes(program, program->buffers.items[instruction->operands[0].buffer].bytes);
    return tier_copy(runner->executable->backend, &runner->stages[instruction->stream],
                     place_of(runner, &instruction->operands[0]),
                     place_of(runner, &instruction->operands[OP_INPUTS_MAX]), bytes, instruction->stream, stream);
}
