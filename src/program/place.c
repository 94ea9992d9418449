#include <stdlib.h>
#include <string.h>

#include "program/passes.h"

/* Static placement: offsets for buffers with known live ranges (dynamic storage allocation, NP-hard). Greedy placement
 * at the lowest free offset is run for several orders, and the best result is kept. */

static int64_t aligned(int64_t bytes) { return (bytes + BUFFER_ALIGNMENT - 1) / BUFFER_ALIGNMENT * BUFFER_ALIGNMENT; }

static bool live_together(const struct buffer *a, const struct buffer *b) {
    return a->first <= b->last && b->first <= a->last;
}

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
static int64_t duration(const struct buffer *buffer) { return buffer->last - buffer->first; }
BY(by_bytes, bytes_of)
BY(by_area, area)
BY(by_start, earliness)
BY(by_duration, duration)

/* Placed buffers in order of their offsets. */
struct placement {
    struct buffer **placed;
    size_t count;
    int64_t base, top;
};

/* The lowest offset at which `buffer` meets no buffer that is live with it. */
static void place_one(struct placement *placement, struct buffer *buffer) {
    int64_t offset = placement->base, bytes = aligned(buffer->bytes);
    for (size_t i = 0; i < placement->count; i++) {
        const struct buffer *other = placement->placed[i];
        if (other->offset >= offset + bytes) break;
        int64_t end = other->offset + aligned(other->bytes);
        if (end > offset && live_together(other, buffer)) offset = end;
    }
    buffer->offset = offset;
    size_t at = placement->count++;
    for (; at > 0 && placement->placed[at - 1]->offset > offset; at--)
        placement->placed[at] = placement->placed[at - 1];
    placement->placed[at] = buffer;
    if (offset + bytes > placement->top) placement->top = offset + bytes;
}

static int64_t place_in_order(struct buffer **order, size_t count, struct buffer **placed, int64_t base) {
    struct placement placement = {.placed = placed, .base = base, .top = base};
    for (size_t i = 0; i < count; i++)
        place_one(&placement, order[i]);
    return placement.top;
}

static int64_t largest_live_sum(const struct program *program, enum tier tier, int64_t *changes) {
    size_t positions = program->instructions.count;
    memset(changes, 0, (positions + 1) * sizeof *changes);
    for (size_t i = 0; i < program->buffers.count; i++) {
        const struct buffer *buffer = &program->buffers.items[i];
        if (buffer->tier != tier) continue;
        changes[buffer->first] += aligned(buffer->bytes);
        changes[buffer->last + 1] -= aligned(buffer->bytes);
    }
    int64_t live = 0, peak = 0;
    for (size_t i = 0; i <= positions; i++) {
        live += changes[i];
        if (live > peak) peak = live;
    }
    /* What is reserved and holds nothing of this program is live all the time. */
    int64_t elsewhere = aligned(program->reserved_bytes[tier]);
    for (size_t i = 0; i < program->buffers.count; i++) {
        const struct buffer *buffer = &program->buffers.items[i];
        if (buffer->tier == tier && buffer->shared) elsewhere -= aligned(buffer->bytes);
    }
    return peak + elsewhere;
}

/* Persistent buffers from the arena's front, or clear of what is reserved there; shared ones have their places. Returns
 * where these end. */
static int64_t place_persistent(struct program *program, enum tier tier) {
    int64_t base = aligned(program->reserved_bytes[tier]);
    for (size_t i = 0; i < program->buffers.count; i++) {
        struct buffer *buffer = &program->buffers.items[i];
        if (buffer->tier != tier || !buffer->persistent || buffer->shared) continue;
        buffer->offset = base;
        base += aligned(buffer->bytes);
    }
    return base;
}

static void place_tier(struct program *program, enum tier tier, struct buffer **order, struct buffer **placed) {
    static int (*const orders[])(const void *, const void *) = {by_bytes, by_area, by_start, by_duration};
    int64_t base = place_persistent(program, tier);
    size_t count = 0;
    for (size_t i = 0; i < program->buffers.count; i++) {
        struct buffer *buffer = &program->buffers.items[i];
        if (buffer->tier == tier && !buffer->persistent) order[count++] = buffer;
    }
    size_t best = 0;
    int64_t best_top = INT64_MAX;
    for (size_t k = 0; k < sizeof orders / sizeof *orders; k++) {
        qsort(order, count, sizeof(struct buffer *), orders[k]);
        int64_t top = place_in_order(order, count, placed, base);
        if (top < best_top) best = k, best_top = top;
        if (best_top == program->live_bytes[tier]) break;
    }
    qsort(order, count, sizeof(struct buffer *), orders[best]);
    program->tier_bytes[tier] = place_in_order(order, count, placed, base);
}

enum status program_place(struct program *program) {
    size_t count = program->buffers.count;
    struct buffer **order = mem_array(2 * count, sizeof(struct buffer *));
    int64_t *changes = mem_array(program->instructions.count + 1, sizeof *changes);
    if (order && changes)
        for (enum tier tier = 0; tier < TIER_COUNT; tier++) {
            program->live_bytes[tier] = largest_live_sum(program, tier, changes);
            place_tier(program, tier, order, order + count);
        }
    enum status status = order && changes ? STATUS_OK : STATUS_FAILED;
    mem_free(order);
    mem_free(changes);
    return status;
}
