/* Places of parameters that are used elsewhere than they are kept. */
#include <inttypes.h>
#include <stdlib.h>

#include "compiler/residency.h"

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

static int compare_timed(const void *a, const void *b) {
    const struct timed *x = a, *y = b;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return (x->residency > y->residency) - (x->residency < y->residency);
}

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

/* The place to give up for a residency at `instruction`: of those that its group does not use, the one whose next use
 * is farthest. -1: none. */
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

enum status residencies_hold(struct residencies *residencies) {
    struct timed *order = mem_array(residencies->list.count, sizeof *order);
    struct places places = {.residencies = residencies, .max = residencies->policy->buffers, .section = -1};
    places.items = mem_array((size_t)places.max, sizeof *places.items);
    size_t count = 0;
    enum status status;
    TRY_GOTO(status, order && places.items ? STATUS_OK : STATUS_FAILED, done);
    for (size_t v = 0; v < residencies->list.count; v++)
        if (residencies->is_held(residencies, &residencies->list.items[v]))
            order[count++] = (struct timed){residencies->list.items[v].first, v};
    if (count > 0) qsort(order, count, sizeof *order, compare_timed);
    for (size_t i = 0; i < count; i++)
        TRY_GOTO(status, hold_residency(&places, order[i].residency), done);
    drop_merged(residencies);
done:
    mem_free(order);
    mem_free(places.items);
    return status;
}
