#include "compiler/happens.h"

int64_t program_issues_required(const struct program *program, int32_t waited, int32_t instruction, int64_t step,
                                int64_t repetition) {
    int section = program->instructions.items[instruction].section;
    int their_section = program->instructions.items[waited].section;
    const struct section *theirs = &program->sections.items[their_section];
    int64_t this_step = their_section < section ? theirs->repeat : 0;
    if (their_section == section) this_step = repetition + (waited < instruction);
    return step * theirs->repeat + this_step;
}

static void join(struct clock *into, const struct clock *other) {
    for (int s = 0; s < STREAMS_MAX; s++)
        if (other->ended[s] > into->ended[s]) into->ended[s] = other->ended[s];
}

void walk_refresh(struct walk *walk) {
    const struct instruction *instruction = &walk->program->instructions.items[walk->instruction];
    walk->before = walk->streams[instruction->stream];
    for (int32_t i = 0; i < instruction->wait_count; i++) {
        int32_t other = instruction->waits[i];
        if (walk->started[other]) join(&walk->before, &walk->latest[other]);
    }
}

static enum status walk_issue(struct walk *walk, enum status (*visitor)(void *, struct walk *), void *payload) {
    const struct instruction *instruction = &walk->program->instructions.items[walk->instruction];
    int stream = instruction->stream;
    walk->number = walk->issued[stream] + 1;
    walk_refresh(walk);
    TRY(visitor(payload, walk));
    walk->issued[stream] = walk->number;
    struct clock after = walk->before;
    after.ended[stream] = walk->number;
    walk->streams[stream] = walk->latest[walk->instruction] = after;
    walk->started[walk->instruction] = true;
    return STATUS_OK;
}

static enum status walk_step(struct walk *walk, enum status (*visitor)(void *, struct walk *), void *payload) {
    const struct program *program = walk->program;
    for (walk->section = 0; walk->section < program->sections.count; walk->section++) {
        const struct section *section = &program->sections.items[walk->section];
        int64_t repetitions = section->repeat < WALK_REPETITIONS_MAX ? section->repeat : WALK_REPETITIONS_MAX;
        for (walk->repetition = 0; walk->repetition < repetitions; walk->repetition++)
            for (int32_t i = 0; i < section->count; i++) {
                walk->instruction = section->first + i;
                TRY(walk_issue(walk, visitor, payload));
            }
    }
    return STATUS_OK;
}

enum status walk_program(const struct program *program, enum status (*visitor)(void *payload, struct walk *walk),
                         void *payload) {
    struct walk walk = {.program = program};
    walk.latest = mem_array(program->instructions.count, sizeof *walk.latest);
    walk.started = mem_array(program->instructions.count, sizeof *walk.started);
    enum status status = walk.latest && walk.started ? STATUS_OK : STATUS_FAILED;
    for (walk.step = 0; walk.step < WALK_STEPS && status == STATUS_OK; walk.step++)
        status = walk_step(&walk, visitor, payload);
    mem_free(walk.latest);
    mem_free(walk.started);
    return status;
}
