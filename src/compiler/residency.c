/* Finding residencies, and weaving their fetches and stores into the program. */
#include "compiler/residency.h"

#include "plan/plan.h"

/* Places of parameters that are used elsewhere than they are kept. */

struct place {
    size_t residency; /* that has the place */
    int32_t freed;    /* the instruction before which the next one may be fetched */
};

struct places {
    struct residencies *residencies;
    struct place *items;
    int64_t count, max;
    int section;
    int32_t latest; /* fetches come in the order of residencies: one stream makes them */
};

struct timed {
    int32_t first;
    size_t residency;
};

ORDER_BY_BOTH(compare_timed, struct timed, item->first, item->residency)

/* The next use of the buffer of `residency` in a place after `instruction` in the same section; INT32_MAX when there is
 * none.
 */
static int32_t next_use(const struct residencies *residencies, size_t residency, int32_t instruction) {
    const struct residency *items = residencies->list.items;
    for (size_t v = residency; v < residencies->list.count && items[v].buffer == items[residency].buffer; v++)
        if (items[v].first > instruction && residencies->is_held(residencies, &items[v]) &&
            residencies_instruction(residencies, items[v].first)->section ==
                residencies_instruction(residencies, instruction)->section)
            return items[v].first;
    return INT32_MAX;
}

/* The place to evict for a residency at `instruction`: among places that its group does not use, the one with the
 * farthest next use. -1: none. */
static int64_t choose_place(const struct places *places, int32_t instruction) {
    const struct residencies *residencies = places->residencies;
    int32_t farthest = -1, group = residencies_group(residencies, instruction);
    int64_t chosen = -1;
    for (int64_t p = 0; p < places->count; p++) {
        const struct residency *held = &residencies->list.items[places->items[p].residency];
        int32_t next = next_use(residencies, places->items[p].residency, instruction);
        bool used = residencies_group(residencies, held->last) == group ||
                    (next != INT32_MAX && residencies_group(residencies, next) == group);
        if (!used && next > farthest) farthest = next, chosen = p;
    }
    return chosen;
}

static enum status refuse_buffers(const struct places *places, int32_t group) {
    const struct residencies *residencies = places->residencies;
    long long needed = 0;
    for (size_t v = 0; v < residencies->list.count; v++) {
        const struct residency *residency = &residencies->list.items[v];
        needed +=
            residencies->is_held(residencies, residency) && residencies_group(residencies, residency->first) == group;
    }
    enum status status =
        status_set(STATUS_BAD_INPUT, "plan: policy.buffers: %" PRId64 " is not legal: one block uses %lld chunks",
                   places->max, needed);
    return status_hint(status, "the nearest legal value is %lld; or choose a larger policy.chunk_bytes", needed);
}

static struct place *find_place(const struct places *places, int32_t buffer) {
    for (int64_t p = 0; p < places->count; p++)
        if (places->residencies->list.items[places->items[p].residency].buffer == buffer) return &places->items[p];
    return NULL;
}

static enum status take_place(struct places *places, size_t v) {
    struct residencies *residencies = places->residencies;
    struct residency *residency = &residencies->list.items[v];
    int32_t freed = residencies->program->sections.items[places->section].first;
    struct place *place = &places->items[places->count];
    if (places->count == places->max) {
        int64_t chosen = choose_place(places, residency->first);
        if (chosen < 0) return refuse_buffers(places, residencies_group(residencies, residency->first));
        place = &places->items[chosen];
        freed = residencies->begin[residencies_group(residencies, residencies->list.items[place->residency].last) + 1];
    } else
        places->count++;
    if (freed > places->latest) places->latest = freed;
    residency->fetch = places->latest;
    *place = (struct place){v, freed};
    return STATUS_OK;
}

static enum status hold_residency(struct places *places, size_t v) {
    struct residency *residency = &places->residencies->list.items[v];
    int section = residencies_instruction(places->residencies, residency->first)->section;
    if (section != places->section) {
        places->section = section;
        places->count = 0;
        places->latest = places->residencies->program->sections.items[section].first;
    }
    struct place *place = find_place(places, residency->buffer);
    if (!place) return take_place(places, v);
    struct residency *held = &places->residencies->list.items[place->residency];
    held->last = residency->last;
    held->changed |= residency->changed;
    residency->merged = true;
    return STATUS_OK;
}

static void drop_merged(struct residencies *residencies) {
    size_t kept = 0;
    for (size_t v = 0; v < residencies->list.count; v++)
        if (!residencies->list.items[v].merged) residencies->list.items[kept++] = residencies->list.items[v];
    residencies->list.count = kept;
}

