/* The proof that conflicting uses of memory are ordered, made without the results of synchronise.c. */
#include "compiler/order.h"
#include "compiler/program.h"
#include "compiler/verify/verify.h"

/* The proof shares neither the unrolling nor the clocks of order.h, by which the waits are added: a fault in both
 * would go unnoticed. It unrolls a program into a list of all issues, and finds what an issue waits for by the rule
 * that the runner follows (program_issues_required). */
struct proof_issue {
    int32_t instruction;
    int64_t number;             /* on its stream, from 1 */
    int64_t section_repetition; /* counts the repetitions of all sections over all steps */
    struct clock finished;      /* by stream: how many issues are certain to have ended when this one ends */
};

/* True when issue `number` of `stream` is certain to have ended before the present one, on `own_stream`, starts. */
static inline bool proof_ended(const struct proof_issue *issue, int own_stream, int stream, int64_t number) {
    return stream == own_stream ? number < issue->number : issue->finished.ended[stream] >= number;
}

enum { STEPS = 2, RUNS_MAX = 3 };

struct unrolled {
    struct scratch memory;
    struct program program;         /* the program with its sections cut; all else is borrowed */
    int64_t *first;                 /* by instruction: index of its first issue in `clocks` */
    struct clock *clocks;           /* by issue: the issues that have ended when it ends */
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
    TRY(scratch_items(&unrolled->memory, &cut->sections.items, program->sections.count));
    TRY(scratch_items(&unrolled->memory, &unrolled->first, program->instructions.count));
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
    return scratch_items(&unrolled->memory, &unrolled->clocks, (size_t)issues);
}

/* An issue ends after the previous one on its stream and after the issues that it waits for. */
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
        clock_join(&clock, theirs);
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

/* Calls `visitor` for every issue of two steps in the order of issue, with repeated sections cut to three repetitions,
 * which covers every pair of neighbours. Stops at the first status that is not OK. FAILED also where a wait is for an
 * issue that comes later, and without memory. */
static enum status proof_order_walk(const struct program *program,
                                    enum status (*visitor)(void *payload, const struct proof_issue *issue),
                                    void *payload) {
    struct unrolled unrolled = {.first = NULL};
    enum status status = unroll(program, &unrolled);
    if (status == STATUS_OK) status = walk(&unrolled, visitor, payload);
    scratch_free(&unrolled.memory);
    return status;
}

/* The proof has two parts. Form (form.c): every index, size and border is legal. Order: the program is walked
 * with vector clocks; for each segment of bytes the walk knows whose data it holds and which accesses may not have
 * ended. */

/* Issues of a walk are counted in 32 bits: a few for each instruction, whose numbers have 32 too. */
struct tenancy {
    int32_t buffer;     /* whose data the segment holds; -1: none */
    int32_t repetition; /* of a section, counted over the walk, in which it was last written */
    int32_t write_stream;
    int32_t write;              /* number of the last write on its stream; 0: none */
    int32_t reads[STREAMS_MAX]; /* latest reads since */
};

/* The columns written so far of a buffer that is filled piece by piece: ascending, with gaps between them. */
struct piece {
    int64_t begin, end;
};
struct pieces {
    VEC(struct piece) list;
};

/* A buffer's contents: a tensor of one micro-batch of a wave. */
struct holding {
    const struct tensor *tensor;
    int64_t micro_batch;
};

struct verifier {
    struct scratch memory;
    const struct program *program;
    struct holding *holdings; /* by buffer */
    /* By buffer: how often its data was changed, in place or in a copy. A copy with an older count than its home, or a
     * home with an older count than its copy, is stale. */
    int64_t *versions;
    int64_t *latest; /* by buffer that is no copy */
    struct segments segments;
    struct tenancy *tenancies; /* by segment */
    struct pieces *pieces;     /* by buffer; whole writes leave one piece that covers all */
};

static bool covers(const struct pieces *pieces, int64_t begin, int64_t end) {
    for (size_t i = 0; i < pieces->list.count; i++)
        if (pieces->list.items[i].begin <= begin && end <= pieces->list.items[i].end) return true;
    return false;
}

/* A row's last columns end at INT64_MAX, as a whole write does, so that columns can add up to one. */
static void operand_columns(const struct operand *operand, int64_t *begin, int64_t *end) {
    *begin = operand->row_bytes ? operand->offset % operand->row_stride : 0;
    *end = operand->row_bytes ? *begin + operand->row_bytes : INT64_MAX;
    if (*end == operand->row_stride) *end = INT64_MAX;
}

