/* Copies between tiers. A visit: a stretch of instructions that use a buffer in another tier than its own, through one
 * copy of it. The copy is fetched unless the first use overwrites it, and stored if it was changed and is used again.
 *
 * A copy is live from the place of its fetch in the list to that of its store: `lookahead` groups before the first use,
 * as many after the last, so that the bytes have room while other groups compute. When the copy really happens is up to
 * the streams. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "plan/movement.h"
#include "program/passes.h"

struct visit {
    int32_t buffer, copy; /* the buffer at home, and the one where it is used */
    int32_t first, last;  /* instructions of its uses */
    int32_t fetch, store; /* instructions before which the copies stand; -1: none */
    enum tier tier;
    bool deferred;
    bool overwritten; /* the first use writes all of it */
    bool changed;
    bool merged; /* an earlier visit to the same buffer was extended over this one */
};

struct use {
    int32_t buffer, instruction;
    enum access access;
    bool away; /* in another tier than the buffer's */
};

/* A copy instruction to be inserted before instruction `at`, or at the section's end if `at` is that. */
struct transfer {
    int section;
    int32_t at, first; /* first: the visit's first use; orders transfers at one place */
    bool store;
    size_t visit;
};

struct mover {
    struct program *program;
    const struct policy *policy;
    VEC(struct use) uses;     /* by buffer, then instruction */
    VEC(struct visit) visits; /* by buffer, then instruction */
    VEC(struct transfer) transfers;
    int32_t *begin; /* by group: its first instruction; one more at the end */
    int32_t groups;
};

static const struct instruction *at(const struct mover *mover, int32_t index) {
    return &mover->program->instructions.items[index];
}

static int32_t group_of(const struct mover *mover, int32_t index) { return at(mover, index)->group; }

/* ---- uses ---- */

static int compare_uses(const void *a, const void *b) {
    const struct use *x = a, *y = b;
    if (x->buffer != y->buffer) return x->buffer < y->buffer ? -1 : 1;
    if (x->instruction != y->instruction) return x->instruction < y->instruction ? -1 : 1;
    return (x->access > y->access) - (x->access < y->access); /* a read comes before a write of one instruction */
}

static enum status collect_uses(struct mover *mover) {
    const struct program *program = mover->program;
    for (int32_t i = 0; i < (int32_t)program->instructions.count; i++)
        for (int k = 0; k < OPERANDS_MAX; k++) {
            const struct operand *operand = &at(mover, i)->operands[k];
            if (operand->buffer < 0) continue;
            bool away = program->buffers.items[operand->buffer].tier != at(mover, i)->tier;
            TRY(vec_push(&mover->uses, (struct use){operand->buffer, i, operand->access, away}));
        }
    if (mover->uses.count > 0) qsort(mover->uses.items, mover->uses.count, sizeof *mover->uses.items, compare_uses);
    return STATUS_OK;
}

static enum status find_groups(struct mover *mover) {
    int32_t count = (int32_t)mover->program->instructions.count;
    mover->groups = count > 0 ? group_of(mover, count - 1) + 1 : 0;
    mover->begin = mem_array((size_t)mover->groups + 1, sizeof *mover->begin);
    if (!mover->begin) return STATUS_FAILED;
    for (int32_t i = 0, group = 0; i <= count; i++)
        while (group <= (i < count ? group_of(mover, i) : mover->groups))
            mover->begin[group++] = i;
    return STATUS_OK;
}

/* ---- visits ---- */

static bool is_parameter_visit(const struct mover *mover, const struct visit *visit) {
    return mover->program->buffers.items[visit->buffer].kind == BUFFER_PARAMETERS && !visit->deferred;
}

/* A visit goes on over a gap that is too short for a store and a fetch. Parameters stay by another rule
 * (hold_parameters). */
static bool is_near(const struct mover *mover, const struct visit *visit, int32_t instruction) {
    int32_t last = group_of(mover, visit->last), next = group_of(mover, instruction);
    return is_parameter_visit(mover, visit) ? last == next : movement_stays(last, next, mover->policy->lookahead);
}

