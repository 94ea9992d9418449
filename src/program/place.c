/* Static placement: offsets for buffers with known live ranges (dynamic storage allocation, NP-hard). A sweep in the
 * order of time is near linear; greedy placement at the lowest free offset in other orders is quadratic and is tried
 * too while there are not too many buffers. The best result is kept. */
#include <stdlib.h>
#include <string.h>

#include "program/passes.h"
#include "program/sweep.h"

static int64_t area(const struct buffer *buffer) { return buffer->bytes * (buffer->last - buffer->first + 1); }

/* Ties fall back to the id, so that every order is total and placement the same everywhere. */
#define BY(name, key)                                                                                                  \
    static int name(const void *a, const void *b) {                                                                    \
        const struct buffer *x = *(struct buffer *const *)a, *y = *(struct buffer *const *)b;                          \
        int64_t p = key(x), q = key(y);                                                                                \
        return p != q ? (p > q ? -1 : 1) : (x->id > y->id) - (x->id < y->id);                                          \
    }
static int64_t bytes_of(const struct buffer *buffer) { return buffer->bytes; }
static int64_t earliness(const struct buffer *buffer) { return -buffer->first; }
static int64_t earliness_of_end(const struct buffer *buffer) { return -buffer->last; }
static int64_t duration(const struct buffer *buffer) { return buffer->last - buffer->first; }
BY(by_bytes, bytes_of)
BY(by_area, area)
BY(by_first, earliness)
BY(by_last, earliness_of_end)
BY(by_duration, duration)

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
/* NULL: by the sweep. */
static buffer_order *const orders[] = {NULL, by_bytes, by_area, by_duration};
enum { ORDERS = 4, GREEDY_BUFFERS_MOST = 8192 };

/* Within a thousandth of the lower bound another order is not tried: one takes 0.1 s for 8192 buffers. */
static bool is_tight(int64_t top, int64_t live) { return top <= live + live / 1024; }

static enum status place_by(const struct program *program, buffer_order *by, struct buffer **list,
                            struct buffer **spare, size_t count, int64_t base, int64_t *top) {
    qsort(list, count, sizeof *list, by ? by : by_first);
    if (by) return place_in_order(program, list, count, base, top);
    memcpy(spare, list, count * sizeof *list);
    qsort(spare, count, sizeof *spare, by_last);
    return sweep_place(list, spare, count, program->alignment, base, top);
}

static enum status place_tier(struct program *program, enum tier tier, struct buffer **list, struct buffer **spare) {
    int64_t base = place_persistent(program, tier), best_top = INT64_MAX;
    size_t count = 0, best = 0;
    for (size_t i = 0; i < program->buffers.count; i++) {
        struct buffer *buffer = &program->buffers.items[i];
        if (buffer->tier == tier && !buffer->persistent) list[count++] = buffer;
    }
    size_t tried = count <= GREEDY_BUFFERS_MOST ? ORDERS : 1, last = 0;
    for (size_t k = 0; k < tried && !(k > 0 && is_tight(best_top, program->live_bytes[tier])); k++) {
        int64_t top;
        TRY(place_by(program, orders[k], list, spare, count, base, &top));
        if (top < best_top) best = k, best_top = top;
        last = k;
    }
    if (best != last) TRY(place_by(program, orders[best], list, spare, count, base, &best_top));
    program->tier_bytes[tier] = best_top;
    return STATUS_OK;
}

enum status program_place(struct program *program) {
    size_t count = program->buffers.count;
    struct buffer **lists = mem_array(2 * count, sizeof(struct buffer *));
    int64_t *changes = mem_array(program->instructions.count + 1, sizeof *changes);
    enum status status = lists && changes ? STATUS_OK : STATUS_FAILED;
    for (enum tier tier = 0; tier < TIER_COUNT && status == STATUS_OK; tier++) {
        program->live_bytes[tier] = largest_live_sum(program, tier, changes);
        status = place_tier(program, tier, lists, lists + count);
    }
    mem_free(lists);
    mem_free(changes);
    return status;
}