static enum status add_piece(struct pieces *pieces, struct piece added) {
    size_t kept = 0, at = 0;
    for (size_t i = 0; i < pieces->list.count; i++) {
        struct piece piece = pieces->list.items[i];
        bool apart = piece.end < added.begin || added.end < piece.begin;
        if (apart) {
            at += piece.end < added.begin;
            pieces->list.items[kept++] = piece;
            continue;
        }
        if (piece.begin < added.begin) added.begin = piece.begin;
        if (piece.end > added.end) added.end = piece.end;
    }
    pieces->list.count = kept;
    TRY(vec_push(&pieces->list, added));
    for (size_t i = kept; i > at; i--)
        pieces->list.items[i] = pieces->list.items[i - 1];
    pieces->list.items[at] = added;
    return STATUS_OK;
}

static enum status verify_contents(struct verifier *verifier, const struct proof_issue *issue,
                                   const struct operand *operand, struct reach reach) {
    const struct buffer *buffer = &verifier->program->buffers.items[operand->buffer];
    for (int32_t i = reach.first; i < reach.end; i++) {
        const struct tenancy *tenancy = &verifier->tenancies[i];
        if (tenancy->buffer < 0)
            return FAULT(verifier->program, issue->instruction, operand, "read before it is written");
        if (tenancy->buffer != operand->buffer)
            return FAULT(verifier->program, issue->instruction, operand, "read after %s took its bytes",
                         verifier->program->buffers.items[tenancy->buffer].name);
        if (buffer->kind == BUFFER_ACTIVATIONS && tenancy->repetition != issue->section_repetition)
            return FAULT(verifier->program, issue->instruction, operand, "read before this pass has written it");
    }
    int64_t begin, stop;
    operand_columns(operand, &begin, &stop);
    if (!covers(&verifier->pieces[operand->buffer], begin, stop))
        return FAULT(verifier->program, issue->instruction, operand, "read before all of its columns are written");
    return STATUS_OK;
}

static enum status verify_order(struct verifier *verifier, const struct proof_issue *issue,
                                const struct operand *operand, struct reach reach) {
    int own = verifier->program->instructions.items[issue->instruction].stream;
    for (int32_t i = reach.first; i < reach.end; i++) {
        const struct tenancy *tenancy = &verifier->tenancies[i];
        if (!proof_ended(issue, own, tenancy->write_stream, tenancy->write))
            return FAULT(verifier->program, issue->instruction, operand,
                         "may start before a write on stream %d has ended", tenancy->write_stream);
        for (int s = 0; s < verifier->program->streams && operand->access != ACCESS_READ; s++)
            if (!proof_ended(issue, own, s, tenancy->reads[s]))
                return FAULT(verifier->program, issue->instruction, operand, "may overwrite what stream %d still reads",
                             s);
    }
    return STATUS_OK;
}

static enum status take_over(struct verifier *verifier, const struct proof_issue *issue, int stream,
                             const struct operand *operand, struct reach reach) {
    struct pieces *pieces = &verifier->pieces[operand->buffer];
    bool fresh = operand->row_bytes == 0;
    for (int32_t i = reach.first; i < reach.end; i++) {
        struct tenancy *tenancy = &verifier->tenancies[i];
        fresh |= tenancy->buffer != operand->buffer;
        *tenancy = (struct tenancy){.buffer = operand->buffer,
                                    .repetition = (int32_t)issue->section_repetition,
                                    .write_stream = stream,
                                    .write = (int32_t)issue->number};
    }
    /* An update keeps the previous data; any other write by a new buffer begins without defined data. */
    if (operand->access == ACCESS_UPDATE) return STATUS_OK;
    if (fresh) pieces->list.count = 0;
    struct piece piece;
    operand_columns(operand, &piece.begin, &piece.end);
    return add_piece(pieces, piece);
}

/* The tensor of an operand, as the buffer's owner would have it; NULL for workspace and for fills with zeros. */
static const struct tensor *operand_tensor(const struct program *program, const struct instruction *instruction,
                                           int index) {
    if (index == OPERAND_WORKSPACE) return NULL;
    if (instruction->opcode == OPCODE_BROADCAST) return program->collectives.items[instruction->collective].tensor;
    if (!instruction->node) return NULL;
    const struct node *node = instruction->node;
    if (instruction->opcode == OPCODE_REDUCE_SCATTER) return tensor_storage(node->in[0]); /* in whose place it is */
    return tensor_storage(index < OP_INPUTS_MAX ? node->in[index] : node->out[index - OP_INPUTS_MAX]);
}