static bool joins(const struct mover *mover, const struct visit *visit, const struct use *use) {
    const struct instruction *last = at(mover, visit->last), *next = at(mover, use->instruction);
    return visit->buffer == use->buffer && visit->tier == next->tier && visit->deferred == next->deferred &&
           last->section == next->section && is_near(mover, visit, use->instruction);
}

static enum status begin_visit(struct mover *mover, const struct use *use) {
    struct visit visit = {.buffer = use->buffer,
                          .first = use->instruction,
                          .last = use->instruction,
                          .fetch = -1,
                          .store = -1,
                          .tier = at(mover, use->instruction)->tier,
                          .deferred = at(mover, use->instruction)->deferred,
                          .overwritten = use->access == ACCESS_WRITE,
                          .changed = use->access != ACCESS_READ};
    return vec_push(&mover->visits, visit);
}

/* Uses at home end a visit. */
static enum status find_visits(struct mover *mover) {
    bool open = false;
    for (size_t i = 0; i < mover->uses.count; i++) {
        const struct use *use = &mover->uses.items[i];
        struct visit *visit = open ? &mover->visits.items[mover->visits.count - 1] : NULL;
        if (use->away && visit && joins(mover, visit, use)) {
            visit->last = use->instruction;
            visit->changed |= use->access != ACCESS_READ;
        } else if (use->away)
            TRY(begin_visit(mover, use));
        open = use->away;
    }
    return STATUS_OK;
}

/* ---- parameters ---- */

/* Parameters have `buffers` places on the device. When a chunk needs a place and none is free, the chunk whose next use
 * is farthest gives up its own (Belady, 1966). Visits of a chunk that kept its place become one: the last chunks of
 * forward are still there for backward. Every section begins with empty places, so that it can be repeated. */
struct place {
    size_t visit;  /* that has the place */
    int32_t freed; /* the instruction before which the next one may be fetched */
};

struct places {
    struct mover *mover;
    struct place *items;
    int64_t count, most;
    int section;
    int32_t latest; /* fetches come in the order of visits: one stream makes them */
};

struct timed {
    int32_t first;
    size_t visit;
};

static int compare_timed(const void *a, const void *b) {
    const struct timed *x = a, *y = b;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return (x->visit > y->visit) - (x->visit < y->visit);
}

/* The next use of the buffer of `visit` after `instruction` in the same section; INT32_MAX when there is none. */
static int32_t next_use(const struct mover *mover, size_t visit, int32_t instruction) {
    const struct visit *items = mover->visits.items;
    for (size_t v = visit; v < mover->visits.count && items[v].buffer == items[visit].buffer; v++)
        if (items[v].first > instruction && at(mover, items[v].first)->section == at(mover, instruction)->section)
            return items[v].first;
    return INT32_MAX;
}

/* The place to give up for a visit at `instruction`: of those that its group does not use, the one whose next use is
 * farthest. -1: none. */
static int64_t choose_place(const struct places *places, int32_t instruction) {
    const struct mover *mover = places->mover;
    int32_t farthest = -1, group = group_of(mover, instruction);
    int64_t chosen = -1;
    for (int64_t p = 0; p < places->count; p++) {
        const struct visit *held = &mover->visits.items[places->items[p].visit];
        int32_t next = next_use(mover, places->items[p].visit, instruction);
        bool used = group_of(mover, held->last) == group || (next != INT32_MAX && group_of(mover, next) == group);
        if (!used && next > farthest) farthest = next, chosen = p;
    }
    return chosen;
}

static enum status refuse_buffers(const struct places *places, int32_t group) {
    const struct mover *mover = places->mover;
    long long needed = 0;
    for (size_t v = 0; v < mover->visits.count; v++) {
        const struct visit *visit = &mover->visits.items[v];
        needed += is_parameter_visit(mover, visit) && group_of(mover, visit->first) == group;
    }
    enum status status =
        status_set(STATUS_BAD_INPUT, "plan: policy.buffers: %" PRId64 " is not legal: one block uses %lld chunks",
                   places->most, needed);
    return status_hint(status, "the nearest legal value is %lld; or choose a larger policy.chunk_bytes", needed);
}

static struct place *find_place(const struct places *places, int32_t buffer) {
    for (int64_t p = 0; p < places->count; p++)
        if (places->mover->visits.items[places->items[p].visit].buffer == buffer) return &places->items[p];
    return NULL;
}

