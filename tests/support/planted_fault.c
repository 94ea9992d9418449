#include "support/planted_fault.h"

#include <string.h>

#include "base/mem.h"
#include "support/unit.h"

void planted_fault_check(const struct planted_fault *fault, struct program *program) {
    if (program_verify(program) != STATUS_OK) fail_msg("before '%s': %s", fault->name, status_message());
    fault->plant(program);
    status_clear();
    enum status status = program_verify(program);
    if (status != STATUS_FAILED || !strstr(status_message(), fault->expected))
        fail_msg("%s: status %d, message '%s'", fault->name, status, status_message());
    program_free(program);
}

void count_needed_waits(struct program *program, int *with_waits, int *needed) {
    *with_waits = *needed = 0;
    for (size_t i = 0; i < program->instructions.count; i++) {
        struct instruction *instruction = &program->instructions.items[i];
        int32_t count = instruction->wait_count;
        if (count == 0) continue;
        ++*with_waits;
        instruction->wait_count = 0;
        *needed += program_verify(program) != STATUS_OK;
        instruction->wait_count = count;
    }
    assert_int_equal(program_verify(program), STATUS_OK);
}

struct instruction *find_kernel(struct program *program, const char *op, size_t from) {
    for (size_t i = from; i < program->instructions.count; i++) {
        struct instruction *instruction = &program->instructions.items[i];
        if (instruction->node && strcmp(instruction->node->op->name, op) == 0) return instruction;
    }
    fail_msg("no instruction of %s", op);
    return NULL;
}

struct buffer *find_kind(struct program *program, enum buffer_kind kind, int skip) {
    for (size_t i = 0; i < program->buffers.count; i++)
        if (program->buffers.items[i].kind == kind && skip-- == 0) return &program->buffers.items[i];
    fail_msg("no such buffer");
    return NULL;
}

int32_t find_waiting(struct program *program) {
    for (size_t i = program->instructions.count / 3; i < program->instructions.count; i++)
        if (program->instructions.items[i].wait_count > 0) return (int32_t)i;
    fail_msg("no waits");
    return 0;
}

static void forget_waits_for(struct instruction *instruction, int32_t index) {
    int32_t kept = 0;
    for (int32_t i = 0; i < instruction->wait_count; i++) {
        int32_t other = instruction->waits[i];
        if (other != index) instruction->waits[kept++] = other - (other > index);
    }
    instruction->wait_count = kept;
}

void drop_instruction(struct program *program, int32_t index) {
    struct instruction *items = program->instructions.items;
    struct section *sections = program->sections.items;
    sections[items[index].section].count--;
    for (int s = items[index].section + 1; s < (int)program->sections.count; s++)
        sections[s].first--;
    mem_free(items[index].waits);
    program->instructions.count--;
    memmove(items + index, items + index + 1, (program->instructions.count - (size_t)index) * sizeof *items);
    for (size_t i = 0; i < program->instructions.count; i++)
        forget_waits_for(&items[i], index);
}

void synchronise_again(struct program *program) {
    for (size_t i = 0; i < program->instructions.count; i++)
        program->instructions.items[i].wait_count = 0;
    assert_int_equal(program_synchronise(program), STATUS_OK);
}

void drop_waits(struct program *program, const char *expected) {
    for (size_t i = 0; i < program->instructions.count; i++) {
        struct instruction *instruction = &program->instructions.items[i];
        int32_t count = instruction->wait_count;
        instruction->wait_count = 0;
        if (count > 0 && program_verify(program) != STATUS_OK && strstr(status_message(), expected)) return;
        instruction->wait_count = count;
    }
    fail_msg("without no instruction's waits: %s", expected);
}

struct buffer *buffer_of(struct program *program, const struct operand *operand) {
    return &program->buffers.items[operand->buffer];
}
