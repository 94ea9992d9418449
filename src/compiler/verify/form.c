/* The part of the proof that looks at each buffer, section and instruction by itself. */
#include "compiler/verify/verify.h"

#include "collective/proof.h"
#include "compiler/program.h"

enum status verify_fault(const struct program *program, int32_t index, const struct operand *operand,
                         enum status status) {
    const struct instruction *instruction = &program->instructions.items[index];
    bool named = operand && operand->buffer >= 0 && operand->buffer < (int32_t)program->buffers.count;
    return status_prefix(status, "program: instruction %d (%s)%s%s", index,
                         instruction->node ? instruction->node->name : opcode_name(instruction->opcode),
                         named ? ": buffer " : "", named ? program->buffers.items[operand->buffer].name : "");
}

/* Copies to and from the disk move a buffer's last block as a whole, so the arena must hold all of it. */
static int64_t padded(const struct program *program, int64_t bytes) {
    return (bytes + program->alignment - 1) / program->alignment * program->alignment;
}

/* A copy is of a buffer that is none, or of one that is gathered. */
static bool has_original(const struct program *program, const struct buffer *buffer) {
    int32_t count = (int32_t)program->buffers.count, original = buffer->original;
    if (original == -1) return true;
    if (original < 0 || original >= count) return false;
    const struct buffer *of = &program->buffers.items[original];
    if (of->original == -1) return true;
    return of->original >= 0 && of->original < count && buffer_is_gathered(program, of) &&
           program->buffers.items[of->original].original == -1;
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
        if (!has_original(program, buffer))
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

static int32_t index_of(const struct program *program, const struct instruction *instruction) {
    return (int32_t)(instruction - program->instructions.items);
}

/* Reports a fault of the instruction that a check looks at. */
#define FAULT_HERE(...) FAULT(program, index_of(program, instruction), __VA_ARGS__)

static enum status check_section(const struct program *program, const struct instruction *instruction) {
    int section = instruction->section;
    bool known = section >= 0 && section < (int)program->sections.count;
    int32_t at = known ? index_of(program, instruction) - program->sections.items[section].first : -1;
    if (at >= 0 && at < program->sections.items[section].count) return STATUS_OK;
    return FAULT_HERE(NULL, "says that it is in section %d of %zu", section, program->sections.count);
}

static enum status check_operand(const struct program *program, const struct instruction *instruction,
                                 const struct operand *operand) {
    if (operand->buffer >= (int32_t)program->buffers.count)
        return FAULT_HERE(NULL, "operand names buffer %d of %zu", operand->buffer, program->buffers.count);
    const struct buffer *buffer = &program->buffers.items[operand->buffer];
    int section = instruction->section;
    int64_t last = operand->offset + (program->sections.items[section].repeat - 1) * operand->stride;
    bool inside =
        operand->offset >= 0 && operand->stride >= 0 && operand->bytes > 0 && last <= buffer->bytes - operand->bytes;
    if (!inside) return FAULT_HERE(operand, "the operand reaches outside the buffer");
    if (operand->stride != 0 && operand->access != ACCESS_READ)
        return FAULT_HERE(operand, "slices of repetitions may only be read");
    if (buffer->kind == BUFFER_INPUTS && operand->access != ACCESS_READ)
        return FAULT_HERE(operand, "a step's inputs may only be read");
    if (operand->row_bytes > operand->row_stride) return FAULT_HERE(operand, "columns wider than their rows");
    return STATUS_OK;
}

/* Parameters, gradients, states and sums of squares: what an operator `by_elements` has for each element or block. */
static bool is_by_elements(const struct instruction *instruction, const struct tensor *tensor) {
    return instruction->elements > 0 && (tensor->parameter || tensor->kind == TENSOR_PARAMETER);
}

/* The operand that a tensor must have: all of its storage, its columns of it or the instruction's run of its elements;
 * of an input, the micro-batch's slice. */
static struct operand expected_operand(const struct program *program, const struct instruction *instruction,
                                       const struct tensor *tensor, enum access access) {
    const struct section *section = &program->sections.items[instruction->section];
    int64_t element = dtype_bytes(tensor->shape.dtype), bytes = shape_bytes(&tensor->shape);
    struct operand operand = {.access = access, .offset = tensor_storage_offset(tensor), .bytes = bytes};
    if (tensor_has_gaps(tensor)) {
        operand.row_bytes = shape_columns(&tensor->shape) * element;
        operand.row_stride = tensor_row_stride(tensor) * element;
        operand.bytes = (shape_rows(&tensor->shape) - 1) * operand.row_stride + operand.row_bytes;
    }
    if (tensor->kind == TENSOR_INPUT) {
        operand.offset += (section->first_micro_batch + instruction->micro_batch) * bytes;
        operand.stride = section->micro_batches * bytes;
    }
    /* Forward and backward add to their share's own loss. */
    if (tensor->kind == TENSOR_RESULT && instruction->node->phase <= PHASE_BACKWARD)
        operand.offset += section->share * bytes;
    if (is_by_elements(instruction, tensor)) {
        operand.offset = instruction->first_element / tensor_elements_per(tensor) * element;
        operand.bytes = tensor_elements_for(tensor, instruction->elements) * element;
    }
    return operand;
}

/* Finds where the buffer would have the tensor's first byte, which may be on another rank. FAILED if the buffer lacks a
 * part of the operand. */
static enum status find_tensor(const struct program *program, const struct instruction *instruction,
                               const struct operand *operand, struct tensor *tensor, int64_t *offset) {
    const struct tensor *storage = tensor_storage(tensor);
    struct tensor_run run;
    *offset = 0;
    if (tensor->kind == TENSOR_ACTIVATION) return STATUS_OK;
    if (!buffer_find(&program->buffers.items[operand->buffer], storage, &run))
        return FAULT_HERE(operand, "not the buffer of %s", tensor->name);
    bool by_elements = is_by_elements(instruction, tensor);
    int64_t first = by_elements ? instruction->first_element / tensor_elements_per(tensor) : 0;
    int64_t elements =
        by_elements ? tensor_elements_for(tensor, instruction->elements) : shape_elements(&storage->shape);
    if (first < run.first || first + elements > run.first + run.elements)
        return FAULT_HERE(operand, "has not the elements of %s", tensor->name);
    *offset = run.offset - run.first * dtype_bytes(tensor->shape.dtype);
    return STATUS_OK;
}

static enum status check_tensor(const struct program *program, const struct instruction *instruction,
                                const struct operand *operand, struct tensor *tensor, enum access access) {
    if (!tensor != (operand->buffer < 0))
        return FAULT_HERE(operand, "operand %s", tensor ? "is missing" : "without a tensor");
    if (!tensor) return STATUS_OK;
    int64_t offset;
    struct operand expected = expected_operand(program, instruction, tensor, access);
    TRY(find_tensor(program, instruction, operand, tensor, &offset));
    if (operand->access != access) return FAULT_HERE(operand, "accessed otherwise than the operator does");
    if (operand->bytes != expected.bytes)
        return FAULT_HERE(operand, "the operand has %lld bytes, its tensor %lld", (long long)operand->bytes,
                          (long long)expected.bytes);
    if (operand->offset != expected.offset + offset || operand->stride != expected.stride ||
        operand->row_bytes != expected.row_bytes || operand->row_stride != expected.row_stride)
        return FAULT_HERE(operand, "the operand is not where %s lies in it", tensor->name);
    return STATUS_OK;
}

/* Runs begin and end where blocks do, or with the tensor. */
static enum status check_run(const struct program *program, const struct instruction *instruction) {
    const struct node *node = instruction->node;
    if (instruction->elements == 0) return STATUS_OK;
    int64_t all = node->in[0] ? shape_elements(&node->in[0]->shape) : 0;
    int64_t first = instruction->first_element, end = first + instruction->elements;
    bool legal = node->op->by_elements && first >= 0 && first % SHARD_BLOCK == 0 && end > first && end <= all &&
                 (end % SHARD_BLOCK == 0 || end == all);
    if (legal) return STATUS_OK;
    return FAULT_HERE(NULL, "executed on elements %lld to %lld of %lld", (long long)first, (long long)end,
                      (long long)all);
}

static enum status check_node_operands(const struct program *program, const struct instruction *instruction) {
    const struct node *node = instruction->node;
    if (!node) return FAULT_HERE(NULL, "a kernel without a node");
    TRY(check_run(program, instruction));
    for (int i = 0; i < OP_INPUTS_MAX; i++)
        TRY(check_tensor(program, instruction, &instruction->operands[i], node->in[i], ACCESS_READ));
    for (int i = 0; i < OP_OUTPUTS_MAX; i++) {
        enum access access = op_updates(node) >> i & 1 ? ACCESS_UPDATE : ACCESS_WRITE;
        TRY(check_tensor(program, instruction, &instruction->operands[OP_INPUTS_MAX + i], node->out[i], access));
    }
    return STATUS_OK;
}

/* All operands of a kernel are in one tier, and not on the disk, which has no addresses. */
static enum status check_tiers(const struct program *program, const struct instruction *instruction) {
    if (instruction->tier != TIER_DEVICE && instruction->tier != TIER_HOST)
        return FAULT_HERE(NULL, "computes neither on the device nor on the host");
    for (int k = 0; k < OPERANDS_MAX; k++) {
        const struct operand *operand = &instruction->operands[k];
        if (operand->buffer < 0) continue;
        enum tier tier = program->buffers.items[operand->buffer].tier;
        if (tier != instruction->tier)
            return FAULT_HERE(operand, "in the %s tier, used in the %s tier", tier_name(tier),
                              tier_name(instruction->tier));
    }
    return STATUS_OK;
}

enum { IN = 1u, OUT = 1u << OP_INPUTS_MAX, STAGING = 1u << OPERAND_WORKSPACE }; /* bits of operands */

/* The instruction has all operands of `must`, and of others only those of `may`. */
static enum status check_operands(const struct program *program, const struct instruction *instruction, unsigned must,
                                  unsigned may) {
    for (int k = 0; k < OPERANDS_MAX; k++) {
        const struct operand *operand = &instruction->operands[k];
        if (operand->buffer < 0 && must >> k & 1) return FAULT_HERE(operand, "operand %d is missing", k);
        if (operand->buffer >= 0 && !((must | may) >> k & 1))
            return FAULT_HERE(operand, "operand %d is one too many", k);
    }
    return STATUS_OK;
}

static bool is_plain(const struct operand *operand, enum access access) {
    return operand->access == access && operand->row_bytes == 0 && operand->stride == 0;
}

/* The operands of an instruction without a node: its output, and input 0 where it `reads`. */
static enum status check_ends(const struct program *program, const struct instruction *instruction, bool reads,
                              enum access output) {
    const struct operand *operands = instruction->operands;
    TRY(check_operands(program, instruction, OUT | (reads ? IN : 0), 0));
    if (reads && !is_plain(&operands[0], ACCESS_READ)) return FAULT_HERE(&operands[0], "operand 0 is no plain read");
    if (!is_plain(&operands[OP_INPUTS_MAX], output))
        return FAULT_HERE(&operands[OP_INPUTS_MAX], "operand %d is no plain write", OP_INPUTS_MAX);
    return STATUS_OK;
}

/* Whether the same elements of the same tensors lie in [offset, offset + bytes) of two buffers. */
static bool same_elements(const struct buffer *a, int64_t a_offset, const struct buffer *b, int64_t b_offset,
                          int64_t bytes) {
    for (int32_t m = 0; a->pack && m < a->pack->count; m++) {
        const struct pack_member *member = &a->pack->members[m];
        int64_t element = dtype_bytes(member->tensor->shape.dtype), begin = member->offset - a_offset;
        int64_t end = begin + member->elements * element;
        struct tensor_run run;
        if (end <= 0 || begin >= bytes || member->elements == 0) continue;
        if (!buffer_find(b, member->tensor, &run)) return false;
        /* The tensor's first element, inside the buffer or not, counted from both operands. */
        if (begin - member->first * element != run.offset - run.first * element - b_offset) return false;
    }
    return a->pack && b->pack;
}

static bool operands_agree(const struct program *program, const struct operand *from, const struct operand *to,
                           int64_t to_offset, int64_t bytes) {
    const struct buffer *a = &program->buffers.items[from->buffer], *b = &program->buffers.items[to->buffer];
    return same_elements(a, from->offset, b, to_offset, bytes) && same_elements(b, to_offset, a, from->offset, bytes);
}

/* Sums of gradients, to others of the same. */
static enum status check_sums(const struct program *program, const struct instruction *instruction,
                              enum access output) {
    const struct operand *from = &instruction->operands[0], *to = &instruction->operands[OP_INPUTS_MAX];
    TRY(check_ends(program, instruction, true, output));
    for (int k = 0; k <= OP_INPUTS_MAX; k += OP_INPUTS_MAX) {
        const struct operand *operand = &instruction->operands[k];
        if (!buffer_is_gradient(&program->buffers.items[operand->buffer]))
            return FAULT_HERE(operand, "added although it is no sum of gradients");
    }
    bool same = from->bytes == to->bytes && to->bytes % (int64_t)sizeof(float) == 0 &&
                operands_agree(program, from, to, to->offset, to->bytes);
    return same ? STATUS_OK : FAULT_HERE(from, "added to other bytes than its own");
}

/* An edge of the lanes' tree, which may have none next to it. */
static enum status check_rounded_sum(const struct program *program, const struct instruction *instruction) {
    const struct operand *to = &instruction->operands[OP_INPUTS_MAX];
    if (instruction->operands[0].buffer >= 0) return check_sums(program, instruction, ACCESS_UPDATE);
    TRY(check_ends(program, instruction, false, ACCESS_UPDATE));
    bool sum = buffer_is_gradient(&program->buffers.items[to->buffer]) && to->bytes % (int64_t)sizeof(float) == 0;
    return sum ? STATUS_OK : FAULT_HERE(to, "rounded although it is no sum of gradients");
}

/* All of a buffer to its copy in another tier, or back. */
static enum status check_copy(const struct program *program, const struct instruction *instruction) {
    const struct operand *from = &instruction->operands[0], *to = &instruction->operands[OP_INPUTS_MAX];
    TRY(check_ends(program, instruction, true, ACCESS_WRITE));
    const struct buffer *source = &program->buffers.items[from->buffer], *target = &program->buffers.items[to->buffer];
    if (source->original != target->id && target->original != source->id)
        return FAULT_HERE(from, "copied to %s, which is no copy of it nor its home", target->name);
    if (source->tier == target->tier) return FAULT_HERE(from, "copied within the %s tier", tier_name(source->tier));
    bool whole = from->bytes == source->bytes && to->bytes == target->bytes && source->bytes == target->bytes;
    if (!whole) return FAULT_HERE(from, "copied otherwise than as a whole");
    bool disk = source->tier == TIER_DISK || target->tier == TIER_DISK;
    if (disk && program->alignment % DISK_ALIGNMENT != 0)
        return FAULT_HERE(from, "moved to or from the disk without its alignment");
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
static enum status check_aliases(const struct program *program, const struct instruction *instruction) {
    for (int a = 0; a < OPERANDS_MAX; a++)
        for (int b = 0; b < OPERANDS_MAX; b++) {
            const struct operand *x = &instruction->operands[a], *y = &instruction->operands[b];
            if (a == b || x->buffer < 0 || y->buffer < 0 || x->access == ACCESS_READ) continue;
            const struct buffer *p = &program->buffers.items[x->buffer], *q = &program->buffers.items[y->buffer];
            int64_t begin = p->offset + x->offset, other = q->offset + y->offset;
            bool meet = p->tier == q->tier && begin < other + y->bytes && other < begin + x->bytes;
            bool in_place = a == OP_INPUTS_MAX && instruction->node && b == instruction->node->op->in_place_input - 1 &&
                            x->buffer == y->buffer && x->bytes == y->bytes && begin == other;
            bool own_block = instruction->opcode == OPCODE_ALL_GATHER && b == 0 && x->buffer == y->buffer;
            if (meet && !in_place && !own_block && !disjoint_columns(x, y))
                return FAULT_HERE(x, "written while the same instruction uses the bytes as %s", q->name);
        }
    return STATUS_OK;
}

static const enum comm_kind kinds[] = {[OPCODE_ALL_REDUCE] = COMM_ALL_REDUCE,
                                       [OPCODE_REDUCE_SCATTER] = COMM_REDUCE_SCATTER,
                                       [OPCODE_ALL_GATHER] = COMM_ALL_GATHER,
                                       [OPCODE_ALL_TO_ALL] = COMM_ALL_TO_ALL,
                                       [OPCODE_BROADCAST] = COMM_BROADCAST};

/* A gather reads the rank's own block, in its place or where the same elements lie in another buffer. */
static enum status check_own_block(const struct program *program, const struct instruction *instruction) {
    const struct operand *own = &instruction->operands[0], *data = &instruction->operands[OP_INPUTS_MAX];
    if (instruction->opcode != OPCODE_ALL_GATHER) return STATUS_OK;
    const struct program_collective *operation = &program->collectives.items[instruction->collective];
    struct comm_range block = collectives_own_block(program, operation);
    if ((own->buffer >= 0) != (block.begin < block.end))
        return FAULT_HERE(own, "the rank's block %s", own->buffer < 0 ? "is missing" : "is empty");
    if (own->buffer < 0) return STATUS_OK;
    if (!is_plain(own, ACCESS_READ) || own->bytes != block.end - block.begin)
        return FAULT_HERE(own, "read otherwise than the operation does");
    int64_t place = data->offset + block.begin;
    if (operation->apart != (own->buffer != data->buffer))
        return FAULT_HERE(own, "the rank's block %s", operation->apart ? "is in its place" : "is elsewhere");
    bool there =
        own->buffer == data->buffer ? own->offset == place : operands_agree(program, own, data, place, own->bytes);
    return there ? STATUS_OK : FAULT_HERE(own, "not the rank's block");
}

/* The instruction's operation is one of the program's, and its staging is only written. */
static enum status check_operation(const struct program *program, const struct instruction *instruction) {
    const struct operand *staging = &instruction->operands[OPERAND_WORKSPACE];
    if (instruction->collective < 0 || instruction->collective >= (int32_t)program->collectives.count)
        return FAULT_HERE(NULL, "operation %d of %zu", instruction->collective, program->collectives.count);
    if (staging->buffer >= 0 && staging->access != ACCESS_WRITE) return FAULT_HERE(staging, "staging is only written");
    return STATUS_OK;
}

/* Data of the operation's bytes, with staging; a rank with nothing to add overwrites it. */
static enum status check_collective(const struct program *program, const struct instruction *instruction) {
    const struct operand *data = &instruction->operands[OP_INPUTS_MAX];
    const struct program_collective *collective = &program->collectives.items[instruction->collective];
    bool gathers = instruction->opcode == OPCODE_ALL_GATHER;
    bool empty = collective->empty && collective->empty[rank_place_data_rank(&program->place)];
    TRY(check_operands(program, instruction, OUT, STAGING | (gathers ? IN : 0)));
    if (collective->kind != kinds[instruction->opcode]) return FAULT_HERE(data, "the operation is of another kind");
    if (!is_plain(data, gathers || empty ? ACCESS_WRITE : ACCESS_UPDATE))
        return FAULT_HERE(data, "accessed otherwise than the operation does");
    if (data->bytes != collective->bytes || (!gathers && data->offset != 0))
        return FAULT_HERE(data, "the operand has %lld bytes, its operation %lld", (long long)data->bytes,
                          (long long)collective->bytes);
    return check_own_block(program, instruction);
}

/* The root reads what the others get, in a buffer of the same tensor. */
static enum status check_broadcast(const struct program *program, const struct instruction *instruction) {
    const struct program_collective *operation = &program->collectives.items[instruction->collective];
    bool sends = mesh_group_position(&operation->group, program->place.rank) == operation->root;
    const struct operand *operand = &instruction->operands[sends ? 0 : OP_INPUTS_MAX];
    TRY(check_operands(program, instruction, sends ? IN : OUT, STAGING));
    if (operation->kind != COMM_BROADCAST) return FAULT_HERE(operand, "the operation is of another kind");
    bool plain = sends ? is_plain(operand, ACCESS_READ)
                       : is_plain(operand, ACCESS_WRITE) || is_plain(operand, ACCESS_UPDATE); /* of a buffer, a part */
    if (!plain || operand->bytes != operation->bytes)
        return FAULT_HERE(operand, "accessed otherwise than the operation does");
    struct tensor_run run;
    if (!sends && !buffer_find(&program->buffers.items[operand->buffer], operation->tensor, &run))
        return FAULT_HERE(operand, "not the buffer of %s", operation->tensor->name);
    return STATUS_OK;
}

static const enum op_collective op_collectives[] = {[OPCODE_ALL_REDUCE] = OP_COLLECTIVE_ALL_REDUCE,
                                                    [OPCODE_REDUCE_SCATTER] = OP_COLLECTIVE_REDUCE_SCATTER,
                                                    [OPCODE_ALL_GATHER] = OP_COLLECTIVE_ALL_GATHER,
                                                    [OPCODE_ALL_TO_ALL] = OP_COLLECTIVE_ALL_TO_ALL};

/* Checks a collective on the tensor group or an axis of it, whose data has equal parts. */
static enum status check_node_group(const struct program *program, const struct instruction *instruction) {
    const struct program_collective *collective = &program->collectives.items[instruction->collective];
    const struct group_part *part = &NODE_ATTRIBUTES(instruction->node, collective_attributes)->part;
    int stride = part->stride > 0 ? (int)part->stride : 1;
    const struct comm_group group = rank_place_tensor_axis(&program->place, (int)part->parts, stride);
    if (collective->kind != kinds[instruction->opcode] || collective->node != instruction->node ||
        instruction->node->op->collective != op_collectives[instruction->opcode])
        return FAULT_HERE(NULL, "the operation is another than the operator");
    bool cut = collective->kind == COMM_ALL_GATHER || collective->kind == COMM_REDUCE_SCATTER;
    if (!comm_same_group(&collective->group, &group) || collective->empty || collective->owner ||
        collective->block_bytes * (cut ? group.count : 1) != (cut ? collective->bytes : 0))
        return FAULT_HERE(NULL, "not an operation of the tensor group, or its axis, in equal parts");
    return STATUS_OK;
}

/* An operator that is an operation between ranks. A sum in place of gradients has one operand, as has one that is
 * scattered in its input's place. */
static enum status check_node_collective(const struct program *program, const struct instruction *instruction) {
    const struct node *node = instruction->node;
    const struct operand *data = &instruction->operands[OP_INPUTS_MAX], *in = &instruction->operands[0];
    bool scatters = instruction->opcode == OPCODE_REDUCE_SCATTER, updates = op_updates(node) & 1;
    TRY(check_node_group(program, instruction));
    TRY(check_run(program, instruction));
    TRY(check_operands(program, instruction, 0, IN | OUT | STAGING));
    TRY(check_tensor(program, instruction, in, scatters || updates ? NULL : node->in[0], ACCESS_READ));
    TRY(check_tensor(program, instruction, data, scatters ? node->in[0] : node->out[0],
                     scatters || updates ? ACCESS_UPDATE : ACCESS_WRITE));
    if (instruction->opcode == OPCODE_ALL_REDUCE && !updates &&
        (in->buffer != data->buffer || in->offset != data->offset))
        return FAULT_HERE(in, "not summed in its place");
    if (data->bytes != program->collectives.items[instruction->collective].bytes)
        return FAULT_HERE(data, "the operand has other bytes than its operation");
    return STATUS_OK;
}

/* Checks this rank's part of a sum that was scattered in the operator's input. */
static enum status check_own_part(const struct program *program, const struct instruction *instruction) {
    const struct operand *from = &instruction->operands[0];
    const struct tensor *x = instruction->node->in[0];
    int64_t bytes = shape_bytes(&instruction->node->out[0]->shape);
    TRY(check_ends(program, instruction, true, ACCESS_WRITE));
    TRY(check_tensor(program, instruction, &instruction->operands[OP_INPUTS_MAX], instruction->node->out[0],
                     ACCESS_WRITE));
    bool own = instruction->node->op->collective == OP_COLLECTIVE_REDUCE_SCATTER && from->bytes == bytes &&
               from->offset == NODE_ATTRIBUTES(instruction->node, collective_attributes)->part.position * bytes &&
               program->buffers.items[from->buffer].bytes == shape_bytes(&x->shape);
    return own ? STATUS_OK : FAULT_HERE(from, "not this rank's part");
}

static enum status check_instruction(const struct program *program, const struct instruction *instruction) {
    if (instruction->stream < 0 || instruction->stream >= program->streams)
        return FAULT_HERE(NULL, "stream %d of %d", instruction->stream, program->streams);
    TRY(check_section(program, instruction));
    for (int k = 0; k < OPERANDS_MAX; k++)
        if (instruction->operands[k].buffer >= 0) TRY(check_operand(program, instruction, &instruction->operands[k]));
    for (int32_t i = 0; i < instruction->wait_count; i++) {
        int32_t other = instruction->waits[i];
        bool known =
            other >= 0 && other < (int32_t)program->instructions.count && other != index_of(program, instruction);
        if (!known) return FAULT_HERE(NULL, "waits for instruction %d, which cannot end before it", other);
    }
    if (opcode_is_collective(instruction->opcode)) TRY(check_operation(program, instruction));
    switch (instruction->opcode) {
    case OPCODE_KERNEL: TRY(check_node_operands(program, instruction)); break;
    case OPCODE_ZERO: TRY(check_ends(program, instruction, false, ACCESS_WRITE)); break;
    case OPCODE_COPY: TRY(check_copy(program, instruction)); break;
    case OPCODE_TAKE:
        TRY(instruction->node ? check_own_part(program, instruction) : check_sums(program, instruction, ACCESS_WRITE));
        break;
    case OPCODE_ADD: TRY(check_sums(program, instruction, ACCESS_UPDATE)); break;
    case OPCODE_ADD_BF16: TRY(check_rounded_sum(program, instruction)); break;
    case OPCODE_ALL_REDUCE:
    case OPCODE_REDUCE_SCATTER:
    case OPCODE_ALL_GATHER:
    case OPCODE_ALL_TO_ALL:
        TRY(instruction->node ? check_node_collective(program, instruction) : check_collective(program, instruction));
        break;
    case OPCODE_BROADCAST: TRY(check_broadcast(program, instruction)); break;
    case OPCODE_ELSEWHERE: return FAULT_HERE(NULL, "an instruction of other ranks");
    }
    if (instruction->opcode != OPCODE_COPY) TRY(check_tiers(program, instruction));
    return check_aliases(program, instruction);
}

enum status program_verify_form(const struct program *program) {
    TRY(check_buffers(program));
    TRY(check_sections(program));
    for (int32_t i = 0; i < (int32_t)program->instructions.count; i++)
        TRY(check_instruction(program, &program->instructions.items[i]));
    return STATUS_OK;
}