/* The part of residencies_find about parameters: they have `policy.buffers` places. When a chunk needs a place and none
 * is free, the chunk whose next use is farthest gives up its own (Belady, 1966). Residencies of a chunk that kept its
 * place become one: the last chunks of forward are still there for backward. Every section begins with empty places, so
 * that it can be repeated. */
static enum status residencies_hold(struct residencies *residencies) {
    struct places places = {.residencies = residencies, .max = residencies->policy->buffers, .section = -1};
    struct timed *order;
    size_t count = 0;
    TRY(scratch_items(&residencies->memory, &order, residencies->list.count));
    TRY(scratch_items(&residencies->memory, &places.items, (size_t)places.max));
    for (size_t v = 0; v < residencies->list.count; v++)
        if (residencies->is_held(residencies, &residencies->list.items[v]))
            order[count++] = (struct timed){residencies->list.items[v].first, v};
    if (count > 0) qsort(order, count, sizeof *order, compare_timed);
    for (size_t i = 0; i < count; i++)
        TRY(hold_residency(&places, order[i].residency));
    drop_merged(residencies);
    return STATUS_OK;
}

/* ---- uses ---- */

/* Marks the buffers that some instruction uses away, and their originals: uses of others are not looked at, and most
 * programs move little. `counts`: by buffer, of all its uses. */
static void find_moved(const struct residencies *residencies, bool *moved, size_t *counts, bool *any) {
    const struct program *program = residencies->program;
    *any = false;
    for (int32_t i = 0; i < (int32_t)program->instructions.count; i++)
        for (int k = 0; k < OPERANDS_MAX; k++) {
            int32_t b = residencies_instruction(residencies, i)->operands[k].buffer;
            if (b < 0) continue;
            counts[b]++;
            if (!moved[b] && residencies->is_away(&program->buffers.items[b], residencies_instruction(residencies, i)))
                moved[b] = *any = true;
        }
    for (size_t b = 0; b < program->buffers.count; b++)
        if (moved[b] && program->buffers.items[b].original >= 0) moved[program->buffers.items[b].original] = true;
}

/* In its place among its buffer's: a read comes before a write of one instruction. */
static void insert_use(struct use *uses, size_t first, size_t at, struct use use) {
    while (at > first && uses[at - 1].instruction == use.instruction && uses[at - 1].access > use.access) {
        uses[at] = uses[at - 1];
        at--;
    }
    uses[at] = use;
}

/* `next`: by buffer, where its next use goes. */
static void list_uses(struct residencies *residencies, const bool *moved, size_t *next) {
    const struct program *program = residencies->program;
    for (int32_t i = 0; i < (int32_t)program->instructions.count; i++)
        for (int k = 0; k < OPERANDS_MAX; k++) {
            const struct operand *operand = &residencies_instruction(residencies, i)->operands[k];
            if (operand->buffer < 0 || !moved[operand->buffer]) continue;
            const struct buffer *buffer = &program->buffers.items[operand->buffer];
            bool away = residencies->is_away(buffer, residencies_instruction(residencies, i));
            /* All of an activation is written before any of it is read. */
            bool all = operand->row_bytes > 0 || operand->bytes == buffer->bytes || buffer->kind == BUFFER_ACTIVATIONS;
            int64_t begin = all ? 0 : operand->offset, end = all ? buffer->bytes : operand_end(operand, buffer);
            insert_use(residencies->uses, residencies->first_use[operand->buffer], next[operand->buffer]++,
                       (struct use){operand->buffer, i, operand->access, away, begin, end});
        }
}

/* Sorted by counting. No uses where nothing is away. */
static enum status collect_uses(struct residencies *residencies) {
    struct scratch *memory = &residencies->memory;
    size_t buffers = residencies->program->buffers.count, count = 0, *next;
    bool any = false, *moved;
    TRY(scratch_items(memory, &moved, buffers));
    TRY(scratch_items(memory, &next, buffers));
    TRY(scratch_items(memory, &residencies->first_use, buffers + 1));
    find_moved(residencies, moved, next, &any);
    for (size_t b = 0; b < buffers; b++) {
        size_t own = any && moved[b] ? next[b] : 0;
        residencies->first_use[b] = next[b] = count;
        count += own;
    }
    residencies->first_use[buffers] = residencies->use_count = count;
    if (count == 0) return STATUS_OK;
    TRY(scratch_items(memory, &residencies->uses, count));
    list_uses(residencies, moved, next);
    return STATUS_OK;
}

static enum status find_groups(struct residencies *residencies) {
    int32_t count = (int32_t)residencies->program->instructions.count;
    residencies->groups = count > 0 ? residencies_group(residencies, count - 1) + 1 : 0;
    TRY(scratch_items(&residencies->memory, &residencies->begin, (size_t)residencies->groups + 1));
    for (int32_t i = 0, group = 0; i <= count; i++)
        while (group <= (i < count ? residencies_group(residencies, i) : residencies->groups))
            residencies->begin[group++] = i;
    return STATUS_OK;
}

