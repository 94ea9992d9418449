#include "compiler/place_apart.h"

#include <stdlib.h>
#include <string.h>

/* How many groups lie between two uses of the same bytes, and one. A stream that fetches is a few groups ahead of what
 * it fetches for where it can, so that more make no difference. */
enum { DISTANCE_LIVE = 0 /* in use together */, DISTANCE_MAX = 6 };
/* A copy much smaller than the largest keeps nothing waiting for long. */
enum { SMALL_PART = 64 };
/* Each copy is compared with all buffers; 4 million comparisons take some milliseconds. */
enum { COMPARED_MAX = 4 << 20 };

/* A buffer's bytes and groups, side by side in memory. */
struct range {
    int64_t offset, end;
    int32_t first, last, first_group, last_group;
    bool waits; /* a copy that is yet to be moved */
    struct buffer *buffer;
};

/* Bytes that a copy had better not have. */
struct near {
    int64_t offset, end;
    int32_t distance;
};

struct apart {
    struct range *ranges; /* in the order of their offsets */
    struct near *near;    /* those of the copy that is being moved, in the same order */
    size_t count, near_count;
    int64_t base, top;
};

/* Copies that are yet to be moved will look after their own distance. */
static int32_t distance(const struct range *copy, const struct range *other) {
    if (other->first <= copy->last && copy->first <= other->last) return DISTANCE_LIVE;
    bool before = other->last < copy->first;
    if (!before && other->waits) return DISTANCE_MAX;
    int32_t groups = before ? copy->first_group - other->last_group : other->first_group - copy->last_group;
    int32_t distance = groups < 0 ? 1 : groups + 1;
    return distance < DISTANCE_MAX ? distance : DISTANCE_MAX;
}

/* Returns the least distance of those whose bytes the copy has now. */
static int32_t list_near(struct apart *apart, const struct range *copy) {
    int32_t min = DISTANCE_MAX;
    apart->near_count = 0;
    for (size_t i = 0; i < apart->count; i++) {
        const struct range *other = &apart->ranges[i];
        int32_t far = other == copy ? DISTANCE_MAX : distance(copy, other);
        if (far == DISTANCE_MAX) continue;
        apart->near[apart->near_count++] = (struct near){other->offset, other->end, far};
        if (far < min && other->offset < copy->end && copy->offset < other->end) min = far;
    }
    return min;
}

/* The lowest offset at which none is nearer than `min`; -1: there is none. */
static int64_t find_offset(const struct apart *apart, int64_t bytes, int32_t min) {
    int64_t offset = apart->base;
    for (size_t i = 0; i < apart->near_count && apart->near[i].offset < offset + bytes; i++) {
        const struct near *near = &apart->near[i];
        if (near->distance < min && near->end > offset) offset = near->end;
    }
    return offset + bytes <= apart->top ? offset : -1;
}

static void set_offset(struct apart *apart, size_t from, int64_t offset) {
    struct range moved = apart->ranges[from], *ranges = apart->ranges;
    size_t to = 0;
    memmove(ranges + from, ranges + from + 1, (apart->count - 1 - from) * sizeof *ranges);
    while (to < apart->count - 1 && ranges[to].offset <= offset)
        to++;
    memmove(ranges + to + 1, ranges + to, (apart->count - 1 - to) * sizeof *ranges);
    moved.end += offset - moved.offset;
    moved.offset = moved.buffer->offset = offset;
    ranges[to] = moved;
}

static void move_copy(struct apart *apart, const struct buffer *buffer) {
    size_t at = 0;
    while (apart->ranges[at].buffer != buffer)
        at++;
    struct range *copy = &apart->ranges[at];
    copy->waits = false;
    int32_t own = list_near(apart, copy);
    int64_t offset = -1;
    for (int32_t min = DISTANCE_MAX; min > own && offset < 0; min--)
        offset = find_offset(apart, copy->end - copy->offset, min);
    if (offset >= 0) set_offset(apart, at, offset);
}

static int by_offset(const void *a, const void *b) {
    const struct range *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return (x->buffer->id > y->buffer->id) - (x->buffer->id < y->buffer->id);
}

static int by_bytes(const void *a, const void *b) {
    const struct buffer *x = *(struct buffer *const *)a, *y = *(struct buffer *const *)b;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static int by_first(const void *a, const void *b) {
    const struct buffer *x = *(struct buffer *const *)a, *y = *(struct buffer *const *)b;
    return x->first != y->first ? (x->first < y->first ? -1 : 1) : by_bytes(a, b);
}

static bool is_copy(const struct program *program, const struct buffer *buffer) {
    return buffer->original >= 0 && program->buffers.items[buffer->original].tier != buffer->tier;
}

/* The largest copies, in the order of time. */
static size_t list_copies(const struct program *program, struct buffer **list, size_t count) {
    size_t found = 0, large = 0, max = COMPARED_MAX / (count + 1);
    for (size_t i = 0; i < count; i++) {
        struct buffer *buffer = list[i];
        if (!is_copy(program, buffer)) continue;
        list[i] = list[found];
        list[found++] = buffer;
    }
    if (found > 0) qsort(list, found, sizeof(struct buffer *), by_bytes);
    while (large < found && large < max && list[large]->bytes >= list[0]->bytes / SMALL_PART)
        large++;
    if (large > 0) qsort(list, large, sizeof(struct buffer *), by_first);
    return large;
}

static void list_ranges(const struct program *program, struct buffer *const *list, size_t copies, struct apart *apart) {
    const struct instruction *instructions = program->instructions.items;
    for (size_t i = 0; i < apart->count; i++) {
        struct buffer *buffer = list[i];
        apart->ranges[i] = (struct range){.offset = buffer->offset,
                                          .end = buffer->offset + program_moved_bytes(program, buffer->bytes),
                                          .first = buffer->first,
                                          .last = buffer->last,
                                          .first_group = instructions[buffer->first].group,
                                          .last_group = instructions[buffer->last].group,
                                          .waits = i < copies,
                                          .buffer = buffer};
    }
    qsort(apart->ranges, apart->count, sizeof *apart->ranges, by_offset);
}

enum status place_apart(const struct program *program, struct buffer **list, size_t count, int64_t base, int64_t top) {
    size_t copies = list_copies(program, list, count);
    if (copies == 0) return STATUS_OK;
    struct apart apart = {.ranges = mem_array(count, sizeof *apart.ranges),
                          .near = mem_array(count, sizeof *apart.near),
                          .count = count,
                          .base = base,
                          .top = top};
    enum status status = apart.ranges && apart.near ? STATUS_OK : STATUS_FAILED;
    if (status == STATUS_OK) list_ranges(program, list, copies, &apart);
    for (size_t c = 0; c < copies && status == STATUS_OK; c++)
        move_copy(&apart, list[c]);
    mem_free(apart.ranges);
    mem_free(apart.near);
    return status;
}
