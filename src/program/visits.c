/* Finding visits, and weaving their fetches and stores into the program. */
#include "program/visits.h"

#include <stdlib.h>

#include "plan/movement.h"

/* ---- uses ---- */

/* Marks the buffers that some instruction uses away, and their homes: uses of others are not looked at, and most
 * programs move little. `counts`: by buffer, of all its uses. */
static void find_moved(const struct visits *visits, bool *moved, size_t *counts, bool *any) {
    const struct program *program = visits->program;
    *any = false;
    for (int32_t i = 0; i < (int32_t)program->instructions.count; i++)
        for (int k = 0; k < OPERANDS_MAX; k++) {
            int32_t b = visits_instruction(visits, i)->operands[k].buffer;
            if (b < 0) continue;
            counts[b]++;
            if (!moved[b] && visits->is_away(visits, &program->buffers.items[b], visits_instruction(visits, i)))
                moved[b] = *any = true;
        }
    for (size_t b = 0; b < program->buffers.count; b++)
        if (moved[b] && program->buffers.items[b].home >= 0) moved[program->buffers.items[b].home] = true;
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
static void list_uses(struct visits *visits, const bool *moved, size_t *next) {
    const struct program *program = visits->program;
    for (int32_t i = 0; i < (int32_t)program->instructions.count; i++)
        for (int k = 0; k < OPERANDS_MAX; k++) {
            const struct operand *operand = &visits_instruction(visits, i)->operands[k];
            if (operand->buffer < 0 || !moved[operand->buffer]) continue;
            const struct buffer *buffer = &program->buffers.items[operand->buffer];
            bool away = visits->is_away(visits, buffer, visits_instruction(visits, i));
            /* What is made of an activation is made before any of it is read. */
            bool all = operand->row_bytes > 0 || operand->bytes == buffer->bytes || buffer->kind == BUFFER_ACTIVATIONS;
            int64_t begin = all ? 0 : operand->offset, end = all ? buffer->bytes : operand_end(operand, buffer);
            insert_use(visits->uses, visits->first_use[operand->buffer], next[operand->buffer]++,
                       (struct use){operand->buffer, i, operand->access, away, begin, end});
        }
}

/* Sorted by counting. No uses where nothing is away. */
static enum status collect_uses(struct visits *visits) {
    size_t buffers = visits->program->buffers.count, count = 0;
    bool any = false, *moved = mem_array(buffers, sizeof *moved);
    size_t *next = mem_array(buffers, sizeof *next);
    visits->first_use = mem_array(buffers + 1, sizeof *visits->first_use);
    enum status status = STATUS_FAILED;
    if (!moved || !next || !visits->first_use) goto done;
    find_moved(visits, moved, next, &any);
    for (size_t b = 0; b < buffers; b++) {
        size_t own = any && moved[b] ? next[b] : 0;
        visits->first_use[b] = next[b] = count;
        count += own;
    }
    visits->first_use[buffers] = visits->use_count = count;
    status = STATUS_OK;
    if (count == 0) goto done;
    visits->uses = mem_array(count, sizeof *visits->uses);
    if (visits->uses)
        list_uses(visits, moved, next);
    else
        status = STATUS_FAILED;
done:
    mem_free(moved);
    mem_free(next);
    return status;
}

static enum status find_groups(struct visits *visits) {
    int32_t count = (int32_t)visits->program->instructions.count;
    visits->groups = count > 0 ? visits_group(visits, count - 1) + 1 : 0;
    visits->begin = mem_array((size_t)visits->groups + 1, sizeof *visits->begin);
    if (!visits->begin) return STATUS_FAILED;
    for (int32_t i = 0, group = 0; i <= count; i++)
        while (group <= (i < count ? visits_group(visits, i) : visits->groups))
            visits->begin[group++] = i;
    return STATUS_OK;
}

/* ---- visits ---- */

/* A visit goes on over a gap that is too short for a store and a fetch. Those that are held stay by
 * another rule (visits_hold). */
static bool is_near(const struct visits *visits, const struct visit *visit, int32_t instruction) {
    int32_t last = visits_group(visits, visit->last), next = visits_group(visits, instruction);
    return visits->is_held(visits, visit) ? last == next : movement_stays(last, next, visits->policy->lookahead);
}

static bool is_aside(const struct instruction *instruction) {
    return instruction->deferred || instruction->stream == STREAM_UPDATE;
}

/* An update finds gradients where backward left them; parameters are in other places for it. */
static bool joins(const struct visits *visits, const struct visit *visit, const struct use *use) {
    const struct instruction *last = visits_instruction(visits, visit->last),
                             *next = visits_instruction(visits, use->instruction);
    bool parameters = visits->program->buffers.items[use->buffer].kind == BUFFER_PARAMETERS;
    bool apart = visit->deferred != next->deferred || (parameters && visit->aside != is_aside(next));
    return visit->buffer == use->buffer && visit->tier == next->tier && !apart && last->section == next->section &&
           is_near(visits, visit, use->instruction);
}

/* Members of a pack are written one after the other, in either order: what has been written stays one stretch. A read
 * of anything else finds what was there before. */
static void add_use(const struct visits *visits, struct visit *visit, const struct use *use) {
    bool known = visit->begin <= use->begin && use->end <= visit->end, first = visit->begin == visit->end;
    bool writes = use->access == ACCESS_WRITE;
    visit->last = use->instruction;
    visit->changed |= use->access != ACCESS_READ;
    visit->reads |= !known && !writes;
    if (writes && (first || use->begin == visit->end)) visit->end = use->end;
    if (writes && (first || use->end == visit->begin)) visit->begin = use->begin;
    int64_t bytes = visits->program->buffers.items[visit->buffer].bytes;
    visit->overwritten = !visit->reads && visit->begin == 0 && visit->end == bytes;
}

static enum status begin_visit(struct visits *visits, const struct use *use) {
    struct visit visit = {.buffer = use->buffer,
                          .first = use->instruction,
                          .fetch = -1,
                          .store = -1,
                          .tier = visits_instruction(visits, use->instruction)->tier,
                          .deferred = visits_instruction(visits, use->instruction)->deferred,
                          .aside = is_aside(visits_instruction(visits, use->instruction))};
    add_use(visits, &visit, use);
    return vec_push(&visits->list, visit);
}

/* Uses at home end a visit. */
static enum status find_visits(struct visits *visits) {
    bool open = false;
    for (size_t i = 0; i < visits->use_count; i++) {
        const struct use *use = &visits->uses[i];
        struct visit *visit = open ? &visits->list.items[visits->list.count - 1] : NULL;
        if (use->away && visit && joins(visits, visit, use))
            add_use(visits, visit, use);
        else if (use->away)
            TRY(begin_visit(visits, use));
        open = use->away;
    }
    return STATUS_OK;
}

enum status visits_find(struct visits *visits) {
    TRY(collect_uses(visits));
    if (visits->use_count == 0) return STATUS_OK;
    TRY(find_groups(visits));
    TRY(find_visits(visits));
    return visits_hold(visits);
}

void visits_free(struct visits *visits) {
    mem_free(visits->uses);
    mem_free(visits->first_use);
    vec_free(&visits->list);
    vec_free(&visits->transfers);
    mem_free(visits->begin);
}

/* ---- places of fetches ---- */

void visits_home_uses(const struct visits *visits, int32_t buffer, const struct visit *visit, int32_t *written,
                      int32_t *next) {
    *written = -1;
    *next = INT32_MAX;
    for (size_t u = visits->first_use[buffer]; u < visits->first_use[buffer + 1]; u++) {
        const struct use *use = &visits->uses[u];
        if (use->away) continue;
        if (use->instruction < visit->first && use->access != ACCESS_READ) *written = use->instruction;
        if (use->instruction > visit->last && use->instruction < *next) *next = use->instruction;
    }
}

static int32_t smaller(int32_t a, int32_t b) { return a < b ? a : b; }
static int32_t larger(int32_t a, int32_t b) { return a > b ? a : b; }

void visits_place_fetch(const struct visits *visits, struct visit *visit, const struct visit *before, int32_t written) {
    int32_t begin = visits_section_begin(visits, visit->first);
    int64_t group = movement_fetch_group(visits_group(visits, visit->first), visits->policy->lookahead);
    if (visit->fetch < 0) visit->fetch = visits->begin[group];
    visit->fetch = larger(visit->fetch, larger(begin, written + 1));
    if (before && before->changed) visit->fetch = larger(visit->fetch, before->store);
    visit->fetch = smaller(visit->fetch, visit->first);
}

/* ---- weaving ---- */

/* At one place stores come before fetches, which may need the room. */
static int compare_transfers(const void *a, const void *b) {
    const struct transfer *x = a, *y = b;
    if (x->section != y->section) return x->section < y->section ? -1 : 1;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    if (x->store != y->store) return x->store ? -1 : 1;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return (x->visit > y->visit) - (x->visit < y->visit);
}

/* The visits of each buffer, of which an instruction is looked up after all later ones. */
struct visit_finder {
    const struct visits *visits;
    int32_t *latest; /* by buffer: its last visit that is not behind the instruction; -1: none */
};

static enum status make_finder(const struct visits *visits, struct visit_finder *out) {
    size_t buffers = visits->program->buffers.count;
    *out = (struct visit_finder){visits, mem_array(buffers, sizeof *out->latest)};
    if (!out->latest) return STATUS_FAILED;
    for (size_t b = 0; b < buffers; b++)
        out->latest[b] = -1;
    for (size_t v = 0; v < visits->list.count; v++)
        out->latest[visits->list.items[v].buffer] = (int32_t)v;
    return STATUS_OK;
}

/* The visit that an instruction uses a buffer in; NULL when it uses it at home. */
static const struct visit *find_visit(const struct visit_finder *finder, int32_t buffer, int32_t instruction) {
    const struct visit *list = finder->visits->list.items;
    int32_t *latest = &finder->latest[buffer];
    while (*latest >= 0 && list[*latest].first > instruction) {
        bool first = *latest == 0 || list[*latest - 1].buffer != buffer;
        *latest = first ? -1 : *latest - 1;
    }
    return *latest >= 0 && instruction <= list[*latest].last ? &list[*latest] : NULL;
}

/* The instruction that was at `index`. */
static void redirect(const struct visit_finder *finder, int32_t index, struct instruction *instruction) {
    for (int k = 0; k < OPERANDS_MAX; k++) {
        struct operand *operand = &instruction->operands[k];
        const struct visit *visit = operand->buffer >= 0 ? find_visit(finder, operand->buffer, index) : NULL;
        if (visit) operand->buffer = visit->copy;
    }
}

/* The transfers in order, made while all instructions are where they were. */
static enum status make_transfers(struct visits *visits, visits_make *make, struct instruction **out) {
    size_t count = visits->transfers.count;
    if (count > 0) qsort(visits->transfers.items, count, sizeof *visits->transfers.items, compare_transfers);
    *out = mem_array(count, sizeof **out);
    enum status status = *out ? STATUS_OK : STATUS_FAILED;
    for (size_t t = 0; t < count && status == STATUS_OK; t++)
        status = make(visits, &visits->transfers.items[t], &(*out)[t]);
    return status;
}

/* From the end to the beginning, where there is room behind: each instruction is moved once, within the list. */
static void insert_transfers(const struct visit_finder *finder, const struct instruction *made) {
    const struct visits *visits = finder->visits;
    struct program *program = visits->program;
    struct instruction *items = program->instructions.items;
    size_t left = visits->transfers.count, to = program->instructions.count + left;
    program->instructions.count = to;
    for (int s = (int)program->sections.count; s-- > 0;) {
        struct section *section = &program->sections.items[s];
        const struct transfer *transfers = visits->transfers.items;
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

enum status visits_weave(struct visits *visits, visits_make *make) {
    struct program *program = visits->program;
    size_t count = program->instructions.count + visits->transfers.count;
    struct visit_finder finder;
    struct instruction *made = NULL;
    if (visits->list.count == 0) return STATUS_OK;
    enum status status;
    TRY_GOTO(status, make_finder(visits, &finder), done);
    TRY_GOTO(status, make_transfers(visits, make, &made), done);
    TRY_GOTO(status, vec_reserve(&program->instructions, count), done);
    insert_transfers(&finder, made);
done:
    mem_free(finder.latest);
    mem_free(made);
    return status;
}
