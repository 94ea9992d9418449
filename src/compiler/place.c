/* Static placement: offsets for buffers with known live ranges (dynamic storage allocation, NP-hard). A sweep in the
 * order of time is near linear; greedy placement at the lowest free offset in other orders is quadratic and is tried
 * too while there are not too many buffers. Where that leaves gaps, orders are changed: the buffer that ends highest is
 * placed before all that are live with it, again and again. The best result is kept. */
#include <stdlib.h>
#include <string.h>

#include "compiler/passes.h"
#include "compiler/place_apart.h"
#include "compiler/sweep.h"

static int64_t area(const struct buffer *buffer) { return buffer->bytes * (buffer->last - buffer->first + 1); }

/* Ties fall back to the id, so that every order is total and placement the same everywhere. */
#define BY(name, key)                                                                                                  \
    static int name(const void *a, const void *b) {                                                                    \
        const struct buffer *x = *(struct buffer *const *)a, *y = *(struct buffer *const *)b;                          \
        int64_t p = key(x), q = key(y);                                                                                \
        return p != q ? (p > q ? -1 : 1) : (x->id > y->id) - (x->id < y->id);                                          \
    }
static int64_t bytes_of(const struct buffer *buffer) { return buffer->bytes; }
static int64_t duration(const struct buffer *buffer) { return buffer->last - buffer->first; }
/* Of those that begin together, the one that lives longest first. */
static int64_t precedence(const struct buffer *buffer) { return buffer->last - ((int64_t)buffer->first << 32); }
BY(by_bytes, bytes_of)
BY(by_area, area)
BY(by_duration, duration)
BY(by_precedence, precedence)

/* Placed buffers in order of their offsets: side by side in memory, since each new one is compared with many. */
struct placed {
    int64_t offset, end;
    int32_t first, last;
};

struct placement {
    const struct program *program;
    struct placed *placed;
    size_t count;
    int64_t base, top;
};

static bool live_together(const struct placed *placed, const struct buffer *buffer) {
    return placed->first <= buffer->last && buffer->first <= placed->last;
}

