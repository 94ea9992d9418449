/* Static placement: offsets for buffers with known live ranges (dynamic storage allocation, NP-hard).
 *
 * A sweep in the order of time is near linear. Greedy placement at the lowest free offset in other orders is quadratic,
 * and is tried too unless there are too many buffers. If that leaves gaps, orders are changed repeatedly: the buffer
 * that ends highest moves before all buffers that are live with it. The best result is kept. */

#include "compiler/program.h"

/* Placement compares buffers pair by pair at most this many times. */
enum { COMPARED_MAX = 4 << 20 };

/* ---- live ranges ---- */

static void touch(struct program *program, const struct operand *operand, int32_t position) {
    struct buffer *buffer = &program->buffers.items[operand->buffer];
    if (buffer->first < 0) buffer->first = position;
    buffer->last = position;
}

/* An operation between ranks overlaps with the group that follows. Had that the staging's space, its kernels would
 * wait for the operation's end. */
static void extend_staging(struct program *program, int32_t position) {
    const struct instruction *items = program->instructions.items, *own = &items[position];
    const struct operand *staging = &own->operands[OPERAND_WORKSPACE];
    if (!opcode_is_collective(own->opcode) || staging->buffer < 0) return;
    int32_t last = position, end = (int32_t)program->instructions.count;
    while (last + 1 < end && items[last + 1].section == own->section && items[last + 1].group <= own->group + 1)
        last++;
    struct buffer *buffer = &program->buffers.items[staging->buffer];
    if (buffer->last < last) buffer->last = last;
}

/* An input that this purpose does not read, or a buffer that only other ranks or rounds use, takes no space. */
static void settle_unused(struct buffer *buffer) {
    buffer->first = buffer->last = 0;
    if (!buffer->persistent && buffer->pack && buffer->bytes > BUFFER_ALIGNMENT) buffer->bytes = BUFFER_ALIGNMENT;
}

/* A buffer that enters a repeated section from outside lives to its end. */
static void extend_entering(struct program *program, const struct section *section) {
    int32_t last = section->first + section->count - 1;
    for (size_t i = 0; i < program->buffers.count; i++) {
        struct buffer *buffer = &program->buffers.items[i];
        bool enters = buffer->first < section->first && buffer->last >= section->first;
        if (enters && buffer->last < last) buffer->last = last;
    }
}

void program_set_lifetimes(struct program *program) {
    int32_t end = (int32_t)program->instructions.count - 1;
    for (size_t i = 0; i < program->buffers.count; i++)
        program->buffers.items[i].first = -1;
    for (int32_t position = 0; position <= end; position++)
        for (int k = 0; k < OPERANDS_MAX; k++) {
            const struct operand *operand = &program->instructions.items[position].operands[k];
            if (operand->buffer >= 0) touch(program, operand, position);
        }
    for (int32_t position = 0; position <= end; position++)
        extend_staging(program, position);
    for (size_t i = 0; i < program->buffers.count; i++) {
        struct buffer *buffer = &program->buffers.items[i];
        if (buffer->first < 0) settle_unused(buffer);
        if (buffer->persistent) buffer->first = 0;
        if (buffer->persistent || buffer_is_kept(buffer)) buffer->last = end;
    }
    for (size_t s = 0; s < program->sections.count; s++)
        if (program->sections.items[s].repeat > 1) extend_entering(program, &program->sections.items[s]);
}

struct gap {
    int64_t begin, end;
};

/* Ascending and never touching; the last one has no end. */
struct gaps {
    VEC(struct gap) list;
};

static void remove_gap(struct gaps *gaps, size_t at) {
    gaps->list.count--;
    memmove(gaps->list.items + at, gaps->list.items + at + 1, (gaps->list.count - at) * sizeof *gaps->list.items);
}

static int64_t take(struct gaps *gaps, int64_t bytes) {
    size_t at = 0;
    while (gaps->list.items[at].end - gaps->list.items[at].begin < bytes)
        at++;
    struct gap *gap = &gaps->list.items[at];
    int64_t offset = gap->begin;
    gap->begin += bytes;
    if (gap->begin == gap->end) remove_gap(gaps, at);
    return offset;
}

static enum status give_back(struct gaps *gaps, int64_t begin, int64_t end) {
    size_t low = 0, high = gaps->list.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (gaps->list.items[middle].begin < begin)
            low = middle + 1;
        else
            high = middle;
    }
    bool joins_before = low > 0 && gaps->list.items[low - 1].end == begin;
    bool joins_after = low < gaps->list.count && gaps->list.items[low].begin == end;
    if (joins_before) {
        gaps->list.items[low - 1].end = joins_after ? gaps->list.items[low].end : end;
        if (joins_after) remove_gap(gaps, low);
        return STATUS_OK;
    }
    if (joins_after) {
        gaps->list.items[low].begin = begin;
        return STATUS_OK;
    }
    TRY(vec_reserve(&gaps->list, gaps->list.count + 1));
    memmove(gaps->list.items + low + 1, gaps->list.items + low, (gaps->list.count - low) * sizeof *gaps->list.items);
    gaps->list.items[low] = (struct gap){begin, end};
    gaps->list.count++;
    return STATUS_OK;
}

