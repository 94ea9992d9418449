/* The pass that gives instructions their waits for instructions of other streams. */
#include <string.h>

#include "program/happens.h"
#include "program/passes.h"
#include "program/segments.h"

/* Waits from conflicts: for each access, the last write of the same bytes and, when it writes, the reads since then
 * must have ended. Where the order so far does not say so, a wait is added. Two steps with up to three repetitions
 * of each section are walked, which covers conflicts with the previous repetition and the previous step. */

struct issue {
    int64_t number; /* on its stream; 0: none */
    int32_t instruction;
};

struct history {
    struct issue write;
    int32_t write_stream;
    uint32_t readers; /* bit s: stream s has read since the write */
};

struct synchroniser {
    struct program *program;
    struct segments segments;
    struct history *histories; /* by segment */
    struct issue *reads;       /* by segment and stream: the latest; of streams that are among the readers */
};

static enum status add_wait(struct instruction *instruction, int32_t other) {
    int32_t at = 0;
    while (at < instruction->wait_count && instruction->waits[at] < other)
        at++;
    if (at < instruction->wait_count && instruction->waits[at] == other) return STATUS_OK;
    int32_t *waits = mem_resize(instruction->waits, (size_t)instruction->wait_count + 1, sizeof *waits);
    if (!waits) return STATUS_FAILED;
    memmove(waits + at + 1, waits + at, (size_t)(instruction->wait_count - at) * sizeof *waits);
    waits[at] = other;
    instruction->waits = waits;
    instruction->wait_count++;
    return STATUS_OK;
}

static enum status require_ended(struct synchroniser *synchroniser, struct walk *walk, int stream,
                                 const struct issue *issue) {
    if (issue->number == 0 || walk_ended(walk, stream, issue->number)) return STATUS_OK;
    TRY(add_wait(&synchroniser->program->instructions.items[walk->instruction], issue->instruction));
    walk_refresh(walk);
    return STATUS_OK;
}

static struct issue *read_of(struct synchroniser *synchroniser, int32_t segment, int stream) {
    return &synchroniser->reads[(size_t)segment * (size_t)synchroniser->program->streams + (size_t)stream];
}

static enum status order_access(struct synchroniser *synchroniser, struct walk *walk, enum access access,
                                struct reach reach) {
    for (int32_t i = reach.first; i < reach.end; i++) {
        const struct history *history = &synchroniser->histories[i];
        TRY(require_ended(synchroniser, walk, history->write_stream, &history->write));
        uint32_t readers = access == ACCESS_READ ? 0 : history->readers;
        for (int s = 0; readers >> s != 0; s++)
            if (readers >> s & 1) TRY(require_ended(synchroniser, walk, s, read_of(synchroniser, i, s)));
    }
    return STATUS_OK;
}

static void record_access(struct synchroniser *synchroniser, const struct walk *walk, int stream, enum access access,
                          struct reach reach) {
    struct issue issue = {.number = walk->number, .instruction = walk->instruction};
    for (int32_t i = reach.first; i < reach.end; i++) {
        struct history *history = &synchroniser->histories[i];
        if (access == ACCESS_READ) {
            history->readers |= 1u << stream;
            *read_of(synchroniser, i, stream) = issue;
        } else
            *history = (struct history){.write = issue, .write_stream = stream};
    }
}

static enum status synchronise_issue(void *payload, struct walk *walk) {
    struct synchroniser *synchroniser = payload;
    const struct instruction *instruction = &synchroniser->program->instructions.items[walk->instruction];
    struct reach reaches[OPERANDS_MAX];
    for (int k = 0; k < OPERANDS_MAX; k++) {
        const struct operand *operand = &instruction->operands[k];
        if (operand->buffer < 0) continue;
        reaches[k] = segments_of(&synchroniser->segments, walk->instruction, k);
        TRY(order_access(synchroniser, walk, operand->access, reaches[k]));
    }
    /* Reads first: a write of the same instruction replaces the history. */
    for (int pass = 0; pass < 2; pass++)
        for (int k = 0; k < OPERANDS_MAX; k++) {
            const struct operand *operand = &instruction->operands[k];
            bool reads = operand->access == ACCESS_READ;
            if (operand->buffer >= 0 && reads == (pass == 0))
                record_access(synchroniser, walk, instruction->stream, operand->access, reaches[k]);
        }
    return STATUS_OK;
}

enum status program_synchronise(struct program *program) {
    if (program->streams == 1) return STATUS_OK; /* one stream is ordered already */
    struct synchroniser synchroniser = {.program = program};
    TRY(segments_create(program, &synchroniser.segments));
    size_t segments = (size_t)synchroniser.segments.count;
    synchroniser.histories = mem_array(segments, sizeof *synchroniser.histories);
    synchroniser.reads = mem_array(segments * (size_t)program->streams, sizeof *synchroniser.reads);
    bool room = synchroniser.histories && synchroniser.reads;
    enum status status = room ? walk_program(program, synchronise_issue, &synchroniser) : STATUS_FAILED;
    mem_free(synchroniser.histories);
    mem_free(synchroniser.reads);
    segments_free(&synchroniser.segments);
    return status;
}
