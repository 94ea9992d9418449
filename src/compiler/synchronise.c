/* The pass that gives instructions their waits for instructions of other streams. */

#include "compiler/order.h"
#include "compiler/program.h"

/* Waits from conflicts: for each access, the last write of the same bytes and, when it writes, the reads since then
 * must have ended. If the order so far does not imply this, a wait is added. Two steps with up to three repetitions of
 * each section are walked, which covers conflicts with the previous repetition and the previous step.
 *
 * Neighbouring segments mostly have one history, since one instruction wrote them: a history is that of a run of
 * segments, which the first of them stands for. An access splits runs at its ends, and a write makes one of all that it
 * covers. */

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
    uint64_t *firsts;          /* bit of a segment: a run begins there */
    struct history *histories; /* by segment; only the first segment of a run counts */
    struct issue *reads;       /* by such a segment and stream: the latest; of streams that are among the readers */
};

enum { WORD_BITS = 64 };

static bool is_first(const struct synchroniser *synchroniser, int32_t segment) {
    return synchroniser->firsts[segment / WORD_BITS] >> segment % WORD_BITS & 1;
}

/* The first run that begins at `segment` or behind it; `end` where none begins before that. */
static int32_t next_first(const struct synchroniser *synchroniser, int32_t segment, int32_t end) {
    while (segment < end) {
        uint64_t word = synchroniser->firsts[segment / WORD_BITS] >> segment % WORD_BITS;
        if (word) {
            segment += __builtin_ctzll(word);
            return segment < end ? segment : end;
        }
        segment = (segment / WORD_BITS + 1) * WORD_BITS;
    }
    return end;
}

/* The first segment of the run that contains this segment. The first segment of all begins a run. */
static int32_t run_of(const struct synchroniser *synchroniser, int32_t segment) {
    int32_t word = segment / WORD_BITS;
    uint64_t below = synchroniser->firsts[word] << (WORD_BITS - 1 - segment % WORD_BITS);
    if (below) return segment - __builtin_clzll(below);
    do
        word--;
    while (!synchroniser->firsts[word]);
    return word * WORD_BITS + WORD_BITS - 1 - __builtin_clzll(synchroniser->firsts[word]);
}

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

/* Has a run begin at the segment, which may be the one behind the last. */
static void split(struct synchroniser *synchroniser, int32_t segment) {
    if (segment == synchroniser->segments.count || is_first(synchroniser, segment)) return;
    int32_t from = run_of(synchroniser, segment);
    synchroniser->firsts[segment / WORD_BITS] |= UINT64_C(1) << segment % WORD_BITS;
    synchroniser->histories[segment] = synchroniser->histories[from];
    memcpy(read_of(synchroniser, segment, 0), read_of(synchroniser, from, 0),
           (size_t)synchroniser->program->streams * sizeof *synchroniser->reads);
}

static void join(struct synchroniser *synchroniser, struct reach reach) {
    for (int32_t i = next_first(synchroniser, reach.first + 1, reach.end); i < reach.end;
         i = next_first(synchroniser, i + 1, reach.end))
        synchroniser->firsts[i / WORD_BITS] &= ~(UINT64_C(1) << i % WORD_BITS);
}

static enum status order_access(struct synchroniser *synchroniser, struct walk *walk, enum access access,
                                struct reach reach) {
    for (int32_t i = reach.first; i < reach.end; i = next_first(synchroniser, i + 1, reach.end)) {
        const int32_t run = i == reach.first ? run_of(synchroniser, i) : i;
        const struct history *history = &synchroniser->histories[run];
        TRY(require_ended(synchroniser, walk, history->write_stream, &history->write));
        uint32_t readers = access == ACCESS_READ ? 0 : history->readers;
        for (int s = 0; readers >> s != 0; s++)
            if (readers >> s & 1) TRY(require_ended(synchroniser, walk, s, read_of(synchroniser, run, s)));
    }
    return STATUS_OK;
}

static void record_access(struct synchroniser *synchroniser, const struct walk *walk, int stream, enum access access,
                          struct reach reach) {
    struct issue issue = {.number = walk->number, .instruction = walk->instruction};
    if (reach.first == reach.end) return;
    split(synchroniser, reach.first);
    split(synchroniser, reach.end);
    if (access != ACCESS_READ) {
        join(synchroniser, reach);
        synchroniser->histories[reach.first] = (struct history){.write = issue, .write_stream = stream};
        return;
    }
    for (int32_t i = reach.first; i < reach.end; i = next_first(synchroniser, i + 1, reach.end)) {
        synchroniser->histories[i].readers |= 1u << stream;
        *read_of(synchroniser, i, stream) = issue;
    }
}

static enum status synchronise_issue(void *payload, struct walk *walk) {
    struct synchroniser *synchroniser = payload;
    const struct instruction *instruction = &synchroniser->program->instructions.items[walk->instruction];
    const struct reach *reaches = segments_of(&synchroniser->segments, walk->instruction);
    const struct operand *operands[OPERANDS_MAX]; /* the operands that are present */
    int count = 0;
    for (int k = 0; k < OPERANDS_MAX; k++)
        if (instruction->operands[k].buffer >= 0) operands[count++] = &instruction->operands[k];
    for (int i = 0; i < count; i++)
        TRY(order_access(synchroniser, walk, operands[i]->access, reaches[i]));
    /* Reads first: a write of the same instruction replaces the history. */
    for (int wave = 0; wave < 2; wave++)
        for (int i = 0; i < count; i++)
            if ((operands[i]->access == ACCESS_READ) == (wave == 0))
                record_access(synchroniser, walk, instruction->stream, operands[i]->access, reaches[i]);
    return STATUS_OK;
}

/* Its memory is freed with that of the segments. */
static enum status begin(struct synchroniser *synchroniser) {
    struct scratch *memory = &synchroniser->segments.memory;
    size_t segments = (size_t)synchroniser->segments.count;
    TRY(scratch_items(memory, &synchroniser->firsts, segments / WORD_BITS + 1));
    TRY(scratch_items(memory, &synchroniser->histories, segments));
    TRY(scratch_items(memory, &synchroniser->reads, segments * (size_t)synchroniser->program->streams));
    synchroniser->firsts[0] = 1;
    return STATUS_OK;
}

enum status program_synchronise(struct program *program) {
    if (program->streams == 1) return STATUS_OK; /* one stream is ordered already */
    struct synchroniser synchroniser = {.program = program};
    TRY(segments_create(program, &synchroniser.segments));
    enum status status = begin(&synchroniser);
    if (status == STATUS_OK) status = walk_program(program, synchronise_issue, &synchroniser);
    segments_free(&synchroniser.segments);
    return status;
}
