/* Copies between tiers: a residency of a buffer of another tier goes through a copy in that of the user. The copy is
 * fetched unless its uses overwrite it, and stored if it was changed and is used again. */
#include "compiler/passes.h"
#include "compiler/residency.h"
#include "plan/movement.h"

static bool is_elsewhere(const struct residencies *residencies, const struct buffer *buffer,
                         const struct instruction *user) {
    (void)residencies;
    return buffer->tier != user->tier;
}

/* Places are on the device, and what updates parameters aside has none. Parameters that are cut wait for one when they
 * are gathered (gather.c), not when their shards are moved. */
static bool is_parameter_residency(const struct residencies *residencies, const struct residency *residency) {
    bool parameters = residencies->program->buffers.items[residency->buffer].kind == BUFFER_PARAMETERS;
    bool cut = partition_width(residencies->policy->partition.parameters) > 1;
    return parameters && !cut && residency->tier == TIER_DEVICE && !residency->aside;
}

/* ---- transfers ---- */

static int32_t smaller(int32_t a, int32_t b) { return a < b ? a : b; }
static int32_t larger(int32_t a, int32_t b) { return a > b ? a : b; }

static void place_store(const struct residencies *residencies, struct residency *residency,
                        const struct residency *after, int32_t next) {
    bool read_again = after ? !after->overwritten : residencies->program->buffers.items[residency->buffer].persistent;
    bool used_again = read_again || next != INT32_MAX;
    if (!residency->changed || !used_again) return;
    /* From the next group on, the place of parameters may belong to another chunk. */
    int64_t distance = is_parameter_residency(residencies, residency) ? 0 : residencies->policy->lookahead;
    int64_t group = movement_store_group(residencies_group(residencies, residency->last), distance);
    residency->store =
        group > residencies->groups ? residencies->begin[residencies->groups] : residencies->begin[group];
    residency->store = smaller(residency->store, residencies_section_end(residencies, residency->last));
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
    struct buffer copy = residencies->program->buffers.items[residency->buffer];
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
            residencies->program->buffers.items[items[v].buffer].tier = items[v].tier;
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
    enum status status;
    TRY_GOTO(status, residencies_find(&residencies), done);
    TRY_GOTO(status, place_transfers(&residencies), done);
    TRY_GOTO(status, make_copies(&residencies), done);
    TRY_GOTO(status, residencies_weave(&residencies, make_transfer), done);
    number_streams(program);
    choose_alignment(program);
    program_set_lifetimes(program);
done:
    residencies_free(&residencies);
    return status;
}