/* An activation must be of the tensor and micro-batch that the node reads: sizes alone do not tell them apart. */
static enum status verify_holding(struct verifier *verifier, const struct proof_issue *issue,
                                  const struct operand *operand, const struct instruction *instruction,
                                  const struct tensor *tensor) {
    const struct holding *holding = &verifier->holdings[operand->buffer];
    if (!tensor || tensor->kind != TENSOR_ACTIVATION) return STATUS_OK;
    if (holding->tensor != tensor)
        return FAULT(verifier->program, issue->instruction, operand, "holds %s where %s is read",
                     holding->tensor ? holding->tensor->name : "nothing", tensor->name);
    if (holding->micro_batch != instruction->micro_batch)
        return FAULT(verifier->program, issue->instruction, operand,
                     "holds micro-batch %lld where micro-batch %lld is read", (long long)holding->micro_batch,
                     (long long)instruction->micro_batch);
    return STATUS_OK;
}

static int32_t root_of(const struct verifier *verifier, int32_t buffer) {
    while (verifier->program->buffers.items[buffer].original >= 0)
        buffer = verifier->program->buffers.items[buffer].original;
    return buffer;
}

static enum status verify_version(const struct verifier *verifier, const struct proof_issue *issue,
                                  const struct operand *operand) {
    if (verifier->versions[operand->buffer] == verifier->latest[root_of(verifier, operand->buffer)]) return STATUS_OK;
    return FAULT(verifier->program, issue->instruction, operand, "read although it was changed elsewhere since");
}

static void record_write(struct verifier *verifier, const struct instruction *instruction, int index) {
    const struct operand *operand = &instruction->operands[index];
    if (instruction->opcode == OPCODE_COPY) {
        verifier->holdings[operand->buffer] = verifier->holdings[instruction->operands[0].buffer];
        verifier->versions[operand->buffer] = verifier->versions[instruction->operands[0].buffer];
        return;
    }
    if (buffer_is_gathered(verifier->program, &verifier->program->buffers.items[operand->buffer])) {
        verifier->versions[operand->buffer] = verifier->latest[root_of(verifier, operand->buffer)];
        return;
    }
    verifier->holdings[operand->buffer] =
        (struct holding){operand_tensor(verifier->program, instruction, index), instruction->micro_batch};
    verifier->versions[operand->buffer] = ++verifier->latest[root_of(verifier, operand->buffer)];
}

/* After a scattered sum, only the rank's own block is defined. */
static void forget_other_blocks(struct verifier *verifier, const struct instruction *instruction, struct reach reach) {
    const struct program *program = verifier->program;
    const struct operand *data = &instruction->operands[OP_INPUTS_MAX];
    const struct buffer *buffer = &program->buffers.items[data->buffer];
    struct comm_range own = collectives_own_block(program, &program->collectives.items[instruction->collective]);
    int64_t base = buffer->offset + data->offset;
    for (int32_t i = reach.first; i < reach.end; i++) {
        int64_t begin = segments_begin(&verifier->segments, i) - base;
        int64_t stop = segments_begin(&verifier->segments, i + 1) - base;
        bool own_end = stop <= own.end || own.end == data->bytes; /* with the padding behind the last block */
        if (begin < own.begin || !own_end) verifier->tenancies[i].buffer = -1;
    }
}

static enum status verify_issue(void *payload, const struct proof_issue *issue) {
    struct verifier *verifier = payload;
    const struct instruction *instruction = &verifier->program->instructions.items[issue->instruction];
    const struct reach *reaches = segments_of(&verifier->segments, issue->instruction);
    int used[OPERANDS_MAX], count = 0;
    for (int k = 0; k < OPERANDS_MAX; k++)
        if (instruction->operands[k].buffer >= 0) used[count++] = k;
    for (int i = 0; i < count; i++) {
        const struct operand *operand = &instruction->operands[used[i]];
        if (operand->access != ACCESS_WRITE) TRY(verify_contents(verifier, issue, operand, reaches[i]));
        if (operand->access != ACCESS_WRITE)
            TRY(verify_holding(verifier, issue, operand, instruction,
                               operand_tensor(verifier->program, instruction, used[i])));
        if (operand->access != ACCESS_WRITE) TRY(verify_version(verifier, issue, operand));
        TRY(verify_order(verifier, issue, operand, reaches[i]));
    }
    for (int i = 0; i < count; i++)
        if (instruction->operands[used[i]].access == ACCESS_READ)
            for (int32_t s = reaches[i].first; s < reaches[i].end; s++)
                verifier->tenancies[s].reads[instruction->stream] = (int32_t)issue->number;
    for (int i = 0; i < count; i++) {
        const struct operand *operand = &instruction->operands[used[i]];
        if (operand->access == ACCESS_READ) continue;
        TRY(take_over(verifier, issue, instruction->stream, operand, reaches[i]));
        record_write(verifier, instruction, used[i]);
        if (instruction->opcode == OPCODE_REDUCE_SCATTER && used[i] == OP_INPUTS_MAX)
            forget_other_blocks(verifier, instruction, reaches[i]);
    }
    return STATUS_OK;
}