/* ---- residencies ---- */

/* A residency continues over a gap that is too short for a store and a fetch. residencies_hold has another rule for
 * held residencies. */
static bool is_near(const struct residencies *residencies, const struct residency *residency, int32_t instruction) {
    int32_t last = residencies_group(residencies, residency->last), next = residencies_group(residencies, instruction);
    return residencies->is_held(residencies, residency) ? last == next
                                                        : movement_stays(last, next, residencies->policy->lookahead);
}

static bool is_aside(const struct instruction *instruction) {
    return instruction->deferred || instruction->stream == STREAM_UPDATE;
}

/* An update finds gradients where backward left them; parameters are in other places for it. */
static bool joins(const struct residencies *residencies, const struct residency *residency, const struct use *use) {
    const struct instruction *last = residencies_instruction(residencies, residency->last),
                             *next = residencies_instruction(residencies, use->instruction);
    bool parameters = residencies_buffer(residencies, use->buffer)->kind == BUFFER_PARAMETERS;
    bool apart = residency->deferred != next->deferred || (parameters && residency->aside != is_aside(next));
    return residency->buffer == use->buffer && residency->tier == next->tier && !apart &&
           last->section == next->section && is_near(residencies, residency, use->instruction);
}

/* Members of a pack are written one after the other, in either order: what has been written stays one range. A read
 * of anything else finds what was there before. */
static void add_use(const struct residencies *residencies, struct residency *residency, const struct use *use) {
    bool known = residency->begin <= use->begin && use->end <= residency->end,
         first = residency->begin == residency->end;
    bool writes = use->access == ACCESS_WRITE;
    residency->last = use->instruction;
    residency->changed |= use->access != ACCESS_READ;
    residency->reads |= !known && !writes;
    if (writes && (first || use->begin == residency->end)) residency->end = use->end;
    if (writes && (first || use->end == residency->begin)) residency->begin = use->begin;
    int64_t bytes = residencies_buffer(residencies, residency->buffer)->bytes;
    residency->overwritten = !residency->reads && residency->begin == 0 && residency->end == bytes;
}

static enum status begin_residency(struct residencies *residencies, const struct use *use) {
    struct residency residency = {.buffer = use->buffer,
                                  .first = use->instruction,
                                  .fetch = -1,
                                  .store = -1,
                                  .tier = residencies_instruction(residencies, use->instruction)->tier,
                                  .deferred = residencies_instruction(residencies, use->instruction)->deferred,
                                  .aside = is_aside(residencies_instruction(residencies, use->instruction))};
    add_use(residencies, &residency, use);
    return vec_push(&residencies->list, residency);
}

/* Uses at the home tier end a residency. */
static enum status find_residencies(struct residencies *residencies) {
    bool open = false;
    for (size_t i = 0; i < residencies->use_count; i++) {
        const struct use *use = &residencies->uses[i];
        struct residency *residency = open ? &residencies->list.items[residencies->list.count - 1] : NULL;
        if (use->away && residency && joins(residencies, residency, use))
            add_use(residencies, residency, use);
        else if (use->away)
            TRY(begin_residency(residencies, use));
        open = use->away;
    }
    return STATUS_OK;
}

enum status residencies_find(struct residencies *residencies) {
    TRY(collect_uses(residencies));
    if (residencies->use_count == 0) return STATUS_OK;
    TRY(find_groups(residencies));
    TRY(find_residencies(residencies));
    return residencies_hold(residencies);
}

void residencies_free(struct residencies *residencies) {
    vec_free(&residencies->list);
    vec_free(&residencies->transfers);
    scratch_free(&residencies->memory);
}

/* ---- places of fetches ---- */

void residencies_original_uses(const struct residencies *residencies, int32_t buffer, const struct residency *residency,
                               int32_t *written, int32_t *next) {
    *written = -1;
    *next = INT32_MAX;
    for (size_t u = residencies->first_use[buffer]; u < residencies->first_use[buffer + 1]; u++) {
        const struct use *use = &residencies->uses[u];
        if (use->away) continue;
        if (use->instruction < residency->first && use->access != ACCESS_READ) *written = use->instruction;
        if (use->instruction > residency->last && use->instruction < *next) *next = use->instruction;
    }
}