static enum status take_place(struct places *places, size_t v) {
    struct mover *mover = places->mover;
    struct visit *visit = &mover->visits.items[v];
    int32_t freed = mover->program->sections.items[places->section].first;
    struct place *place = &places->items[places->count];
    if (places->count == places->most) {
        int64_t chosen = choose_place(places, visit->first);
        if (chosen < 0) return refuse_buffers(places, group_of(mover, visit->first));
        place = &places->items[chosen];
        freed = mover->begin[group_of(mover, mover->visits.items[place->visit].last) + 1];
    } else
        places->count++;
    if (freed > places->latest) places->latest = freed;
    visit->fetch = places->latest;
    *place = (struct place){v, freed};
    return STATUS_OK;
}

static enum status hold_visit(struct places *places, size_t v) {
    struct visit *visit = &places->mover->visits.items[v];
    int section = at(places->mover, visit->first)->section;
    if (section != places->section) {
        places->section = section;
        places->count = 0;
        places->latest = places->mover->program->sections.items[section].first;
    }
    struct place *place = find_place(places, visit->buffer);
    if (!place) return take_place(places, v);
    struct visit *held = &places->mover->visits.items[place->visit];
    held->last = visit->last;
    held->changed |= visit->changed;
    visit->merged = true;
    return STATUS_OK;
}

static void drop_merged(struct mover *mover) {
    size_t kept = 0;
    for (size_t v = 0; v < mover->visits.count; v++)
        if (!mover->visits.items[v].merged) mover->visits.items[kept++] = mover->visits.items[v];
    mover->visits.count = kept;
}

static enum status hold_parameters(struct mover *mover) {
    struct timed *order = mem_array(mover->visits.count, sizeof *order);
    struct places places = {.mover = mover, .most = mover->policy->buffers, .section = -1};
    places.items = mem_array((size_t)places.most, sizeof *places.items);
    size_t count = 0;
    enum status status;
    TRY_GOTO(status, order && places.items ? STATUS_OK : STATUS_FAILED, done);
    for (size_t v = 0; v < mover->visits.count; v++)
        if (is_parameter_visit(mover, &mover->visits.items[v]))
            order[count++] = (struct timed){mover->visits.items[v].first, v};
    if (count > 0) qsort(order, count, sizeof *order, compare_timed);
    for (size_t i = 0; i < count; i++)
        TRY_GOTO(status, hold_visit(&places, order[i].visit), done);
    drop_merged(mover);
done:
    mem_free(order);
    mem_free(places.items);
    return status;
}

/* ---- transfers ---- */

