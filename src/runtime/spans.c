#include "runtime/spans.h"

#include <stdlib.h>

#include "runtime/runner_state.h"

struct finder {
    const struct program *program;
    bool *waited; /* by instruction: another waits for it */
    struct span open;
    struct spans *out;
};

/* Inputs are at other addresses in each repetition of a section. */
static bool moves_on(const struct program *program, const struct instruction *instruction) {
    if (program->sections.items[instruction->section].repeat == 1) return false;
    for (int k = 0; k < OPERANDS_MAX; k++)
        if (instruction->operands[k].buffer >= 0 && instruction->operands[k].stride != 0) return true;
    return false;
}

static bool can_be_captured(const struct program *program, const struct instruction *instruction) {
    return !instruction->deferred && !opcode_is_collective(instruction->opcode) &&
           !runner_on_host(program, instruction) && !moves_on(program, instruction);
}

static enum status close_span(struct finder *finder) {
    struct span span = finder->open;
    finder->open = (struct span){0};
    return span.count < SPAN_MIN ? STATUS_OK : vec_push(&finder->out->all, span);
}

static enum status visit(struct finder *finder, int32_t index) {
    const struct program *program = finder->program;
    const struct instruction *instruction = &program->instructions.items[index];
    bool captured = can_be_captured(program, instruction);
    bool changes_state = runner_changes_state(program, instruction);
    struct span *open = &finder->open;
    if (!captured || open->changes_state != changes_state || instruction->wait_count > 0) TRY(close_span(finder));
    if (!captured) return STATUS_OK;
    if (open->count++ == 0) open->first = index;
    open->last = index;
    open->runs = program->sections.items[instruction->section].repeat;
    open->changes_state = changes_state;
    return finder->waited[index] ? close_span(finder) : STATUS_OK;
}

static enum status find(struct finder *finder) {
    const struct program *program = finder->program;
    for (size_t s = 0; s < program->sections.count; s++)
        for (int stream = 0; stream < program->streams; stream++) {
            const struct section *section = &program->sections.items[s];
            for (int32_t i = section->first; i < section->first + section->count; i++)
                if (program->instructions.items[i].stream == stream) TRY(visit(finder, i));
            TRY(close_span(finder));
        }
    return STATUS_OK;
}

static int compare(const void *a, const void *b) {
    const struct span *x = a, *y = b;
    if (x->runs != y->runs) return x->runs > y->runs ? -1 : 1;
    return (x->first > y->first) - (x->first < y->first);
}

static void sort(struct spans *spans) {
    if (spans->all.count > 1) qsort(spans->all.items, spans->all.count, sizeof *spans->all.items, compare);
    for (size_t s = 0; s < spans->all.count; s++)
        spans->at[spans->all.items[s].first] = (int32_t)s;
}

enum status spans_find(const struct program *program, struct spans *out) {
    size_t count = program->instructions.count;
    struct finder finder = {.program = program, .out = out};
    *out = (struct spans){.at = mem_array(count, sizeof *out->at)};
    finder.waited = mem_array(count, sizeof *finder.waited);
    enum status status;
    TRY_GOTO(status, out->at && finder.waited ? STATUS_OK : STATUS_FAILED, done);
    for (size_t i = 0; i < count; i++) {
        const struct instruction *instruction = &program->instructions.items[i];
        out->at[i] = -1;
        for (int32_t w = 0; w < instruction->wait_count; w++)
            finder.waited[instruction->waits[w]] = true;
    }
    TRY_GOTO(status, find(&finder), done);
    sort(out);
done:
    mem_free(finder.waited);
    return status;
}

void spans_free(struct spans *spans) {
    vec_free(&spans->all);
    mem_free(spans->at);
    *spans = (struct spans){0};
}
