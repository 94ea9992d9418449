#include "compiler/order.h"

/* ---- borders ---- */

/* A border is found by hashing: most are those of several operands, since buffers take each other's bytes. Until all
 * are known a border has the number of its arrival, and reaches have those numbers. */

/* Tiers one behind the other. */
enum { TIER_SHIFT = 60 };

struct border {
    int64_t key; /* its byte, with the tier above TIER_SHIFT */
    int32_t number;
};

struct border_set {
    VEC(struct border) list;
    int32_t *slots; /* 1 + an index of `list`; 0: free */
    size_t mask;    /* slots, a power of two, less 1; twice as many as borders at least */
};

static size_t slot_of(const struct border_set *set, int64_t key) {
    uint64_t mixed = (uint64_t)key * UINT64_C(0x9e3779b97f4a7c15); /* 2^64 over the golden ratio (Knuth) */
    return (size_t)(mixed >> 32) & set->mask;
}

static void put(struct border_set *set, int32_t index) {
    size_t slot = slot_of(set, set->list.items[index].key);
    while (set->slots[slot] != 0)
        slot = (slot + 1) & set->mask;
    set->slots[slot] = index + 1;
}

static enum status grow(struct border_set *set) {
    enum { SLOTS_MIN = 1024 };
    size_t count = set->slots ? 2 * (set->mask + 1) : SLOTS_MIN;
    mem_free(set->slots);
    TRY(mem_items(&set->slots, count));
    set->mask = count - 1;
    for (int32_t i = 0; i < (int32_t)set->list.count; i++)
        put(set, i);
    return STATUS_OK;
}

static enum status find_border(struct border_set *set, int64_t key, int32_t *number) {
    if (!set->slots || 2 * set->list.count > set->mask) TRY(grow(set));
    size_t slot = slot_of(set, key);
    for (; set->slots[slot] != 0; slot = (slot + 1) & set->mask) {
        *number = set->slots[slot] - 1;
        if (set->list.items[*number].key == key) return STATUS_OK;
    }
    *number = (int32_t)set->list.count;
    set->slots[slot] = *number + 1;
    return vec_push(&set->list, (struct border){key, *number});
}

/* ---- operands ---- */

struct collector {
    const struct program *program;
    struct border_set borders;
    struct reach *whole; /* by buffer: the numbers of its own two borders; equal ones: not known yet */
    VEC(struct reach) reaches;
};

static int64_t padded_end(const struct program *program, const struct buffer *buffer) {
    return buffer->offset + program_moved_bytes(program, buffer->bytes);
}

static enum status find_numbers(struct collector *collector, enum tier tier, int64_t begin, int64_t end,
                                struct reach *out) {
    int64_t base = (int64_t)tier << TIER_SHIFT;
    TRY(find_border(&collector->borders, base + begin, &out->first));
    return find_border(&collector->borders, base + end, &out->end);
}

/* Slices of an input (which programs only read) and columns count as their whole buffer: letting two streams fill the
 * columns of one buffer at once is not worth a finer grid. The last bytes reach to the end of the space that a moved
 * buffer takes. */
static enum status find_operand(struct collector *collector, const struct operand *operand, struct reach *out) {
    const struct buffer *buffer = &collector->program->buffers.items[operand->buffer];
    struct reach *whole = &collector->whole[operand->buffer];
    bool all = operand->stride || operand->row_bytes;
    int64_t begin = all ? 0 : operand->offset, end = all ? buffer->bytes : operand_end(operand, buffer);
    bool ends = end == buffer->bytes;
    end = ends ? padded_end(collector->program, buffer) : buffer->offset + end;
    if (begin > 0 || !ends) return find_numbers(collector, buffer->tier, buffer->offset + begin, end, out);
    if (whole->first == whole->end) TRY(find_numbers(collector, buffer->tier, buffer->offset, end, whole));
    *out = *whole;
    return STATUS_OK;
}

static enum status collect(struct collector *collector, struct segments *segments) {
    const struct program *program = collector->program;
    TRY(scratch_items(&segments->memory, &segments->first_reach, program->instructions.count));
    TRY(scratch_items(&segments->memory, &collector->whole, program->buffers.count));
    TRY(vec_reserve(&collector->reaches, 4 * program->instructions.count)); /* more than most need */
    for (size_t i = 0; i < program->instructions.count; i++) {
        segments->first_reach[i] = (int32_t)collector->reaches.count;
        for (int k = 0; k < OPERANDS_MAX; k++) {
            const struct operand *operand = &program->instructions.items[i].operands[k];
            struct reach reach;
            if (operand->buffer < 0) continue;
            TRY(find_operand(collector, operand, &reach));
            TRY(vec_push(&collector->reaches, reach));
        }
    }
    return STATUS_OK;
}