static size_t first_use(const struct mover *mover, int32_t buffer) {
    size_t low = 0, high = mover->uses.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (mover->uses.items[middle].buffer < buffer)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The uses of a buffer at home next to a visit: the last write before it and the first use after it. */
static void find_home_uses(const struct mover *mover, const struct visit *visit, int32_t *written, int32_t *next) {
    *written = -1;
    *next = INT32_MAX;
    for (size_t u = first_use(mover, visit->buffer); u < mover->uses.count; u++) {
        const struct use *use = &mover->uses.items[u];
        if (use->buffer != visit->buffer) return;
        if (use->away) continue;
        if (use->instruction < visit->first && use->access != ACCESS_READ) *written = use->instruction;
        if (use->instruction > visit->last && use->instruction < *next) *next = use->instruction;
    }
}

static int32_t section_end(const struct mover *mover, int32_t instruction) {
    const struct section *section = &mover->program->sections.items[at(mover, instruction)->section];
    return section->first + section->count;
}

static int32_t smaller(int32_t a, int32_t b) { return a < b ? a : b; }
static int32_t larger(int32_t a, int32_t b) { return a > b ? a : b; }

static void place_fetch(const struct mover *mover, struct visit *visit, const struct visit *before, int32_t written) {
    if (visit->overwritten) return;
    int32_t begin = mover->program->sections.items[at(mover, visit->first)->section].first;
    int64_t group = movement_fetch_group(group_of(mover, visit->first), mover->policy->lookahead);
    if (visit->fetch < 0) visit->fetch = mover->begin[group];
    visit->fetch = larger(visit->fetch, larger(begin, written + 1));
    if (before && before->changed) visit->fetch = larger(visit->fetch, before->store);
    visit->fetch = smaller(visit->fetch, visit->first);
}

static void place_store(const struct mover *mover, struct visit *visit, const struct visit *after, int32_t next) {
    bool read_again = after ? !after->overwritten : mover->program->buffers.items[visit->buffer].persistent;
    bool used_again = read_again || next != INT32_MAX;
    if (!visit->changed || !used_again) return;
    /* From the next group on, the place of parameters may belong to another chunk. */
    int64_t room = is_parameter_visit(mover, visit) ? 0 : mover->policy->lookahead;
    int64_t group = movement_store_group(group_of(mover, visit->last), room);
    visit->store = group > mover->groups ? mover->begin[mover->groups] : mover->begin[group];
    visit->store = smaller(visit->store, section_end(mover, visit->last));
    visit->store = smaller(visit->store, next);
    if (after)
        visit->store = larger(visit->last + 1, smaller(visit->store, mover->begin[group_of(mover, after->first)]));
}

static enum status place_transfers(struct mover *mover) {
    struct visit *items = mover->visits.items;
    for (size_t v = 0; v < mover->visits.count; v++) {
        const struct visit *before = v > 0 && items[v - 1].buffer == items[v].buffer ? &items[v - 1] : NULL;
        bool followed = v + 1 < mover->visits.count && items[v + 1].buffer == items[v].buffer;
        int32_t written, next;
        find_home_uses(mover, &items[v], &written, &next);
        place_fetch(mover, &items[v], before, written);
        place_store(mover, &items[v], followed ? &items[v + 1] : NULL, next);
        int section = at(mover, items[v].first)->section;
        struct transfer fetch = {section, items[v].fetch, items[v].first, false, v};
        struct transfer store = {section, items[v].store, items[v].first, true, v};
        if (fetch.at >= 0) TRY(vec_push(&mover->transfers, fetch));
        if (store.at >= 0) TRY(vec_push(&mover->transfers, store));
    }
    return STATUS_OK;
}

/* At one place stores come before fetches, which may need the room. */
static int compare_transfers(const void *a, const void *b) {
    const struct transfer *x = a, *y = b;
    if (x->section != y->section) return x->section < y->section ? -1 : 1;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    if (x->store != y->store) return x->store ? -1 : 1;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return (x->visit > y->visit) - (x->visit < y->visit);
}

/* ---- the list with copies ---- */

static bool is_whole(const struct visit *visit) { return visit->fetch < 0 && visit->store < 0; }

/* Whether nothing of a buffer is ever at home: of the visits [first, end) none is fetched or stored. */
static bool never_at_home(const struct mover *mover, size_t first, size_t end) {
    int32_t buffer = mover->visits.items[first].buffer;
    for (size_t v = first; v < end; v++)
        if (!is_whole(&mover->visits.items[v])) return false;
    for (size_t u = first_use(mover, buffer); u < mover->uses.count && mover->uses.items[u].buffer == buffer; u++)
        if (!mover->uses.items[u].away) return false;
    return true;
}

/* The visit's own buffer: a copy of its home, or where nothing is copied a buffer by itself. */
static enum status make_copy(struct mover *mover, struct visit *visit) {
    struct buffer copy = mover->program->buffers.items[visit->buffer];
    visit->copy = copy.id = (int)mover->program->buffers.count;
    copy.home = is_whole(visit) ? -1 : visit->buffer;
    copy.tier = visit->tier;
    copy.persistent = false;
    return vec_push(&mover->program->buffers, copy);
}

/* A copy for each visit. A buffer that is never at home becomes that of its first visit. */
static enum status make_copies(struct mover *mover) {
    struct visit *items = mover->visits.items;
    for (size_t first = 0, end; first < mover->visits.count; first = end) {
        for (end = first; end < mover->visits.count && items[end].buffer == items[first].buffer;)
            end++;
        size_t v = first;
        if (never_at_home(mover, first, end)) {
            mover->program->buffers.items[items[v].buffer].tier = items[v].tier;
            items[v].copy = items[v].buffer;
            v++;
        }
        for (; v < end; v++)
            TRY(make_copy(mover, &items[v]));
    }
    return STATUS_OK;
}

static struct instruction make_transfer(const struct mover *mover, const struct transfer *transfer) {
    const struct visit *visit = &mover->visits.items[transfer->visit];
    const struct buffer *buffers = mover->program->buffers.items;
    int32_t from = transfer->store ? visit->copy : visit->buffer, to = transfer->store ? visit->buffer : visit->copy;
    const struct instruction *user = at(mover, transfer->store ? visit->last : visit->first);
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
    return copy;
}

/* The visit that an instruction uses a buffer in; NULL when it uses it at home. */
static const struct visit *find_visit(const struct mover *mover, int32_t buffer, int32_t instruction) {
    size_t low = 0, high = mover->visits.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct visit *visit = &mover->visits.items[middle];
        if (visit->buffer < buffer || (visit->buffer == buffer && visit->last < instruction))
            low = middle + 1;
        else
            high = middle;
    }
    const struct visit *visit = low < mover->visits.count ? &mover->visits.items[low] : NULL;
    return visit && visit->buffer == buffer && visit->first <= instruction ? visit : NULL;
}

