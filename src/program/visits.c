/* Finding visits, and weaving their fetches and stores into the program. */
#include "program/visits.h"

#include <stdlib.h>

#include "plan/movement.h"

/* ---- uses ---- */

static int compare_uses(const void *a, const void *b) {
    const struct use *x = a, *y = b;
    if (x->buffer != y->buffer) return x->buffer < y->buffer ? -1 : 1;
    if (x->instruction != y->instruction) return x->instruction < y->instruction ? -1 : 1;
    return (x->access > y->access) - (x->access < y->access); /* a read comes before a write of one instruction */
}

/* Where there is none, there are no visits: most programs move nothing. */
static bool any_away(const struct visits *visits) {
    const struct program *program = visits->program;
    for (int32_t i = 0; i < (int32_t)program->instructions.count; i++)
        for (int k = 0; k < OPERANDS_MAX; k++) {
            int32_t buffer = visits_instruction(visits, i)->operands[k].buffer;
            if (buffer < 0) continue;
            if (visits->is_away(visits, &program->buffers.items[buffer], visits_instruction(visits, i))) return true;
        }
    return false;
}

static enum status collect_uses(struct visits *visits) {
    const struct program *program = visits->program;
    for (int32_t i = 0; i < (int32_t)program->instructions.count; i++)
        for (int k = 0; k < OPERANDS_MAX; k++) {
            const struct operand *operand = &visits_instruction(visits, i)->operands[k];
            if (operand->buffer < 0) continue;
            const struct buffer *buffer = &program->buffers.items[operand->buffer];
            bool away = visits->is_away(visits, buffer, visits_instruction(visits, i));
            /* What is made of an activation is made before any of it is read. */
            bool all = operand->row_bytes > 0 || operand->bytes == buffer->bytes || buffer->kind == BUFFER_ACTIVATIONS;
            TRY(vec_push(&visits->uses, (struct use){operand->buffer, i, operand->access, away, all}));
        }
    if (visits->uses.count > 0) qsort(visits->uses.items, visits->uses.count, sizeof *visits->uses.items, compare_uses);
    return STATUS_OK;
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

static enum status begin_visit(struct visits *visits, const struct use *use) {
    struct visit visit = {.buffer = use->buffer,
                          .first = use->instruction,
                          .last = use->instruction,
                          .fetch = -1,
                          .store = -1,
                          .tier = visits_instruction(visits, use->instruction)->tier,
                          .deferred = visits_instruction(visits, use->instruction)->deferred,
                          .aside = is_aside(visits_instruction(visits, use->instruction)),
                          .overwritten = use->access == ACCESS_WRITE && use->all,
                          .changed = use->access != ACCESS_READ};
    return vec_push(&visits->list, visit);
}

/* Uses at home end a visit. */
static enum status find_visits(struct visits *visits) {
    bool open = false;
    for (size_t i = 0; i < visits->uses.count; i++) {
        const struct use *use = &visits->uses.items[i];
        struct visit *visit = open ? &visits->list.items[visits->list.count - 1] : NULL;
        if (use->away && visit && joins(visits, visit, use)) {
            visit->last = use->instruction;
            visit->changed |= use->access != ACCESS_READ;
        } else if (use->away)
            TRY(begin_visit(visits, use));
        open = use->away;
    }
    return STATUS_OK;
}

enum status visits_find(struct visits *visits) {
    if (!any_away(visits)) return STATUS_OK;
    TRY(collect_uses(visits));
    TRY(find_groups(visits));
    TRY(find_visits(visits));
    return visits_hold(visits);
}

void visits_free(struct visits *visits) {
    vec_free(&visits->uses);
    vec_free(&visits->list);
    vec_free(&visits->transfers);
    mem_free(visits->begin);
}

/* ---- places of fetches ---- */

size_t visits_first_use(const struct visits *visits, int32_t buffer) {
    size_t low = 0, high = visits->uses.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (visits->uses.items[middle].buffer < buffer)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void visits_home_uses(const struct visits *visits, int32_t buffer, const struct visit *visit, int32_t *written,
                      int32_t *next) {
    *written = -1;
    *next = INT32_MAX;
    for (size_t u = visits_first_use(visits, buffer); u < visits->uses.count; u++) {
        const struct use *use = &visits->uses.items[u];
        if (use->buffer != buffer) return;
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

/* The visit that an instruction uses a buffer in; NULL when it uses it at home. */
static const struct visit *find_visit(const struct visits *visits, int32_t buffer, int32_t instruction) {
    size_t low = 0, high = visits->list.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct visit *visit = &visits->list.items[middle];
        if (visit->buffer < buffer || (visit->buffer == buffer && visit->last < instruction))
            low = middle + 1;
        else
            high = middle;
    }
    const struct visit *visit = low < visits->list.count ? &visits->list.items[low] : NULL;
    return visit && visit->buffer == buffer && visit->first <= instruction ? visit : NULL;
}

/* The instruction that was at `index`. */
static void redirect(const struct visits *visits, int32_t index, struct instruction *instruction) {
    for (int k = 0; k < OPERANDS_MAX && visits->list.count > 0; k++) {
        struct operand *operand = &instruction->operands[k];
        const struct visit *visit = operand->buffer >= 0 ? find_visit(visits, operand->buffer, index) : NULL;
        if (visit) operand->buffer = visit->copy;
    }
}

struct instruction_list {
    VEC(struct instruction) list;
};

static enum status weave_section(struct visits *visits, visits_make *make, int s, size_t *next,
                                 struct instruction_list *out) {
    struct section *section = &visits->program->sections.items[s];
    int32_t begin = section->first, end = begin + section->count;
    section->first = (int32_t)out->list.count;
    for (int32_t i = begin; i <= end; i++) {
        for (; *next < visits->transfers.count; ++*next) {
            const struct transfer *transfer = &visits->transfers.items[*next];
            struct instruction made;
            if (transfer->section != s || transfer->at > i) break;
            TRY(make(visits, transfer, &made));
            TRY(vec_push(&out->list, made));
        }
        bool stays = i < end && visits_instruction(visits, i)->opcode != OPCODE_ELSEWHERE;
        if (!stays) continue;
        TRY(vec_push(&out->list, *visits_instruction(visits, i)));
        redirect(visits, i, &out->list.items[out->list.count - 1]);
    }
    section->count = (int32_t)out->list.count - section->first;
    return STATUS_OK;
}

/* Without transfers the list becomes no longer. */
static void weave_in_place(const struct visits *visits) {
    struct program *program = visits->program;
    struct instruction *items = program->instructions.items;
    int32_t kept = 0;
    for (size_t s = 0; s < program->sections.count; s++) {
        struct section *section = &program->sections.items[s];
        int32_t begin = section->first, end = begin + section->count;
        section->first = kept;
        for (int32_t i = begin; i < end; i++) {
            if (items[i].opcode == OPCODE_ELSEWHERE) continue;
            if (kept != i) items[kept] = items[i];
            redirect(visits, i, &items[kept++]);
        }
        section->count = kept - section->first;
    }
    program->instructions.count = (size_t)kept;
}

enum status visits_weave(struct visits *visits, visits_make *make) {
    struct program *program = visits->program;
    struct instruction_list woven = {.list = {0}};
    size_t next = 0, count = visits->transfers.count;
    if (count == 0) {
        weave_in_place(visits);
        return STATUS_OK;
    }
    qsort(visits->transfers.items, count, sizeof *visits->transfers.items, compare_transfers);
    TRY(vec_reserve(&woven.list, program->instructions.count + count)); /* growing would copy them several times */
    for (int s = 0; s < (int)program->sections.count; s++) {
        enum status status = weave_section(visits, make, s, &next, &woven);
        if (status == STATUS_OK) continue;
        vec_free(&woven.list);
        return status;
    }
    mem_free(program->instructions.items);
    program->instructions.items = woven.list.items;
    program->instructions.count = woven.list.count;
    program->instructions.capacity = woven.list.capacity;
    return STATUS_OK;
}
