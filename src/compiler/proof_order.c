#include "compiler/proof_order.h"

enum { STEPS = 2, RUNS_MAX = 3 };

struct unrolled {
    struct program program;         /* the program with its sections cut; all else is borrowed */
    int64_t *first;                 /* by instruction: index of its first issue in `clocks` */
    struct clock *clocks;           /* by issue: what has ended when it ends */
    struct clock last[STREAMS_MAX]; /* by stream: the clock of its latest issue */
    int64_t issued[STREAMS_MAX];
};

static int64_t repetitions_of(const struct program *program, int32_t instruction) {
    return program->sections.items[program->instructions.items[instruction].section].repeat;
}

/* Clocks of all issues of an instruction lie side by side, step by step and repetition by repetition. */
static enum status unroll(const struct program *program, struct unrolled *unrolled) {
    struct program *cut = &unrolled->program;
    *cut = *program;
    cut->sections.items = mem_array(program->sections.count, sizeof *cut->sections.items);
    unrolled->first = mem_array(program->instructions.count, sizeof *unrolled->first);
    if (!cut->sections.items || !unrolled->first) return STATUS_FAILED;
    for (size_t s = 0; s < program->sections.count; s++) {
        struct section *section = &cut->sections.items[s];
        *section = program->sections.items[s];
        if (section->repeat > RUNS_MAX) section->repeat = RUNS_MAX;
    }
    int64_t issues = 0;
    for (int32_t i = 0; i < (int32_t)program->instructions.count; i++) {
        unrolled->first[i] = issues;
        issues += STEPS * repetitions_of(cut, i);
    }
    unrolled->clocks = mem_array((size_t)issues, sizeof *unrolled->clocks);
    return unrolled->clocks ? STATUS_OK : STATUS_FAILED;
}

static void join(struct clock *into, const struct clock *other) {
    for (int s = 0; s < STREAMS_MAX; s++)
        if (other->ended[s] > into->ended[s]) into->ended[s] = other->ended[s];
}

/* An issue ends after the one before it on its stream and after what it waits for. */
static enum status issue_at(struct unrolled *unrolled, int32_t index, int64_t step, int64_t repetition,
                            struct proof_issue *issue) {
    const struct program *program = &unrolled->program;
    const struct instruction *instruction = &program->instructions.items[index];
    struct clock clock = unrolled->last[instruction->stream];
    for (int32_t w = 0; w < instruction->wait_count; w++) {
        int32_t waited = instruction->waits[w];
        int64_t required = program_issues_required(program, waited, index, step, repetition);
        if (required == 0) continue;
        const struct clock *theirs = &unrolled->clocks[unrolled->first[waited] + required - 1];
        if (required > STEPS * repetitions_of(program, waited) ||
            theirs->ended[program->instructions.items[waited].stream] == 0)
            return status_set(STATUS_FAILED, "program: instruction %d waits for an issue of %d that comes later", index,
                              waited);
        join(&clock, theirs);
    }
    issue->instruction = index;
    issue->number = ++unrolled->issued[instruction->stream];
    clock.ended[instruction->stream] = issue->number;
    issue->finished = clock;
    unrolled->clocks[unrolled->first[index] + step * repetitions_of(program, index) + repetition] = clock;
    unrolled->last[instruction->stream] = clock;
    return STATUS_OK;
}

static enum status walk(struct unrolled *unrolled, enum status (*visitor)(void *, const struct proof_issue *),
                        void *payload) {
    struct proof_issue issue = {.section_repetition = 0};
    for (int64_t step = 0; step < STEPS; step++)
        for (size_t s = 0; s < unrolled->program.sections.count; s++) {
            const struct section *section = &unrolled->program.sections.items[s];
            for (int64_t repetition = 0; repetition < section->repeat; repetition++, issue.section_repetition++)
                for (int32_t i = section->first; i < section->first + section->count; i++) {
                    TRY(issue_at(unrolled, i, step, repetition, &issue));
                    TRY(visitor(payload, &issue));
                }
        }
    return STATUS_OK;
}

enum status proof_order_walk(const struct program *program,
                             enum status (*visitor)(void *payload, const struct proof_issue *issue), void *payload) {
    struct unrolled unrolled = {.first = NULL};
    enum status status = unroll(program, &unrolled);
    if (status == STATUS_OK) status = walk(&unrolled, visitor, payload);
    mem_free(unrolled.program.sections.items);
    mem_free(unrolled.first);
    mem_free(unrolled.clocks);
    return status;
}