/* Persistent buffers hold their data when the first step begins. */
static enum status settle_persistent(struct verifier *verifier) {
    const struct program *program = verifier->program;
    for (size_t i = 0; i < program->buffers.count; i++) {
        const struct buffer *buffer = &program->buffers.items[i];
        if (!buffer->persistent) continue;
        TRY(add_piece(&verifier->pieces[i], (struct piece){0, INT64_MAX}));
    }
    for (size_t n = 0; n < program->instructions.count; n++) {
        const struct reach *reach = segments_of(&verifier->segments, (int32_t)n);
        for (int k = 0; k < OPERANDS_MAX; k++) {
            int32_t buffer = program->instructions.items[n].operands[k].buffer;
            if (buffer < 0) continue;
            for (int32_t i = reach->first; i < reach->end && program->buffers.items[buffer].persistent; i++)
                verifier->tenancies[i].buffer = buffer;
            reach++;
        }
    }
    return STATUS_OK;
}

/* Some steps leave deferred instructions out, or issue them alone (program.h), so buffers that they share with others
 * must be persistent. */
static enum status check_deferred(struct verifier *verifier) {
    enum { DEFERRED = 1, OTHER = 2 };
    const struct program *program = verifier->program;
    unsigned char *users = scratch_alloc(&verifier->memory, program->buffers.count, 1);
    if (!users) return STATUS_FAILED;
    for (int32_t i = 0; i < (int32_t)program->instructions.count; i++)
        for (int k = 0; k < OPERANDS_MAX; k++) {
            const struct instruction *instruction = &program->instructions.items[i];
            const struct operand *operand = &instruction->operands[k];
            if (operand->buffer < 0 || program->buffers.items[operand->buffer].persistent) continue;
            users[operand->buffer] |= instruction->deferred ? DEFERRED : OTHER;
            if (users[operand->buffer] == (DEFERRED | OTHER))
                return FAULT(program, i, operand, "used by deferred instructions and by others, and not kept");
        }
    return STATUS_OK;
}

/* A kernel has state of its own (library handles), so it is called on one stream. */
static enum status check_kernel_streams(struct verifier *verifier) {
    const struct program *program = verifier->program;
    int *streams = scratch_alloc(&verifier->memory, program->graph->nodes.count, sizeof *streams); /* 1 + stream */
    if (!streams) return STATUS_FAILED;
    for (int32_t i = 0; i < (int32_t)program->instructions.count; i++) {
        const struct instruction *instruction = &program->instructions.items[i];
        if (!instruction->node) continue;
        int *stream = &streams[instruction->node->id];
        if (*stream != 0 && *stream != instruction->stream + 1)
            return FAULT(program, i, NULL, "the kernel is called on streams %d and %d", *stream - 1,
                         instruction->stream);
        *stream = instruction->stream + 1;
    }
    return STATUS_OK;
}

static enum status verify_walk(struct verifier *verifier) {
    const struct program *program = verifier->program;
    TRY(check_deferred(verifier));
    TRY(check_kernel_streams(verifier));
    TRY(segments_create(program, &verifier->segments));
    TRY(scratch_items(&verifier->memory, &verifier->tenancies, (size_t)verifier->segments.count));
    TRY(scratch_items(&verifier->memory, &verifier->pieces, program->buffers.count));
    TRY(scratch_items(&verifier->memory, &verifier->holdings, program->buffers.count));
    TRY(scratch_items(&verifier->memory, &verifier->versions, program->buffers.count));
    TRY(scratch_items(&verifier->memory, &verifier->latest, program->buffers.count));
    for (int32_t i = 0; i < verifier->segments.count; i++)
        verifier->tenancies[i].buffer = -1;
    TRY(settle_persistent(verifier));
    return proof_order_walk(program, verify_issue, verifier);
}

enum status program_verify(const struct program *program) {
    if (program->streams < 1 || program->streams > STREAMS_MAX)
        return status_set(STATUS_FAILED, "program: %d streams, at most %d are possible", program->streams, STREAMS_MAX);
    TRY(program_verify_form(program));
    struct verifier verifier = {.program = program};
    enum status status = verify_walk(&verifier);
    for (size_t i = 0; verifier.pieces && i < program->buffers.count; i++)
        vec_free(&verifier.pieces[i].list);
    segments_free(&verifier.segments);
    scratch_free(&verifier.memory);
    return status;
}