/* The lowest offset at which `buffer` meets no buffer that is live with it. */
static void place_one(struct placement *placement, struct buffer *buffer) {
    int64_t offset = placement->base, bytes = program_moved_bytes(placement->program, buffer->bytes);
    for (size_t i = 0; i < placement->count && placement->placed[i].offset < offset + bytes; i++) {
        const struct placed *other = &placement->placed[i];
        if (other->end > offset && live_together(other, buffer)) offset = other->end;
    }
    buffer->offset = offset;
    size_t low = 0, high = placement->count++;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (placement->placed[middle].offset <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    struct placed *at = placement->placed + low;
    memmove(at + 1, at, (placement->count - 1 - low) * sizeof *at);
    *at = (struct placed){offset, offset + bytes, buffer->first, buffer->last};
    if (at->end > placement->top) placement->top = at->end;
}

static enum status place_in_order(const struct program *program, struct buffer **order, size_t count, int64_t base,
                                  int64_t *top) {
    struct placement placement = {.program = program, .base = base, .top = base};
    placement.placed = mem_array(count, sizeof *placement.placed);
    if (!placement.placed) return STATUS_FAILED;
    for (size_t i = 0; i < count; i++)
        place_one(&placement, order[i]);
    mem_free(placement.placed);
    *top = placement.top;
    return STATUS_OK;
}

static int64_t largest_live_sum(const struct program *program, enum tier tier, int64_t *changes) {
    size_t positions = program->instructions.count;
    memset(changes, 0, (positions + 1) * sizeof *changes);
    for (size_t i = 0; i < program->buffers.count; i++) {
        const struct buffer *buffer = &program->buffers.items[i];
        if (buffer->tier != tier) continue;
        changes[buffer->first] += program_moved_bytes(program, buffer->bytes);
        changes[buffer->last + 1] -= program_moved_bytes(program, buffer->bytes);
    }
    int64_t live = 0, peak = 0;
    for (size_t i = 0; i <= positions; i++) {
        live += changes[i];
        if (live > peak) peak = live;
    }
    /* Reserved bytes that hold none of this program's buffers count as live all the time. */
    int64_t elsewhere = program_moved_bytes(program, program->reserved_bytes[tier]);
    for (size_t i = 0; i < program->buffers.count; i++) {
        const struct buffer *buffer = &program->buffers.items[i];
        if (buffer->tier == tier && buffer->shared) elsewhere -= program_moved_bytes(program, buffer->bytes);
    }
    return peak + elsewhere;
}

/* Places persistent buffers at the arena's front, behind what is reserved; shared ones have their offsets already.
 * Returns where they end. */
static int64_t place_persistent(struct program *program, enum tier tier) {
    int64_t base = program_moved_bytes(program, program->reserved_bytes[tier]);
    for (size_t i = 0; i < program->buffers.count; i++) {
        struct buffer *buffer = &program->buffers.items[i];
        if (buffer->tier != tier || !buffer->persistent || buffer->shared) continue;
        buffer->offset = base;
        base += program_moved_bytes(program, buffer->bytes);
    }
    return base;
}

typedef int buffer_order(const void *a, const void *b);
static buffer_order *const orders[] = {by_bytes, by_area, by_duration};
enum { GREEDY_BUFFERS_MAX = 8192 };

/* Within a thousandth of the lower bound another order is not tried: one takes 0.1 s for 8192 buffers. */
static bool is_tight(int64_t top, int64_t live) { return top <= live + live / 1024; }

/* A tier's buffers whose offsets are sought. */
struct tier_buffers {
    const struct program *program;
    struct buffer **list, **by_first, **by_last;
    size_t count;
    int64_t *places; /* as many as there are positions and one more: for sorting by counting */
    int64_t base, live;
    int64_t top;   /* the lowest so far */
    int64_t *best; /* with it, by buffer id: its offset */
};

static bool is_placed(const struct tier_buffers *tier) { return is_tight(tier->top, tier->live); }

/* Keeps the offsets where none before took less. */
static void keep(struct tier_buffers *tier, int64_t top) {
    if (top >= tier->top) return;
    tier->top = top;
    for (size_t i = 0; i < tier->count; i++)
        tier->best[tier->list[i]->id] = tier->list[i]->offset;
}

static int32_t position_of(const struct buffer *buffer, bool end) { return end ? buffer->last + 1 : buffer->first; }

/* The list, which is in the order of ids, by the position where buffers begin or end; then by id. */
static void sort_by_position(const struct tier_buffers *tier, bool end, struct buffer **out) {
    size_t positions = tier->program->instructions.count + 1;
    memset(tier->places, 0, positions * sizeof *tier->places);
    for (size_t i = 0; i < tier->count; i++)
        tier->places[position_of(tier->list[i], end)]++;
    int64_t next = 0;
    for (size_t p = 0; p < positions; p++) {
        int64_t count = tier->places[p];
        tier->places[p] = next;
        next += count;
    }
    for (size_t i = 0; i < tier->count; i++)
        out[tier->places[position_of(tier->list[i], end)]++] = tier->list[i];
}

/* In the order of time. */
static enum status place_by_sweep(struct tier_buffers *tier) {
    int64_t top;
    sort_by_position(tier, false, tier->by_first);
    sort_by_position(tier, true, tier->by_last);
    TRY(sweep_place(tier->by_first, tier->by_last, tier->count, tier->program->alignment, tier->base, &top));
    keep(tier, top);
    return STATUS_OK;
}

static enum status place_by(struct tier_buffers *tier, buffer_order *by) {
    int64_t top;
    qsort(tier->list, tier->count, sizeof *tier->list, by);
    TRY(place_in_order(tier->program, tier->list, tier->count, tier->base, &top));
    keep(tier, top);
    return STATUS_OK;
}

static int64_t end_of(const struct tier_buffers *tier, const struct buffer *buffer) {
    return buffer->offset + program_moved_bytes(tier->program, buffer->bytes);
}

static bool meet(const struct buffer *a, const struct buffer *b) { return a->first <= b->last && b->first <= a->last; }

/* The buffer that ends highest goes before the first one that is live with it. False where it is there. */
static bool move_highest(const struct tier_buffers *tier) {
    struct buffer **list = tier->list, *highest;
    size_t from = 0, to = 0;
    for (size_t i = 1; i < tier->count; i++)
        if (end_of(tier, list[i]) > end_of(tier, list[from])) from = i;
    highest = list[from];
    while (to < from && !meet(list[to], highest))
        to++;
    memmove(list + to + 1, list + to, (from - to) * sizeof *list);
    list[to] = highest;
    return to < from;
}

/* A placement compares each of n buffers with up to n; that many in all, for each order that is changed: 1 ms or two.
 */
enum { MOVES_MAX = 40, COMPARED_MAX = 4 << 20 };

static enum status improve(struct tier_buffers *tier, buffer_order *by) {
    size_t moves = COMPARED_MAX / (tier->count * tier->count + 1);
    int64_t top;
    if (moves > MOVES_MAX) moves = MOVES_MAX;
    if (moves == 0 || is_placed(tier)) return STATUS_OK;
    qsort(tier->list, tier->count, sizeof *tier->list, by);
    for (size_t i = 0; i < moves && !is_placed(tier); i++) {
        TRY(place_in_order(tier->program, tier->list, tier->count, tier->base, &top));
        keep(tier, top);
        if (!move_highest(tier)) break;
    }
    return STATUS_OK;
}

static enum status try_orders(struct tier_buffers *tier) {
    size_t tried = tier->count <= GREEDY_BUFFERS_MAX ? sizeof orders / sizeof *orders : 0;
    TRY(place_by_sweep(tier));
    for (size_t k = 0; k < tried && !is_placed(tier); k++)
        TRY(place_by(tier, orders[k]));
    TRY(improve(tier, by_precedence));
    return improve(tier, by_area);
}

static enum status place_tier(struct program *program, enum tier tier, struct buffer **lists, int64_t *places,
                              int64_t *best) {
    size_t count = program->buffers.count;
    struct tier_buffers buffers = {.program = program,
                                   .list = lists,
                                   .by_first = lists + count,
                                   .by_last = lists + 2 * count,
                                   .places = places,
                                   .base = place_persistent(program, tier),
                                   .live = program->live_bytes[tier],
                                   .top = INT64_MAX,
                                   .best = best};
    for (size_t i = 0; i < count; i++) {
        struct buffer *buffer = &program->buffers.items[i];
        if (buffer->tier == tier && !buffer->persistent) buffers.list[buffers.count++] = buffer;
    }
    TRY(try_orders(&buffers));
    for (size_t i = 0; i < buffers.count; i++)
        buffers.list[i]->offset = best[buffers.list[i]->id];
    program->tier_bytes[tier] = buffers.top;
    return tier == TIER_DISK ? STATUS_OK : place_apart(program, buffers.list, buffers.count, buffers.base, buffers.top);
}

enum status program_place(struct program *program) {
    size_t count = program->buffers.count;
    struct buffer **lists = mem_array(3 * count, sizeof(struct buffer *));
    int64_t *changes = mem_array(program->instructions.count + 1, sizeof *changes);
    int64_t *best = mem_array(count, sizeof *best);
    enum status status = lists && changes && best ? STATUS_OK : STATUS_FAILED;
    for (enum tier tier = 0; tier < TIER_COUNT && status == STATUS_OK; tier++) {
        program->live_bytes[tier] = largest_live_sum(program, tier, changes);
        status = place_tier(program, tier, lists, changes, best);
    }
    mem_free(lists);
    mem_free(best);
    mem_free(changes);
    return status;
}