static struct instruction redirect(const struct mover *mover, int32_t index) {
    struct instruction instruction = *at(mover, index);
    instruction.stream = instruction.deferred ? STREAM_UPDATE : STREAM_COMPUTE;
    if (instruction.opcode == OPCODE_ALL_REDUCE) instruction.stream = STREAM_COMM;
    for (int k = 0; k < OPERANDS_MAX; k++) {
        struct operand *operand = &instruction.operands[k];
        const struct visit *visit = operand->buffer >= 0 ? find_visit(mover, operand->buffer, index) : NULL;
        if (visit) operand->buffer = visit->copy;
    }
    return instruction;
}

struct instruction_list {
    VEC(struct instruction) list;
};

static enum status weave(struct mover *mover, struct instruction_list *out) {
    struct program *program = mover->program;
    size_t next = 0, count = mover->transfers.count;
    const struct transfer *transfers = mover->transfers.items;
    for (int s = 0; s < (int)program->sections.count; s++) {
        struct section *section = &program->sections.items[s];
        int32_t begin = section->first, end = begin + section->count;
        section->first = (int32_t)out->list.count;
        for (int32_t i = begin; i <= end; i++) {
            for (; next < count && transfers[next].section == s && transfers[next].at <= i; next++)
                TRY(vec_push(&out->list, make_transfer(mover, &transfers[next])));
            if (i < end) TRY(vec_push(&out->list, redirect(mover, i)));
        }
        section->count = (int32_t)out->list.count - section->first;
    }
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

static enum status rewrite(struct mover *mover) {
    struct program *program = mover->program;
    struct instruction_list moved = {0};
    TRY(make_copies(mover));
    if (mover->transfers.count > 0)
        qsort(mover->transfers.items, mover->transfers.count, sizeof *mover->transfers.items, compare_transfers);
    enum status status = weave(mover, &moved);
    if (status != STATUS_OK) {
        vec_free(&moved.list);
        return status;
    }
    mem_free(program->instructions.items);
    program->instructions.items = moved.list.items;
    program->instructions.count = moved.list.count;
    program->instructions.capacity = moved.list.capacity;
    number_streams(program);
    choose_alignment(program);
    return STATUS_OK;
}

enum status program_move(struct program *program, const struct policy *policy) {
    struct mover mover = {.program = program, .policy = policy};
    enum status status;
    TRY_GOTO(status, collect_uses(&mover), done);
    TRY_GOTO(status, find_groups(&mover), done);
    TRY_GOTO(status, find_visits(&mover), done);
    TRY_GOTO(status, hold_parameters(&mover), done);
    TRY_GOTO(status, place_transfers(&mover), done);
    TRY_GOTO(status, rewrite(&mover), done);
    program_set_lifetimes(program);
done:
    vec_free(&mover.uses);
    vec_free(&mover.visits);
    vec_free(&mover.transfers);
    mem_free(mover.begin);
    return status;
}
