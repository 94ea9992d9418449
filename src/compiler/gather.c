/* Whole parameters of shards: a residency of them goes through a buffer into which all ranks' shards are gathered.
 * Every rank makes the same gathers in the same order, so positions depend on nothing that ranks have apart: what a
 * rank does not compute stands in the list until here (OPCODE_ELSEWHERE). */
#include "compiler/collectives.h"
#include "compiler/passes.h"
#include "compiler/residency.h"

/* Whole parameters keep nothing between uses, their originals do. */
static bool is_gathered(const struct buffer *buffer) {
    return buffer->kind == BUFFER_PARAMETERS && !buffer->persistent;
}

static bool is_use(const struct residencies *residencies, const struct buffer *buffer, const struct instruction *user) {
    (void)residencies;
    (void)user;
    return is_gathered(buffer);
}

static bool is_held(const struct residencies *residencies, const struct residency *residency) {
    return is_gathered(&residencies->program->buffers.items[residency->buffer]);
}

/* After the update of the shard that comes before the first use. */
static enum status place_gathers(struct residencies *residencies) {
    struct residency *items = residencies->list.items;
    for (size_t v = 0; v < residencies->list.count; v++) {
        int32_t written, next, original = residencies->program->buffers.items[items[v].buffer].original;
        residencies_original_uses(residencies, original, &items[v], &written, &next);
        residencies_place_fetch(residencies, &items[v], NULL, written);
        int section = residencies_instruction(residencies, items[v].first)->section;
        TRY(vec_push(&residencies->transfers, (struct transfer){section, items[v].fetch, items[v].first, false, v}));
    }
    return STATUS_OK;
}

/* The first residency has the buffer that the schedule made, each other one its own. */
static enum status make_wholes(struct residencies *residencies) {
    struct residency *items = residencies->list.items;
    for (size_t v = 0; v < residencies->list.count; v++) {
        struct buffer whole = residencies->program->buffers.items[items[v].buffer];
        items[v].copy = whole.id;
        if (v == 0 || items[v - 1].buffer != whole.id) continue;
        items[v].copy = whole.id = (int)residencies->program->buffers.count;
        TRY(vec_push(&residencies->program->buffers, whole));
    }
    return STATUS_OK;
}

static int64_t pack_elements(const struct buffer *whole) {
    return whole->bytes / dtype_bytes(whole->pack->members[0].tensor->shape.dtype);
}

/* Of the group before whose instructions it stands: groups come in order. */
static enum status make_gather(struct residencies *residencies, const struct transfer *transfer,
                               struct instruction *out) {
    struct program *program = residencies->program;
    const struct residency *residency = &residencies->list.items[transfer->residency];
    const struct buffer *whole = &program->buffers.items[residency->copy];
    struct shard_cut cut = {residencies->policy->partition, rank_place_data(&program->place), pack_elements(whole)};
    int width = residencies->policy->partition.parameters;
    struct program_collective operation;
    TRY(collectives_all_gather(program, &cut, 1, width, SHARD_BLOCK * (whole->bytes / cut.elements), &operation));
    operation.apart = true;
    struct comm_range own = collectives_own_block(program, &operation);
    struct instruction gather = {.opcode = OPCODE_ALL_GATHER,
                                 .stream = STREAM_COMM,
                                 .section = transfer->section,
                                 .group = residencies_group(residencies, transfer->at),
                                 .tier = program->place.tier};
    for (int k = 0; k < OPERANDS_MAX; k++)
        gather.operands[k].buffer = -1;
    if (own.begin < own.end)
        gather.operands[0] =
            (struct operand){.buffer = whole->original, .access = ACCESS_READ, .bytes = own.end - own.begin};
    gather.operands[OP_INPUTS_MAX] =
        (struct operand){.buffer = residency->copy, .access = ACCESS_WRITE, .bytes = whole->bytes};
    TRY(collectives_add(program, &operation, &gather));
    *out = gather;
    return STATUS_OK;
}

/* In the order of their instructions. */
static enum status sort_collectives(struct program *program) {
    size_t count = program->collectives.count, next = 0;
    struct program_collective *sorted = mem_array(count, sizeof *sorted);
    if (!sorted) return STATUS_FAILED;
    for (size_t i = 0; i < program->instructions.count; i++) {
        struct instruction *instruction = &program->instructions.items[i];
        if (!opcode_is_collective(instruction->opcode)) continue;
        sorted[next] = program->collectives.items[instruction->collective];
        instruction->collective = (int32_t)next++;
    }
    mem_free(program->collectives.items);
    program->collectives.items = sorted;
    program->collectives.capacity = count;
    return STATUS_OK;
}

/* What only other ranks do stood there for its gathers. */
static void remove_elsewhere(struct program *program) {
    struct instruction *items = program->instructions.items;
    int32_t kept = 0;
    for (size_t s = 0; s < program->sections.count; s++) {
        struct section *section = &program->sections.items[s];
        int32_t begin = section->first, end = begin + section->count;
        section->first = kept;
        for (int32_t i = begin; i < end; i++) {
            if (items[i].opcode == OPCODE_ELSEWHERE) continue;
            if (kept != i) items[kept] = items[i];
            kept++;
        }
        section->count = kept - section->first;
    }
    program->instructions.count = (size_t)kept;
}

enum status program_gather(struct program *program, const struct policy *policy) {
    struct residencies residencies = {.program = program, .policy = policy, .is_away = is_use, .is_held = is_held};
    if (partition_width(policy->partition.parameters) == 1) return STATUS_OK;
    enum status status;
    TRY_GOTO(status, residencies_find(&residencies), done);
    TRY_GOTO(status, place_gathers(&residencies), done);
    TRY_GOTO(status, make_wholes(&residencies), done);
    TRY_GOTO(status, residencies_weave(&residencies, make_gather), done);
    remove_elsewhere(program);
    TRY_GOTO(status, sort_collectives(program), done);
done:
    residencies_free(&residencies);
    return status;
}