/* ---- segments ---- */

ORDER_BY(compare_borders, struct border, item->key)

/* By their bytes, tier by tier; reaches then have their places in that order in place of the numbers of arrival. */
static enum status sort_borders(struct collector *collector, struct segments *segments) {
    struct border *borders = collector->borders.list.items;
    size_t count = collector->borders.list.count;
    int32_t *places;
    TRY(scratch_items(&segments->memory, &places, count));
    TRY(scratch_items(&segments->memory, &segments->borders, count + 1));
    segments->count = (int32_t)count;
    if (count > 0) qsort(borders, count, sizeof *borders, compare_borders);
    for (size_t i = 0; i < count; i++) {
        places[borders[i].number] = (int32_t)i;
        segments->borders[i] = borders[i].key & ((INT64_C(1) << TIER_SHIFT) - 1);
    }
    for (size_t r = 0; r < collector->reaches.count; r++) {
        struct reach *reach = &collector->reaches.items[r];
        *reach = (struct reach){places[reach->first], places[reach->end]};
    }
    return STATUS_OK;
}

enum status segments_create(const struct program *program, struct segments *out) {
    struct segments segments = {.count = 0};
    struct collector collector = {.program = program};
    enum status status = collect(&collector, &segments);
    if (status == STATUS_OK) status = sort_borders(&collector, &segments);
    segments.reaches = collector.reaches.items;
    mem_free(collector.borders.slots);
    vec_free(&collector.borders.list);
    if (status != STATUS_OK)
        segments_free(&segments);
    else
        *out = segments;
    return status;
}

void segments_free(struct segments *segments) {
    mem_free(segments->reaches);
    scratch_free(&segments->memory);
}

/* ---- vector clocks ---- */

enum { WALK_STEPS = 2, WALK_REPETITIONS_MAX = 3 };

void walk_refresh(struct walk *walk) {
    const struct instruction *instruction = &walk->program->instructions.items[walk->instruction];
    walk->before = walk->streams[instruction->stream];
    for (int32_t i = 0; i < instruction->wait_count; i++) {
        int32_t other = instruction->waits[i];
        if (walk->started[other]) clock_join(&walk->before, &walk->latest[other]);
    }
}

static enum status walk_issue(struct walk *walk, enum status (*visitor)(void *, struct walk *), void *payload) {
    const struct instruction *instruction = &walk->program->instructions.items[walk->instruction];
    int stream = instruction->stream;
    walk->number = walk->issued[stream] + 1;
    walk_refresh(walk);
    TRY(visitor(payload, walk));
    walk->issued[stream] = walk->number;
    struct clock after = walk->before;
    after.ended[stream] = walk->number;
    walk->streams[stream] = walk->latest[walk->instruction] = after;
    walk->started[walk->instruction] = true;
    return STATUS_OK;
}

static enum status walk_step(struct walk *walk, enum status (*visitor)(void *, struct walk *), void *payload) {
    const struct program *program = walk->program;
    for (walk->section = 0; walk->section < program->sections.count; walk->section++) {
        const struct section *section = &program->sections.items[walk->section];
        int64_t repetitions = section->repeat < WALK_REPETITIONS_MAX ? section->repeat : WALK_REPETITIONS_MAX;
        for (walk->repetition = 0; walk->repetition < repetitions; walk->repetition++)
            for (int32_t i = 0; i < section->count; i++) {
                walk->instruction = section->first + i;
                TRY(walk_issue(walk, visitor, payload));
            }
    }
    return STATUS_OK;
}

enum status walk_program(const struct program *program, enum status (*visitor)(void *payload, struct walk *walk),
                         void *payload) {
    struct walk walk = {.program = program};
    walk.latest = mem_array(program->instructions.count, sizeof *walk.latest);
    walk.started = mem_array(program->instructions.count, sizeof *walk.started);
    enum status status = walk.latest && walk.started ? STATUS_OK : STATUS_FAILED;
    for (walk.step = 0; walk.step < WALK_STEPS && status == STATUS_OK; walk.step++)
        status = walk_step(&walk, visitor, payload);
    mem_free(walk.latest);
    mem_free(walk.started);
    return status;
}
