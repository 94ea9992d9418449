/* The proof that conflicting uses of memory are ordered, made without the results of synchronise.c. */
#include <string.h>

#include "program/proof_order.h"
#include "program/segments.h"

/* The proof has two parts. Form: every index, size and border is legal. Order: the program is walked with vector
 * clocks; for each segment of bytes the walk knows whose data it holds and which accesses may not have ended. */

struct tenancy {
    int32_t buffer;     /* whose data the segment holds; -1: none */
    int64_t repetition; /* of a section, counted over the walk, in which it was last written */
    int write_stream;
    int64_t write;              /* number of the last write on its stream; 0: none */
    int64_t reads[STREAMS_MAX]; /* latest reads since */
};

/* The columns written so far of a buffer that is filled piece by piece: ascending, with gaps between them. */
struct piece {
    int64_t begin, end;
};
struct pieces {
    VEC(struct piece) list;
};

/* What a buffer holds: a tensor of one grain of a pass. */
struct holding {
    const struct tensor *tensor;
    int64_t grain;
};

struct verifier {
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

static const char *instruction_name(const struct instruction *instruction) {
    static const char *const names[] = {[OPCODE_KERNEL] = "kernel",
                                        [OPCODE_ZERO] = "zero",
                                        [OPCODE_COPY] = "copy",
                                        [OPCODE_ADD] = "add",
                                        [OPCODE_ADD_BF16] = "add in bf16",
                                        [OPCODE_ALL_REDUCE] = "all-reduce"};
    return instruction->node ? instruction->node->name : names[instruction->opcode];
}

/* FAILED "program: instruction 12 (layer 0.q): buffer x: rule". */
#define FAULT(program, index, operand, ...) fault(program, index, operand, status_set(STATUS_FAILED, __VA_ARGS__))
static enum status fault(const struct program *program, int32_t index, const struct operand *operand,
                         enum status status) {
    const struct instruction *instruction = &program->instructions.items[index];
    bool named = operand && operand->buffer >= 0 && operand->buffer < (int32_t)program->buffers.count;
    return status_prefix(status, "program: instruction %d (%s)%s%s", index, instruction_name(instruction),
                         named ? ": buffer " : "", named ? program->buffers.items[operand->buffer].name : "");
}

/* Copies to and from the disk move a buffer's last block as a whole, so the arena must hold all of it. */
static int64_t padded(const struct program *program, int64_t bytes) {
    return (bytes + program->alignment - 1) / program->alignment * program->alignment;
}

static enum status check_buffers(const struct program *program) {
    for (size_t i = 0; i < program->buffers.count; i++) {
        const struct buffer *buffer = &program->buffers.items[i];
        bool inside = buffer->tier < TIER_COUNT && buffer->offset >= 0 && buffer->bytes > 0 &&
                      padded(program, buffer->bytes) <= program->tier_bytes[buffer->tier] - buffer->offset;
        if (!inside) return status_set(STATUS_FAILED, "program: buffer %s lies outside its arena", buffer->name);
        if (buffer->offset % program->alignment != 0)
            return status_set(STATUS_FAILED, "program: buffer %s is not aligned to %lld bytes", buffer->name,
                              (long long)program->alignment);
        bool own = buffer->home == -1;
        if (!own && (buffer->home < 0 || buffer->home >= (int32_t)program->buffers.count ||
                     program->buffers.items[buffer->home].home != -1))
            return status_set(STATUS_FAILED, "program: buffer %s is a copy of none", buffer->name);
    }
    for (size_t i = 0; i < program->buffers.count; i++)
        for (size_t j = 0; j < i && program->buffers.items[i].persistent; j++) {
            const struct buffer *a = &program->buffers.items[i], *b = &program->buffers.items[j];
            bool meet = a->tier == b->tier && a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
            if (b->persistent && meet)
                return status_set(STATUS_FAILED, "program: persistent buffers %s and %s overlap", a->name, b->name);
        }
    return STATUS_OK;
}

static enum status check_sections(const struct program *program) {
    int32_t next = 0;
    for (size_t i = 0; i < program->sections.count; i++) {
        const struct section *section = &program->sections.items[i];
        if (section->first != next || section->count < 1)
            return status_set(STATUS_FAILED, "program: section %s does not follow the one before it", section->name);
        if (section->repeat < 1)
            return status_set(STATUS_FAILED, "program: section %s has no repetitions", section->name);
        next += section->count;
    }
    if (next != (int32_t)program->instructions.count)
        return status_set(STATUS_FAILED, "program: %zu instructions, %d of them in sections",
                          program->instructions.count, next);
    return STATUS_OK;
}

static enum status check_section(const struct program *program, int32_t index) {
    int section = program->instructions.items[index].section;
    bool known = section >= 0 && section < (int)program->sections.count;
    int32_t at = known ? index - program->sections.items[section].first : -1;
    if (at >= 0 && at < program->sections.items[section].count) return STATUS_OK;
    return FAULT(program, index, NULL, "says that it is in section %d of %zu", section, program->sections.count);
}

static enum status check_operand(const struct program *program, int32_t index, const struct operand *operand) {
    if (operand->buffer >= (int32_t)program->buffers.count)
        return FAULT(program, index, NULL, "operand names buffer %d of %zu", operand->buffer, program->buffers.count);
    const struct buffer *buffer = &program->buffers.items[operand->buffer];
    int section = program->instructions.items[index].section;
    int64_t last = operand->offset + (program->sections.items[section].repeat - 1) * operand->stride;
    bool inside =
        operand->offset >= 0 && operand->stride >= 0 && operand->bytes > 0 && last <= buffer->bytes - operand->bytes;
    if (!inside) return FAULT(program, index, operand, "the operand reaches outside the buffer");
    if (operand->stride != 0 && operand->access != ACCESS_READ)
        return FAULT(program, index, operand, "slices of repetitions may only be read");
    if (buffer->kind == BUFFER_INPUTS && operand->access != ACCESS_READ)
        return FAULT(program, index, operand, "a step's inputs may only be read");
    if (operand->row_bytes > operand->row_stride)
        return FAULT(program, index, operand, "columns wider than their rows");
    return STATUS_OK;
}

/* The operand that a tensor must have: all of its storage or its columns of it; of an input, the grain's slice. */
static struct operand expected_operand(const struct program *program, const struct instruction *instruction,
                                       const struct tensor *tensor, enum access access) {
    const struct section *section = &program->sections.items[instruction->section];
    int64_t element = dtype_bytes(tensor->shape.dtype), bytes = shape_bytes(&tensor->shape);
    struct operand operand = {.access = access, .offset = tensor_storage_offset(tensor), .bytes = bytes};
    if (tensor->base) {
        operand.row_bytes = shape_columns(&tensor->shape) * element;
        operand.row_stride = tensor_row_stride(tensor) * element;
        operand.bytes = (shape_rows(&tensor->shape) - 1) * operand.row_stride + operand.row_bytes;
    }
    if (tensor->kind == TENSOR_INPUT) {
        operand.offset += (section->first_grain + instruction->grain) * bytes;
        operand.stride = section->grains * bytes;
    }
    /* Forward and backward add to their share's own loss. */
    if (tensor->kind == TENSOR_RESULT && instruction->node->phase <= PHASE_BACKWARD)
        operand.offset += section->share * bytes;
    return operand;
}

static enum status check_tensor(const struct program *program, int32_t index, const struct operand *operand,
                                struct tensor *tensor, enum access access) {
    if (!tensor != (operand->buffer < 0))
        return FAULT(program, index, operand, "operand %s", tensor ? "is missing" : "without a tensor");
    if (!tensor) return STATUS_OK;
    const struct instruction *instruction = &program->instructions.items[index];
    const struct buffer *buffer = &program->buffers.items[operand->buffer];
    struct operand expected = expected_operand(program, instruction, tensor, access);
    bool own = tensor->kind != TENSOR_ACTIVATION;
    int64_t offset = own ? buffer_find(buffer, tensor_storage(tensor)) : 0;
    if (offset < 0) return FAULT(program, index, operand, "not the buffer of %s", tensor->name);
    if (operand->access != access) return FAULT(program, index, operand, "accessed otherwise than the operator does");
    if (operand->bytes != expected.bytes)
        return FAULT(program, index, operand, "the operand has %lld bytes, its tensor %lld", (long long)operand->bytes,
                     (long long)expected.bytes);
    if (operand->offset != expected.offset + offset || operand->stride != expected.stride ||
        operand->row_bytes != expected.row_bytes || operand->row_stride != expected.row_stride)
        return FAULT(program, index, operand, "the operand is not where %s lies in it", tensor->name);
    return STATUS_OK;
}

static enum status check_node_operands(const struct program *program, int32_t index) {
    const struct instruction *instruction = &program->instructions.items[index];
    const struct node *node = instruction->node;
    if (!node) return FAULT(program, index, NULL, "a kernel without a node");
    for (int i = 0; i < OP_INPUTS_MAX; i++)
        TRY(check_tensor(program, index, &instruction->operands[i], node->in[i], ACCESS_READ));
    for (int i = 0; i < OP_OUTPUTS_MAX; i++) {
        enum access access = node->op->updates >> i & 1 ? ACCESS_UPDATE : ACCESS_WRITE;
        TRY(check_tensor(program, index, &instruction->operands[OP_INPUTS_MAX + i], node->out[i], access));
    }
    return STATUS_OK;
}

/* All operands of a kernel are in one tier, and not on the disk, which has no addresses. */
static enum status check_tiers(const struct program *program, int32_t index) {
    const struct instruction *instruction = &program->instructions.items[index];
    if (instruction->tier != TIER_DEVICE && instruction->tier != TIER_HOST)
        return FAULT(program, index, NULL, "computes neither on the device nor on the host");
    for (int k = 0; k < OPERANDS_MAX; k++) {
        const struct operand *operand = &instruction->operands[k];
        if (operand->buffer < 0) continue;
        enum tier tier = program->buffers.items[operand->buffer].tier;
        if (tier != instruction->tier)
            return FAULT(program, index, operand, "in the %s tier, used in the %s tier", tier_name(tier),
                         tier_name(instruction->tier));
    }
    return STATUS_OK;
}

/* The operands that an instruction without a node has: what it reads, -1 for none, and its output. */
static enum status check_ends(const struct program *program, int32_t index, int reads, enum access output) {
    const struct instruction *instruction = &program->instructions.items[index];
    for (int k = 0; k < OPERANDS_MAX; k++) {
        const struct operand *operand = &instruction->operands[k];
        bool wanted = k == reads || k == OP_INPUTS_MAX;
        if (wanted != (operand->buffer >= 0))
            return FAULT(program, index, operand, "operand %d %s", k, wanted ? "is missing" : "is one too many");
        enum access access = k == reads ? ACCESS_READ : output;
        if (wanted && (operand->access != access || operand->row_bytes != 0 || operand->stride != 0))
            return FAULT(program, index, operand, "operand %d is no plain %s", k, k == reads ? "read" : "write");
    }
    return STATUS_OK;
}

/* The front of one pack of sums to that of another. */
static enum status check_add(const struct program *program, int32_t index) {
    const struct instruction *instruction = &program->instructions.items[index];
    const struct operand *from = &instruction->operands[0], *to = &instruction->operands[OP_INPUTS_MAX];
    bool alone = instruction->opcode == OPCODE_ADD_BF16 && from->buffer < 0;
    TRY(check_ends(program, index, alone ? -1 : 0, ACCESS_UPDATE));
    bool fronts = to->offset == 0 && to->bytes % 4 == 0 && (alone || (from->offset == 0 && from->bytes == to->bytes));
    if (!fronts) return FAULT(program, index, alone ? to : from, "added to other bytes than its own");
    for (int k = alone ? OP_INPUTS_MAX : 0; k <= OP_INPUTS_MAX; k += OP_INPUTS_MAX) {
        const struct operand *operand = &instruction->operands[k];
        if (program->buffers.items[operand->buffer].kind != BUFFER_GRADIENTS)
            return FAULT(program, index, operand, "added although it is no sum of gradients");
    }
    return STATUS_OK;
}

/* All of a buffer to its copy in another tier, or back. */
static enum status check_copy(const struct program *program, int32_t index) {
    const struct instruction *instruction = &program->instructions.items[index];
    const struct operand *from = &instruction->operands[0], *to = &instruction->operands[OP_INPUTS_MAX];
    TRY(check_ends(program, index, 0, ACCESS_WRITE));
    const struct buffer *source = &program->buffers.items[from->buffer], *target = &program->buffers.items[to->buffer];
    if (source->home != target->id && target->home != source->id)
        return FAULT(program, index, from, "copied to %s, which is no copy of it nor its home", target->name);
    if (source->tier == target->tier)
        return FAULT(program, index, from, "copied within the %s tier", tier_name(source->tier));
    bool whole = from->bytes == source->bytes && to->bytes == target->bytes && source->bytes == target->bytes;
    if (!whole) return FAULT(program, index, from, "copied otherwise than as a whole");
    bool disk = source->tier == TIER_DISK || target->tier == TIER_DISK;
    if (disk && program->alignment % DISK_ALIGNMENT != 0)
        return FAULT(program, index, from, "moved to or from the disk without its alignment");
    return STATUS_OK;
}

/* Columns of one buffer's rows that have none in common. */
static bool disjoint_columns(const struct operand *x, const struct operand *y) {
    if (x->buffer != y->buffer || !x->row_bytes || !y->row_bytes || x->row_stride != y->row_stride) return false;
    int64_t first = x->offset % x->row_stride, second = y->offset % y->row_stride;
    return first + x->row_bytes <= second || second + y->row_bytes <= first;
}

/* Within one instruction only disjoint columns and the operator's own in-place pair may share a written buffer's bytes.
 */
static enum status check_aliases(const struct program *program, int32_t index) {
    const struct instruction *instruction = &program->instructions.items[index];
    for (int a = 0; a < OPERANDS_MAX; a++)
        for (int b = 0; b < OPERANDS_MAX; b++) {
            const struct operand *x = &instruction->operands[a], *y = &instruction->operands[b];
            if (a == b || x->buffer < 0 || y->buffer < 0 || x->access == ACCESS_READ) continue;
            const struct buffer *p = &program->buffers.items[x->buffer], *q = &program->buffers.items[y->buffer];
            int64_t begin = p->offset + x->offset, other = q->offset + y->offset;
            bool meet = p->tier == q->tier && begin < other + y->bytes && other < begin + x->bytes;
            bool in_place = a == OP_INPUTS_MAX && instruction->node && b == instruction->node->op->in_place_input - 1 &&
                            x->buffer == y->buffer && x->bytes == y->bytes && begin == other;
            if (meet && !in_place && !disjoint_columns(x, y))
                return FAULT(program, index, x, "written while the same instruction uses the bytes as %s", q->name);
        }
    return STATUS_OK;
}

/* A whole front of a pack with the staging that its schedule asks for; a rank with nothing to add overwrites it. */
static enum status check_all_reduce(const struct program *program, int32_t index) {
    const struct instruction *instruction = &program->instructions.items[index];
    const struct operand *data = &instruction->operands[OP_INPUTS_MAX];
    const struct operand *staging = &instruction->operands[OPERAND_WORKSPACE];
    if (instruction->collective < 0 || instruction->collective >= (int32_t)program->collectives.count)
        return FAULT(program, index, NULL, "operation %d of %zu", instruction->collective, program->collectives.count);
    const struct program_collective *collective = &program->collectives.items[instruction->collective];
    bool empty = collective->empty && collective->empty[program->place.rank];
    for (int k = 0; k < OPERANDS_MAX; k++)
        if (k != OP_INPUTS_MAX && k != OPERAND_WORKSPACE && instruction->operands[k].buffer >= 0)
            return FAULT(program, index, &instruction->operands[k], "operand %d is one too many", k);
    if (data->buffer < 0) return FAULT(program, index, NULL, "an operation without data");
    if (data->access != (empty ? ACCESS_WRITE : ACCESS_UPDATE) || data->row_bytes != 0 || data->stride != 0)
        return FAULT(program, index, data, "accessed otherwise than the operation does");
    if (data->bytes != collective->bytes || data->offset != 0)
        return FAULT(program, index, data, "the operand has %lld bytes, its operation %lld", (long long)data->bytes,
                     (long long)collective->bytes);
    if (staging->buffer >= 0 && staging->access != ACCESS_WRITE)
        return FAULT(program, index, staging, "staging is only written");
    return STATUS_OK;
}

static enum status check_instruction(const struct program *program, int32_t index) {
    const struct instruction *instruction = &program->instructions.items[index];
    if (instruction->stream < 0 || instruction->stream >= program->streams)
        return FAULT(program, index, NULL, "stream %d of %d", instruction->stream, program->streams);
    TRY(check_section(program, index));
    for (int k = 0; k < OPERANDS_MAX; k++)
        if (instruction->operands[k].buffer >= 0) TRY(check_operand(program, index, &instruction->operands[k]));
    for (int32_t i = 0; i < instruction->wait_count; i++) {
        int32_t other = instruction->waits[i];
        bool known = other >= 0 && other < (int32_t)program->instructions.count && other != index;
        if (!known) return FAULT(program, index, NULL, "waits for instruction %d, which cannot end before it", other);
    }
    switch (instruction->opcode) {
    case OPCODE_KERNEL: TRY(check_node_operands(program, index)); break;
    case OPCODE_ZERO: TRY(check_ends(program, index, -1, ACCESS_WRITE)); break;
    case OPCODE_COPY: TRY(check_copy(program, index)); break;
    case OPCODE_ADD:
    case OPCODE_ADD_BF16: TRY(check_add(program, index)); break;
    case OPCODE_ALL_REDUCE: TRY(check_all_reduce(program, index)); break;
    }
    if (instruction->opcode != OPCODE_COPY) TRY(check_tiers(program, index));
    return check_aliases(program, index);
}

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
                                   const struct operand *operand, int32_t first, int32_t end) {
    const struct buffer *buffer = &verifier->program->buffers.items[operand->buffer];
    for (int32_t i = first; i < end; i++) {
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
                                const struct operand *operand, int32_t first, int32_t end) {
    int own = verifier->program->instructions.items[issue->instruction].stream;
    for (int32_t i = first; i < end; i++) {
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
                             const struct operand *operand, int32_t first, int32_t end) {
    struct pieces *pieces = &verifier->pieces[operand->buffer];
    bool fresh = operand->row_bytes == 0;
    for (int32_t i = first; i < end; i++) {
        struct tenancy *tenancy = &verifier->tenancies[i];
        fresh |= tenancy->buffer != operand->buffer;
        *tenancy = (struct tenancy){.buffer = operand->buffer,
                                    .repetition = issue->section_repetition,
                                    .write_stream = stream,
                                    .write = issue->number};
    }
    /* An update keeps what was there; any other write by a new buffer begins without defined data. */
    if (operand->access == ACCESS_UPDATE) return STATUS_OK;
    if (fresh) pieces->list.count = 0;
    struct piece piece;
    operand_columns(operand, &piece.begin, &piece.end);
    return add_piece(pieces, piece);
}

/* The tensor of an operand, as the buffer's owner would have it; NULL for workspace and for fills with zeros. */
static const struct tensor *operand_tensor(const struct instruction *instruction, int index) {
    if (!instruction->node || index == OPERAND_WORKSPACE) return NULL;
    const struct node *node = instruction->node;
    return tensor_storage(index < OP_INPUTS_MAX ? node->in[index] : node->out[index - OP_INPUTS_MAX]);
}

/* An activation must be of the tensor and grain that the node reads: sizes alone do not tell them apart. */
static enum status verify_holding(struct verifier *verifier, const struct proof_issue *issue,
                                  const struct operand *operand, const struct instruction *instruction,
                                  const struct tensor *tensor) {
    const struct holding *holding = &verifier->holdings[operand->buffer];
    if (!tensor || tensor->kind != TENSOR_ACTIVATION) return STATUS_OK;
    if (holding->tensor != tensor)
        return FAULT(verifier->program, issue->instruction, operand, "holds %s where %s is read",
                     holding->tensor ? holding->tensor->name : "nothing", tensor->name);
    if (holding->grain != instruction->grain)
        return FAULT(verifier->program, issue->instruction, operand, "holds grain %lld where grain %lld is read",
                     (long long)holding->grain, (long long)instruction->grain);
    return STATUS_OK;
}

static int32_t root_of(const struct verifier *verifier, int32_t buffer) {
    int32_t home = verifier->program->buffers.items[buffer].home;
    return home < 0 ? buffer : home;
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
    verifier->holdings[operand->buffer] = (struct holding){operand_tensor(instruction, index), instruction->grain};
    verifier->versions[operand->buffer] = ++verifier->latest[root_of(verifier, operand->buffer)];
}

static enum status verify_issue(void *payload, const struct proof_issue *issue) {
    struct verifier *verifier = payload;
    const struct instruction *instruction = &verifier->program->instructions.items[issue->instruction];
    int32_t first[OPERANDS_MAX], end[OPERANDS_MAX];
    for (int k = 0; k < OPERANDS_MAX; k++) {
        const struct operand *operand = &instruction->operands[k];
        if (operand->buffer < 0) continue;
        struct reach reach = segments_of(&verifier->segments, issue->instruction, k);
        first[k] = reach.first, end[k] = reach.end;
        if (operand->access != ACCESS_WRITE) TRY(verify_contents(verifier, issue, operand, first[k], end[k]));
        if (operand->access != ACCESS_WRITE)
            TRY(verify_holding(verifier, issue, operand, instruction, operand_tensor(instruction, k)));
        if (operand->access != ACCESS_WRITE) TRY(verify_version(verifier, issue, operand));
        TRY(verify_order(verifier, issue, operand, first[k], end[k]));
    }
    for (int k = 0; k < OPERANDS_MAX; k++) {
        const struct operand *operand = &instruction->operands[k];
        if (operand->buffer < 0) continue;
        if (operand->access == ACCESS_READ)
            for (int32_t i = first[k]; i < end[k]; i++)
                verifier->tenancies[i].reads[instruction->stream] = issue->number;
    }
    for (int k = 0; k < OPERANDS_MAX; k++) {
        const struct operand *operand = &instruction->operands[k];
        if (operand->buffer < 0 || operand->access == ACCESS_READ) continue;
        TRY(take_over(verifier, issue, instruction->stream, operand, first[k], end[k]));
        record_write(verifier, instruction, k);
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
    for (size_t n = 0; n < program->instructions.count; n++)
        for (int k = 0; k < OPERANDS_MAX; k++) {
            const struct operand *operand = &program->instructions.items[n].operands[k];
            if (operand->buffer < 0 || !program->buffers.items[operand->buffer].persistent) continue;
            struct reach reach = segments_of(&verifier->segments, (int32_t)n, k);
            for (int32_t i = reach.first; i < reach.end; i++)
                verifier->tenancies[i].buffer = operand->buffer;
        }
    return STATUS_OK;
}

/* Some steps leave deferred instructions out, or issue them alone (program.h), so buffers that they share with others
 * must be persistent. */
static enum status check_deferred(const struct program *program) {
    enum { DEFERRED = 1, OTHER = 2 };
    unsigned char *users = mem_array(program->buffers.count, 1);
    if (!users) return STATUS_FAILED;
    enum status status = STATUS_OK;
    for (int32_t i = 0; i < (int32_t)program->instructions.count; i++)
        for (int k = 0; k < OPERANDS_MAX; k++) {
            const struct instruction *instruction = &program->instructions.items[i];
            const struct operand *operand = &instruction->operands[k];
            if (operand->buffer < 0 || program->buffers.items[operand->buffer].persistent) continue;
            users[operand->buffer] |= instruction->deferred ? DEFERRED : OTHER;
            if (users[operand->buffer] == (DEFERRED | OTHER))
                TRY_GOTO(status,
                         FAULT(program, i, operand, "used by deferred instructions and by others, and not kept"), done);
        }
done:
    mem_free(users);
    return status;
}

/* A kernel has state of its own (library handles), so it is called on one stream. */
static enum status check_kernel_streams(const struct program *program) {
    int *streams = mem_array(program->graph->nodes.count, sizeof *streams); /* 1 + stream; 0: not seen */
    if (!streams) return STATUS_FAILED;
    enum status status = STATUS_OK;
    for (int32_t i = 0; i < (int32_t)program->instructions.count && status == STATUS_OK; i++) {
        const struct instruction *instruction = &program->instructions.items[i];
        if (!instruction->node) continue;
        int *stream = &streams[instruction->node->id];
        if (*stream != 0 && *stream != instruction->stream + 1)
            status =
                FAULT(program, i, NULL, "the kernel is called on streams %d and %d", *stream - 1, instruction->stream);
        *stream = instruction->stream + 1;
    }
    mem_free(streams);
    return status;
}

static enum status verify_walk(struct verifier *verifier) {
    const struct program *program = verifier->program;
    verifier->tenancies = mem_array((size_t)verifier->segments.count, sizeof *verifier->tenancies);
    verifier->pieces = mem_array(program->buffers.count, sizeof *verifier->pieces);
    verifier->holdings = mem_array(program->buffers.count, sizeof *verifier->holdings);
    verifier->versions = mem_array(program->buffers.count, sizeof *verifier->versions);
    verifier->latest = mem_array(program->buffers.count, sizeof *verifier->latest);
    if (!verifier->tenancies || !verifier->pieces || !verifier->holdings || !verifier->versions || !verifier->latest)
        return STATUS_FAILED;
    for (int32_t i = 0; i < verifier->segments.count; i++)
        verifier->tenancies[i].buffer = -1;
    TRY(settle_persistent(verifier));
    return proof_order_walk(program, verify_issue, verifier);
}

enum status program_verify(const struct program *program) {
    if (program->streams < 1 || program->streams > STREAMS_MAX)
        return status_set(STATUS_FAILED, "program: %d streams, at most %d are possible", program->streams, STREAMS_MAX);
    TRY(check_buffers(program));
    TRY(check_sections(program));
    for (int32_t i = 0; i < (int32_t)program->instructions.count; i++)
        TRY(check_instruction(program, i));
    TRY(check_deferred(program));
    TRY(check_kernel_streams(program));
    struct verifier verifier = {.program = program};
    TRY(segments_create(program, &verifier.segments));
    enum status status = verify_walk(&verifier);
    mem_free(verifier.tenancies);
    for (size_t i = 0; verifier.pieces && i < program->buffers.count; i++)
        vec_free(&verifier.pieces[i].list);
    mem_free(verifier.pieces);
    mem_free(verifier.holdings);
    mem_free(verifier.versions);
    mem_free(verifier.latest);
    segments_free(&verifier.segments);
    return status;
}
