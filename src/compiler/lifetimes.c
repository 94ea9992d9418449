/* The live ranges of buffers. */
#include "compiler/passes.h"

static void touch(struct program *program, const struct operand *operand, int32_t position) {
    struct buffer *buffer = &program->buffers.items[operand->buffer];
    if (buffer->first < 0) buffer->first = position;
    buffer->last = position;
}

/* An operation between ranks overlaps with the group that follows. Had that the staging's space, its kernels would
 * wait for the operation's end. */
static void extend_staging(struct program *program, int32_t position) {
    const struct instruction *items = program->instructions.items, *own = &items[position];
    const struct operand *staging = &own->operands[OPERAND_WORKSPACE];
    if (!opcode_is_collective(own->opcode) || staging->buffer < 0) return;
    int32_t last = position, end = (int32_t)program->instructions.count;
    while (last + 1 < end && items[last + 1].section == own->section && items[last + 1].group <= own->group + 1)
        last++;
    struct buffer *buffer = &program->buffers.items[staging->buffer];
    if (buffer->last < last) buffer->last = last;
}

/* An input that this purpose does not read; or what only other ranks or rounds use, which takes no space. */
static void settle_unused(struct buffer *buffer) {
    buffer->first = buffer->last = 0;
    if (!buffer->persistent && buffer->pack && buffer->bytes > BUFFER_ALIGNMENT) buffer->bytes = BUFFER_ALIGNMENT;
}

/* What comes into a repeated section from outside lives to its end. */
static void extend_entering(struct program *program, const struct section *section) {
    int32_t last = section->first + section->count - 1;
    for (size_t i = 0; i < program->buffers.count; i++) {
        struct buffer *buffer = &program->buffers.items[i];
        bool enters = buffer->first < section->first && buffer->last >= section->first;
        if (enters && buffer->last < last) buffer->last = last;
    }
}

void program_set_lifetimes(struct program *program) {
    int32_t end = (int32_t)program->instructions.count - 1;
    for (size_t i = 0; i < program->buffers.count; i++)
        program->buffers.items[i].first = -1;
    for (int32_t position = 0; position <= end; position++)
        for (int k = 0; k < OPERANDS_MAX; k++) {
            const struct operand *operand = &program->instructions.items[position].operands[k];
            if (operand->buffer >= 0) touch(program, operand, position);
        }
    for (int32_t position = 0; position <= end; position++)
        extend_staging(program, position);
    for (size_t i = 0; i < program->buffers.count; i++) {
        struct buffer *buffer = &program->buffers.items[i];
        if (buffer->first < 0) settle_unused(buffer);
        if (buffer->persistent) buffer->first = 0;
        if (buffer->persistent || buffer_is_kept(buffer)) buffer->last = end;
    }
    for (size_t s = 0; s < program->sections.count; s++)
        if (program->sections.items[s].repeat > 1) extend_entering(program, &program->sections.items[s]);
}