/* Sets the offsets of `count` buffers, given by their first use and again by their last use, from `base` on, in
 * multiples of the program's alignment. *top is where the highest one ends. */
static enum status sweep_place(const struct program *program, struct buffer *const *by_first,
                               struct buffer *const *by_last, size_t count, int64_t base, int64_t *top) {
    struct gaps gaps = {0};
    enum status status = vec_push(&gaps.list, (struct gap){base, INT64_MAX});
    *top = base;
    for (size_t i = 0, dead = 0; i < count && status == STATUS_OK; i++) {
        for (; dead < count && by_last[dead]->last < by_first[i]->first && status == STATUS_OK; dead++)
            status = give_back(&gaps, by_last[dead]->offset,
                               by_last[dead]->offset + program_moved_bytes(program, by_last[dead]->bytes));
        if (status != STATUS_OK) break;
        by_first[i]->offset = take(&gaps, program_moved_bytes(program, by_first[i]->bytes));
        int64_t end = by_first[i]->offset + program_moved_bytes(program, by_first[i]->bytes);
        if (end > *top) *top = end;
    }
    vec_free(&gaps.list);
    return status;
}

/* An order of buffers, the largest key first. Ties fall back to the id, so that every order is total and placement the
 * same everywhere. */
#define LARGEST_FIRST(name, key) ORDER_BY_BOTH(name, struct buffer *, -(int64_t)(key), (*item)->id)
LARGEST_FIRST(by_bytes, (*item)->bytes)
LARGEST_FIRST(by_area, (*item)->bytes *((*item)->last - (*item)->first + 1))
LARGEST_FIRST(by_duration, (*item)->last - (*item)->first)
/* Among buffers that begin together, the longest-lived comes first. */
LARGEST_FIRST(by_precedence, (*item)->last - ((int64_t)(*item)->first << 32))

/* Copies between tiers, moved to bytes that were not in use shortly before.
 *
 * A copy waits for whatever had its bytes before it. Placement only minimizes the peak, and puts all copies of a kind
 * at one offset. So each fetch waits for the store before it, though memory is free for most of a step. Here each copy
 * moves to the bytes where the fewest groups have to wait. The arena does not grow. */

/* The number of groups between two uses of the same bytes, plus one. A stream fetches a few groups ahead if it can, so
 * longer distances make no difference. */
enum { DISTANCE_LIVE = 0 /* in use together */, DISTANCE_MAX = 6 };
/* A copy much smaller than the largest keeps nothing waiting for long. */
enum { SMALL_PART = 64 };
/* Each copy is compared with all buffers; 4 million comparisons take some milliseconds. */

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

ORDER_BY_BOTH(by_offset, struct range, item->offset, item->buffer->id)

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

/* `list`: the tier's buffers that are not persistent, with offsets in [base, top); their order changes. */
static enum status place_apart(const struct program *program, struct buffer **list, size_t count, int64_t base,
                               int64_t top) {
    size_t copies = list_copies(program, list, count);
    if (copies == 0) return STATUS_OK;
    struct apart apart = {.count = count, .base = base, .top = top};
    enum status status = mem_items(&apart.ranges, count);
    if (status == STATUS_OK) status = mem_items(&apart.near, count);
    if (status == STATUS_OK) list_ranges(program, list, copies, &apart);
    for (size_t c = 0; c < copies && status == STATUS_OK; c++)
        move_copy(&apart, list[c]);
    mem_free(apart.ranges);
    mem_free(apart.near);
    return status;
}

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
    TRY(mem_items(&placement.placed, count));
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

/* Places persistent buffers at the arena's front, after the reserved bytes; shared ones have their offsets already.
 * Returns the end of the last one. */
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
    TRY(sweep_place(tier->program, tier->by_first, tier->by_last, tier->count, tier->base, &top));
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
enum { MOVES_MAX = 40 };

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
    AUTO_FREE struct buffer **lists = mem_array(3 * count, sizeof(struct buffer *));
    AUTO_FREE int64_t *changes = mem_array(program->instructions.count + 1, sizeof *changes);
    AUTO_FREE int64_t *best = mem_array(count, sizeof *best);
    TRY(lists && changes && best ? STATUS_OK : STATUS_FAILED);
    for (enum tier tier = 0; tier < TIER_COUNT; tier++) {
        program->live_bytes[tier] = largest_live_sum(program, tier, changes);
        TRY(place_tier(program, tier, lists, changes, best));
    }
    return STATUS_OK;
}
