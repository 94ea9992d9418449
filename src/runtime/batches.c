#include "runtime/batches.h"

#include "runtime/runner_state.h"

struct batch {
    int32_t members[KERNELS_TOGETHER];
    int count;
};

struct operand_range {
    enum tier tier;
    int64_t begin, end;
};

static struct operand_range range_of(const struct program *program, const struct operand *operand) {
    const struct buffer *buffer = &program->buffers.items[operand->buffer];
    int64_t begin = buffer->offset + operand->offset;
    return (struct operand_range){buffer->tier, begin, begin + operand->bytes};
}

static bool operands_clash(const struct program *program, const struct operand *a, const struct operand *b) {
    if (a->buffer < 0 || b->buffer < 0 || (a->access == ACCESS_READ && b->access == ACCESS_READ)) return false;
    struct operand_range x = range_of(program, a), y = range_of(program, b);
    return x.tier == y.tier && x.begin < y.end && y.begin < x.end;
}

static bool instructions_clash(const struct program *program, const struct instruction *a,
                               const struct instruction *b) {
    for (int i = 0; i < OPERANDS_MAX; i++)
        for (int k = 0; k < OPERANDS_MAX; k++)
            if (operands_clash(program, &a->operands[i], &b->operands[k])) return true;
    return false;
}

/* The function that executes several kernels in one call; NULL where the instruction has none. */
static kernel_run_together *together_of(const struct executable *executable, const struct instruction *instruction) {
    bool of_device = instruction->opcode == OPCODE_KERNEL && instruction->tier != TIER_HOST &&
                     !runner_on_host(executable->program, instruction);
    const struct kernel *kernel = of_device ? executable->kernels[instruction->node->id] : NULL;
    return kernel && kernel->workspace_bytes == 0 ? kernel->run_together : NULL;
}

/* Whether the instruction may extend the batch, whose last instruction no other waits for. */
static bool may_join(const struct executable *executable, const struct batch *batch,
                     const struct instruction *instruction) {
    const struct program *program = executable->program;
    if (batch->count == KERNELS_TOGETHER || instruction->wait_count > 0) return false;
    const struct instruction *first = &program->instructions.items[batch->members[0]];
    if (together_of(executable, first) != together_of(executable, instruction)) return false;
    if (first->deferred != instruction->deferred) return false;
    for (int i = 0; i < batch->count; i++)
        if (instructions_clash(program, &program->instructions.items[batch->members[i]], instruction)) return false;
    return true;
}

static void find(const struct executable *executable, const struct section *section, int stream, const bool *waited,
                 int32_t *last) {
    struct batch batch = {.count = 0};
    for (int32_t i = section->first; i < section->first + section->count; i++) {
        const struct instruction *instruction = &executable->program->instructions.items[i];
        if (instruction->stream != stream) continue;
        if (batch.count > 0 && !may_join(executable, &batch, instruction)) batch.count = 0;
        if (!together_of(executable, instruction)) continue;
        batch.members[batch.count++] = i;
        last[batch.members[0]] = i;
        if (waited[i]) batch.count = 0;
    }
}

enum status batches_find(const struct executable *executable, int32_t **last) {
    const struct program *program = executable->program;
    size_t count = program->instructions.count;
    *last = mem_array(count, sizeof **last);
    bool *waited = mem_array(count, sizeof *waited);
    for (size_t i = 0; *last && waited && i < count; i++) {
        const struct instruction *instruction = &program->instructions.items[i];
        (*last)[i] = (int32_t)i;
        for (int32_t w = 0; w < instruction->wait_count; w++)
            waited[instruction->waits[w]] = true;
    }
    for (size_t s = 0; *last && waited && s < program->sections.count; s++)
        for (int stream = 0; stream < program->streams; stream++)
            find(executable, &program->sections.items[s], stream, waited, *last);
    enum status status = *last && waited ? STATUS_OK : STATUS_FAILED;
    mem_free(waited);
    return status;
}
