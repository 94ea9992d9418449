/* Copies between tiers: a visit to a buffer of another tier goes through a copy in that of the user. The copy is
 * fetched unless its uses overwrite it, and stored if it was changed and is used again. */
#include "plan/movement.h"
#include "program/passes.h"
#include "program/visits.h"

static bool is_elsewhere(const struct visits *visits, const struct buffer *buffer, const struct instruction *user) {
    (void)visits;
    return buffer->tier != user->tier;
}

/* Places are on the device, and what updates parameters aside has none. Parameters that are cut wait for one when they
 * are gathered (gather.c), not when their shards are moved. */
static bool is_parameter_visit(const struct visits *visits, const struct visit *visit) {
    bool parameters = visits->program->buffers.items[visit->buffer].kind == BUFFER_PARAMETERS;
    bool cut = partition_width(visits->policy->partition.parameters) > 1;
    return parameters && !cut && visit->tier == TIER_DEVICE && !visit->aside;
}

/* ---- transfers ---- */

static int32_t smaller(int32_t a, int32_t b) { return a < b ? a : b; }
static int32_t larger(int32_t a, int32_t b) { return a > b ? a : b; }

static void place_store(const struct visits *visits, struct visit *visit, const struct visit *after, int32_t next) {
    bool read_again = after ? !after->overwritten : visits->program->buffers.items[visit->buffer].persistent;
    bool used_again = read_again || next != INT32_MAX;
    if (!visit->changed || !used_again) return;
    /* From the next group on, the place of parameters may belong to another chunk. */
    int64_t room = is_parameter_visit(visits, visit) ? 0 : visits->policy->lookahead;
    int64_t group = movement_store_group(visits_group(visits, visit->last), room);
    visit->store = group > visits->groups ? visits->begin[visits->groups] : visits->begin[group];
    visit->store = smaller(visit->store, visits_section_end(visits, visit->last));
    visit->store = smaller(visit->store, next);
    if (after)
        visit->store =
            larger(visit->last + 1, smaller(visit->store, visits->begin[visits_group(visits, after->first)]));
}

static enum status place_transfers(struct visits *visits) {
    struct visit *items = visits->list.items;
    const struct visit *changed = NULL; /* the latest visit to the buffer that changed it */
    for (size_t v = 0; v < visits->list.count; v++) {
        if (v > 0 && items[v - 1].buffer != items[v].buffer)
            changed = NULL;
        else if (v > 0 && items[v - 1].changed)
            changed = &items[v - 1];
        bool followed = v + 1 < visits->list.count && items[v + 1].buffer == items[v].buffer;
        int32_t written, next;
        visits_home_uses(visits, items[v].buffer, &items[v], &written, &next);
        if (items[v].overwritten)
            items[v].fetch = -1;
        else
            visits_place_fetch(visits, &items[v], changed, written);
        place_store(visits, &items[v], followed ? &items[v + 1] : NULL, next);
        int section = visits_instruction(visits, items[v].first)->section;
        struct transfer fetch = {section, items[v].fetch, items[v].first, false, v};
        struct transfer store = {section, items[v].store, items[v].first, true, v};
        if (fetch.at >= 0) TRY(vec_push(&visits->transfers, fetch));
        if (store.at >= 0) TRY(vec_push(&visits->transfers, store));
    }
    return STATUS_OK;
}

/* ---- the list with copies ---- */

static bool is_whole(const struct visit *visit) { return visit->fetch < 0 && visit->store < 0; }

/* Whether nothing of a buffer is ever at home: of the visits [first, end) none is fetched or stored. */
static bool never_at_home(const struct visits *visits, size_t first, size_t end) {
    int32_t buffer = visits->list.items[first].buffer;
    for (size_t v = first; v < end; v++)
        if (!is_whole(&visits->list.items[v])) return false;
    for (size_t u = visits->first_use[buffer]; u < visits->first_use[buffer + 1]; u++)
        if (!visits->uses[u].away) return false;
    return true;
}

/* The visit's own buffer: a copy of its home, or where nothing is copied a buffer by itself. */
static enum status make_copy(struct visits *visits, struct visit *visit) {
    struct buffer copy = visits->program->buffers.items[visit->buffer];
    visit->copy = copy.id = (int)visits->program->buffers.count;
    copy.home = is_whole(visit) ? -1 : visit->buffer;
    copy.tier = visit->tier;
    copy.persistent = false;
    return vec_push(&visits->program->buffers, copy);
}

/* A copy for each visit. A buffer that is never at home becomes that of its first visit. */
static enum status make_copies(struct visits *visits) {
    struct visit *items = visits->list.items;
    for (size_t first = 0, end; first < visits->list.count; first = end) {
        for (end = first; end < visits->list.count && items[end].buffer == items[first].buffer;)
            end++;
        size_t v = first;
        if (never_at_home(visits, first, end)) {
            visits->program->buffers.items[items[v].buffer].tier = items[v].tier;
            items[v].copy = items[v].buffer;
            v++;
        }
        for (; v < end; v++)
            TRY(make_copy(visits, &items[v]));
    }
    return STATUS_OK;
}

static enum status make_transfer(struct visits *visits, const struct transfer *transfer, struct instruction *out) {
    const struct visit *visit = &visits->list.items[transfer->visit];
    const struct buffer *buffers = visits->program->buffers.items;
    int32_t from = transfer->store ? visit->copy : visit->buffer, to = transfer->store ? visit->buffer : visit->copy;
    const struct instruction *user = visits_instruction(visits, transfer->store ? visit->last : visit->first);
    struct instruction copy = {.opcode = OPCODE_COPY,
                               .stream = (int)stream_role_of_copy(buffers[from].tier, buffers[to].tier),
                               .section = transfer->section,
                               .group = user->group,
                               .deferred = visit->deferred,
                               .grain = user->grain};
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
    struct visits visits = {
        .program = program, .policy = policy, .is_away = is_elsewhere, .is_held = is_parameter_visit};
    enum status status;
    TRY_GOTO(status, visits_find(&visits), done);
    TRY_GOTO(status, place_transfers(&visits), done);
    TRY_GOTO(status, make_copies(&visits), done);
    TRY_GOTO(status, visits_weave(&visits, make_transfer), done);
    number_streams(program);
    choose_alignment(program);
    program_set_lifetimes(program);
done:
    visits_free(&visits);
    return status;
}
