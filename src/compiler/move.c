/* Copies between tiers: a residency of a buffer of another tier goes through a copy in that of the user. The copy is
 * fetched unless its uses overwrite it, and stored if it was changed and is used again. */
#include "compiler/program.h"
#include "compiler/residency.h"
#include "plan/plan.h"

/* Whole parameters of shards: a residency of them goes through a buffer into which all ranks' shards are gathered.
 * Every rank makes the same gathers in the same order, so positions depend on nothing that ranks have apart: what a
 * rank does not compute stands in the list until here (OPCODE_ELSEWHERE). */

/* Whole parameters keep nothing between uses, their originals do. */
static bool is_gathered(const struct buffer *buffer) {
    return buffer->kind == BUFFER_PARAMETERS && !buffer->persistent;
}

static bool is_use(const struct buffer *buffer, const struct instruction *user) {
    (void)user;
    return is_gathered(buffer);
}

static bool is_held(const struct residencies *residencies, const struct residency *residency) {
    return is_gathered(residencies_buffer(residencies, residency->buffer));
}

/* After the update of the shard that comes before the first use. */
static enum status place_gathers(struct residencies *residencies) {
    struct residency *items = residencies->list.items;
    for (size_t v = 0; v < residencies->list.count; v++) {
        int32_t written, next, original = residencies_buffer(residencies, items[v].buffer)->original;
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
        struct buffer whole = *residencies_buffer(residencies, items[v].buffer);
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

/* Creates a gather before the instructions of its group; groups come in order. */
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

/* Instructions that only other ranks execute stood there for their gathers. */
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

/* Finds the residencies, places them, makes their buffers and inserts their instructions. */
static enum status serve(struct residencies *residencies, enum status (*place)(struct residencies *residencies),
                         enum status (*make_buffers)(struct residencies *residencies), residencies_make *make) {
    enum status status = residencies_find(residencies);
    if (status == STATUS_OK) status = place(residencies);
    if (status == STATUS_OK) status = make_buffers(residencies);
    if (status == STATUS_OK) status = residencies_weave(residencies, make);
    residencies_free(residencies);
    return status;
}

enum status program_gather(struct program *program, const struct policy *policy) {
    struct residencies residencies = {.program = program, .policy = policy, .is_away = is_use, .is_held = is_held};
    if (partition_width(policy->partition.parameters) == 1) return STATUS_OK;
    TRY(serve(&residencies, place_gathers, make_wholes, make_gather));
    remove_elsewhere(program);
    return sort_collectives(program);
}

static bool is_elsewhere(const struct buffer *buffer, const struct instruction *user) {
    return buffer->tier != user->tier;
}

/* Places are on the device, and what updates parameters aside has none. Parameters that are cut wait for one when they
 * are gathered (move.c), not when their shards are moved. */
static bool is_parameter_residency(const struct residencies *residencies, const struct residency *residency) {
    bool parameters = residencies_buffer(residencies, residency->buffer)->kind == BUFFER_PARAMETERS;
    bool cut = partition_width(residencies->policy->partition.parameters) > 1;
    return parameters && !cut && residency->tier == TIER_DEVICE && !residency->aside;
}

/* ---- transfers ---- */

static void place_store(const struct residencies *residencies, struct residency *residency,
                        const struct residency *after, int32_t next) {
    bool read_again = after ? !after->overwritten : residencies_buffer(residencies, residency->buffer)->persistent;
    bool used_again = read_again || next != INT32_MAX;
    if (!residency->changed || !used_again) return;
    const struct section *section = residencies_section(residencies, residency->last);
    /* From the next group on, the place of parameters may belong to another chunk. */
    int64_t distance = is_parameter_residency(residencies, residency) ? 0 : residencies->policy->lookahead;
    int64_t group = movement_store_group(residencies_group(residencies, residency->last), distance);
    residency->store = residencies->begin[group < residencies->groups ? group : residencies->groups];
    residency->store = smaller(residency->store, section->first + section->count);
    residency->store = smaller(residency->store, next);
    if (after)
        residency->store =
            larger(residency->last + 1,
                   smaller(residency->store, residencies->begin[residencies_group(residencies, after->first)]));
}

static enum status place_transfers(struct residencies *residencies) {
    struct residency *items = residencies->list.items;
    const struct residency *changed = NULL; /* the latest residency of the buffer that changed it */
    for (size_t v = 0; v < residencies->list.count; v++) {
        if (v > 0 && items[v - 1].buffer != items[v].buffer)
            changed = NULL;
        else if (v > 0 && items[v - 1].changed)
            changed = &items[v - 1];
        bool followed = v + 1 < residencies->list.count && items[v + 1].buffer == items[v].buffer;
        int32_t written, next;
        residencies_original_uses(residencies, items[v].buffer, &items[v], &written, &next);
        if (items[v].overwritten)
            items[v].fetch = -1;
        else
            residencies_place_fetch(residencies, &items[v], changed, written);
        place_store(residencies, &items[v], followed ? &items[v + 1] : NULL, next);
        int section = residencies_instruction(residencies, items[v].first)->section;
        struct transfer fetch = {section, items[v].fetch, items[v].first, false, v};
        struct transfer store = {section, items[v].store, items[v].first, true, v};
        if (fetch.at >= 0) TRY(vec_push(&residencies->transfers, fetch));
        if (store.at >= 0) TRY(vec_push(&residencies->transfers, store));
    }
    return STATUS_OK;
}

/* ---- the list with copies ---- */

static bool is_whole(const struct residency *residency) { return residency->fetch < 0 && residency->store < 0; }

/* Whether nothing of a buffer is ever at its home tier: of the residencies [first, end) none is fetched or stored. */
static bool never_in_home_tier(const struct residencies *residencies, size_t first, size_t end) {
    int32_t buffer = residencies->list.items[first].buffer;
    for (size_t v = first; v < end; v++)
        if (!is_whole(&residencies->list.items[v])) return false;
    for (size_t u = residencies->first_use[buffer]; u < residencies->first_use[buffer + 1]; u++)
        if (!residencies->uses[u].away) return false;
    return true;
}

/* The residency's own buffer: a copy of its original, or where nothing is copied a buffer by itself. */
static enum status make_copy(struct residencies *residencies, struct residency *residency) {
    struct buffer copy = *residencies_buffer(residencies, residency->buffer);
    residency->copy = copy.id = (int)residencies->program->buffers.count;
    copy.original = is_whole(residency) ? -1 : residency->buffer;
    copy.tier = residency->tier;
    copy.persistent = false;
    return vec_push(&residencies->program->buffers, copy);
}

/* A copy for each residency. A buffer that is never at its home tier becomes that of its first residency. */
static enum status make_copies(struct residencies *residencies) {
    struct residency *items = residencies->list.items;
    for (size_t first = 0, end; first < residencies->list.count; first = end) {
        for (end = first; end < residencies->list.count && items[end].buffer == items[first].buffer;)
            end++;
        size_t v = first;
        if (never_in_home_tier(residencies, first, end)) {
            residencies_buffer(residencies, items[v].buffer)->tier = items[v].tier;
            items[v].copy = items[v].buffer;
            v++;
        }
        for (; v < end; v++)
            TRY(make_copy(residencies, &items[v]));
    }
    return STATUS_OK;
}

static enum status make_transfer(struct residencies *residencies, const struct transfer *transfer,
                                 struct instruction *out) {
    const struct residency *residency = &residencies->list.items[transfer->residency];
    const struct buffer *buffers = residencies->program->buffers.items;
    int32_t from = transfer->store ? residency->copy : residency->buffer,
            to = transfer->store ? residency->buffer : residency->copy;
    const struct instruction *user =
        residencies_instruction(residencies, transfer->store ? residency->last : residency->first);
    struct instruction copy = {.opcode = OPCODE_COPY,
                               .stream = (int)stream_role_of_copy(buffers[from].tier, buffers[to].tier),
                               .section = transfer->section,
                               .group = user->group,
                               .deferred = residency->deferred,
                               .micro_batch = user->micro_batch};
    for (int k = 0; k < OPERANDS_MAX; k++)
        copy.operands[k].buffer = -1;
    copy.operands[0] = (struct operand){.buffer = from, .access = ACCESS_READ, .bytes = buffers[from].bytes};
    copy.operands[OP_INPUTS_MAX] = (struct operand){.buffer = to, .access = ACCESS_WRITE, .bytes = buffers[to].bytes};
    *out = copy;
    return STATUS_OK;
}

/* Streams that nothing uses are left out. */
static void number_streams(struct program *program) {
    int number[STREAM_ROLE_COUNT];
    bool used[STREAM_ROLE_COUNT] = {[STREAM_COMPUTE] = true};
    for (size_t i = 0; i < program->instructions.count; i++)
        used[program->instructions.items[i].stream] = true;
    program->streams = 0;
    for (int role = 0; role < STREAM_ROLE_COUNT; role++) {
        if (!used[role]) continue;
        number[role] = program->streams;
        program->roles[program->streams++] = (enum stream_role)role;
    }
    for (size_t i = 0; i < program->instructions.count; i++)
        program->instructions.items[i].stream = number[program->instructions.items[i].stream];
}

static void choose_alignment(struct program *program) {
    for (size_t i = 0; i < program->buffers.count; i++)
        if (program->buffers.items[i].tier == TIER_DISK) program->alignment = DISK_ALIGNMENT;
}

enum status program_move(struct program *program, const struct policy *policy) {
    struct residencies residencies = {
        .program = program, .policy = policy, .is_away = is_elsewhere, .is_held = is_parameter_residency};
    TRY(serve(&residencies, place_transfers, make_copies, make_transfer));
    number_streams(program);
    choose_alignment(program);
    program_set_lifetimes(program);
    return STATUS_OK;
}