void residencies_place_fetch(const struct residencies *residencies, struct residency *residency,
                             const struct residency *before, int32_t written) {
    int32_t begin = residencies_section(residencies, residency->first)->first;
    int64_t group =
        movement_fetch_group(residencies_group(residencies, residency->first), residencies->policy->lookahead);
    if (residency->fetch < 0) residency->fetch = residencies->begin[group];
    residency->fetch = larger(residency->fetch, larger(begin, written + 1));
    if (before && before->changed) residency->fetch = larger(residency->fetch, before->store);
    residency->fetch = smaller(residency->fetch, residency->first);
}

/* ---- weaving ---- */

/* At one place stores come before fetches, which may need the space. */
static int compare_transfers(const void *a, const void *b) {
    const struct transfer *x = a, *y = b;
    if (x->section != y->section) return x->section < y->section ? -1 : 1;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    if (x->store != y->store) return x->store ? -1 : 1;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return (x->residency > y->residency) - (x->residency < y->residency);
}

/* Finds the residency of a buffer at an instruction. Instructions are looked up in descending order. */
struct residency_finder {
    const struct residencies *residencies;
    int32_t *latest; /* by buffer: its last residency that is not behind the instruction; -1: none */
};

static enum status make_finder(struct residencies *residencies, struct residency_finder *out) {
    size_t buffers = residencies->program->buffers.count;
    *out = (struct residency_finder){.residencies = residencies};
    TRY(scratch_items(&residencies->memory, &out->latest, buffers));
    memset(out->latest, -1, buffers * sizeof *out->latest);
    for (size_t v = 0; v < residencies->list.count; v++)
        out->latest[residencies->list.items[v].buffer] = (int32_t)v;
    return STATUS_OK;
}

/* The residency that an instruction uses a buffer in; NULL when it uses it at its home tier. */
static const struct residency *find_residency(const struct residency_finder *finder, int32_t buffer,
                                              int32_t instruction) {
    const struct residency *list = finder->residencies->list.items;
    int32_t *latest = &finder->latest[buffer];
    while (*latest >= 0 && list[*latest].first > instruction) {
        bool first = *latest == 0 || list[*latest - 1].buffer != buffer;
        *latest = first ? -1 : *latest - 1;
    }
    return *latest >= 0 && instruction <= list[*latest].last ? &list[*latest] : NULL;
}

/* The instruction that was at `index`. */
static void redirect(const struct residency_finder *finder, int32_t index, struct instruction *instruction) {
    for (int k = 0; k < OPERANDS_MAX; k++) {
        struct operand *operand = &instruction->operands[k];
        const struct residency *residency =
            operand->buffer >= 0 ? find_residency(finder, operand->buffer, index) : NULL;
        if (residency) operand->buffer = residency->copy;
    }
}

/* The transfers in order, made while all instructions are where they were. */
static enum status make_transfers(struct residencies *residencies, residencies_make *make, struct instruction **out) {
    size_t count = residencies->transfers.count;
    if (count > 0) qsort(residencies->transfers.items, count, sizeof *residencies->transfers.items, compare_transfers);
    TRY(scratch_items(&residencies->memory, out, count));
    for (size_t t = 0; t < count; t++)
        TRY(make(residencies, &residencies->transfers.items[t], &(*out)[t]));
    return STATUS_OK;
}

/* From the end to the beginning, where there is space behind: each instruction is moved once, within the list. */
static void insert_transfers(const struct residency_finder *finder, const struct instruction *made) {
    const struct residencies *residencies = finder->residencies;
    struct program *program = residencies->program;
    struct instruction *items = program->instructions.items;
    size_t left = residencies->transfers.count, to = program->instructions.count + left;
    program->instructions.count = to;
    for (int s = (int)program->sections.count; s-- > 0;) {
        struct section *section = &program->sections.items[s];
        const struct transfer *transfers = residencies->transfers.items;
        int32_t end = section->first + section->count, next = (int32_t)to;
        for (int32_t i = end; i >= section->first; i--) {
            if (i < end) {
                if (--to != (size_t)i) items[to] = items[i];
                redirect(finder, i, &items[to]);
            }
            while (left > 0 && transfers[left - 1].section == s && transfers[left - 1].at == i)
                items[--to] = made[--left];
        }
        section->first = (int32_t)to;
        section->count = next - section->first;
    }
    BUG_IF(left > 0 || to > 0, "a transfer outside its section");
}

enum status residencies_weave(struct residencies *residencies, residencies_make *make) {
    struct program *program = residencies->program;
    struct residency_finder finder;
    struct instruction *made;
    if (residencies->list.count == 0) return STATUS_OK;
    TRY(make_finder(residencies, &finder));
    TRY(make_transfers(residencies, make, &made));
    TRY(vec_reserve(&program->instructions, program->instructions.count + residencies->transfers.count));
    insert_transfers(&finder, made);
    return STATUS_OK;
}
