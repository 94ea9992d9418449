/* Places of parameters that are used elsewhere than they are kept. */
#include <inttypes.h>
#include <stdlib.h>

#include "program/visits.h"

struct place {
    size_t visit;  /* that has the place */
    int32_t freed; /* the instruction before which the next one may be fetched */
};

struct places {
    struct visits *visits;
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

/* The next use of the buffer of `visit` in a place after `instruction` in the same section; INT32_MAX when there is
 * none.
 */
static int32_t next_use(const struct visits *visits, size_t visit, int32_t instruction) {
    const struct visit *items = visits->list.items;
    for (size_t v = visit; v < visits->list.count && items[v].buffer == items[visit].buffer; v++)
        if (items[v].first > instruction && visits->is_held(visits, &items[v]) &&
            visits_instruction(visits, items[v].first)->section == visits_instruction(visits, instruction)->section)
            return items[v].first;
    return INT32_MAX;
}

/* The place to give up for a visit at `instruction`: of those that its group does not use, the one whose next use is
 * farthest. -1: none. */
static int64_t choose_place(const struct places *places, int32_t instruction) {
    const struct visits *visits = places->visits;
    int32_t farthest = -1, group = visits_group(visits, instruction);
    int64_t chosen = -1;
    for (int64_t p = 0; p < places->count; p++) {
        const struct visit *held = &visits->list.items[places->items[p].visit];
        int32_t next = next_use(visits, places->items[p].visit, instruction);
        bool used =
            visits_group(visits, held->last) == group || (next != INT32_MAX && visits_group(visits, next) == group);
        if (!used && next > farthest) farthest = next, chosen = p;
    }
    return chosen;
}

static enum status refuse_buffers(const struct places *places, int32_t group) {
    const struct visits *visits = places->visits;
    long long needed = 0;
    for (size_t v = 0; v < visits->list.count; v++) {
        const struct visit *visit = &visits->list.items[v];
        needed += visits->is_held(visits, visit) && visits_group(visits, visit->first) == group;
    }
    enum status status =
        status_set(STATUS_BAD_INPUT, "plan: policy.buffers: %" PRId64 " is not legal: one block uses %lld chunks",
                   places->most, needed);
    return status_hint(status, "the nearest legal value is %lld; or choose a larger policy.chunk_bytes", needed);
}

static struct place *find_place(const struct places *places, int32_t buffer) {
    for (int64_t p = 0; p < places->count; p++)
        if (places->visits->list.items[places->items[p].visit].buffer == buffer) return &places->items[p];
    return NULL;
}

static enum status take_place(struct places *places, size_t v) {
    struct visits *visits = places->visits;
    struct visit *visit = &visits->list.items[v];
    int32_t freed = visits->program->sections.items[places->section].first;
    struct place *place = &places->items[places->count];
    if (places->count == places->most) {
        int64_t chosen = choose_place(places, visit->first);
        if (chosen < 0) return refuse_buffers(places, visits_group(visits, visit->first));
        place = &places->items[chosen];
        freed = visits->begin[visits_group(visits, visits->list.items[place->visit].last) + 1];
    } else
        places->count++;
    if (freed > places->latest) places->latest = freed;
    visit->fetch = places->latest;
    *place = (struct place){v, freed};
    return STATUS_OK;
}

static enum status hold_visit(struct places *places, size_t v) {
    struct visit *visit = &places->visits->list.items[v];
    int section = visits_instruction(places->visits, visit->first)->section;
    if (section != places->section) {
        places->section = section;
        places->count = 0;
        places->latest = places->visits->program->sections.items[section].first;
    }
    struct place *place = find_place(places, visit->buffer);
    if (!place) return take_place(places, v);
    struct visit *held = &places->visits->list.items[place->visit];
    held->last = visit->last;
    held->changed |= visit->changed;
    visit->merged = true;
    return STATUS_OK;
}

static void drop_merged(struct visits *visits) {
    size_t kept = 0;
    for (size_t v = 0; v < visits->list.count; v++)
        if (!visits->list.items[v].merged) visits->list.items[kept++] = visits->list.items[v];
    visits->list.count = kept;
}

enum status visits_hold(struct visits *visits) {
    struct timed *order = mem_array(visits->list.count, sizeof *order);
    struct places places = {.visits = visits, .most = visits->policy->buffers, .section = -1};
    places.items = mem_array((size_t)places.most, sizeof *places.items);
    size_t count = 0;
    enum status status;
    TRY_GOTO(status, order && places.items ? STATUS_OK : STATUS_FAILED, done);
    for (size_t v = 0; v < visits->list.count; v++)
        if (visits->is_held(visits, &visits->list.items[v]))
            order[count++] = (struct timed){visits->list.items[v].first, v};
    if (count > 0) qsort(order, count, sizeof *order, compare_timed);
    for (size_t i = 0; i < count; i++)
        TRY_GOTO(status, hold_visit(&places, order[i].visit), done);
    drop_merged(visits);
done:
    mem_free(order);
    mem_free(places.items);
    return status;
}
