#include "search/sim/timeline_memory.h"

/* An interval of time in which a buffer is live. */
struct life {
    double begin, end; /* end before begin: it is never used */
};

struct change {
    double time_s;
    enum buffer_kind kind;
    int64_t bytes;
};

struct lives {
    const struct timeline *timeline;
    size_t *first; /* by buffer: its first life; one more at the end */
    struct life *all;
};

static const struct section *section_at(const struct program *program, int32_t instruction) {
    return &program->sections.items[program->instructions.items[instruction].section];
}

/* A buffer that is used within one section alone has a life in each repetition. */
static int64_t lives_of(const struct program *program, const struct buffer *buffer) {
    const struct section *section = section_at(program, buffer->first);
    bool within = !buffer->persistent && buffer->last < section->first + section->count;
    return within ? section->repeat : 1;
}

static void add_use(struct lives *lives, int32_t buffer, const struct timeline_event *event) {
    size_t first = lives->first[buffer], several = lives->first[buffer + 1] - first;
    struct life *life = &lives->all[first + (several > 1 ? (size_t)event->repetition : 0)];
    if (event->start_s < life->begin) life->begin = event->start_s;
    if (event->end_s > life->end) life->end = event->end_s;
}

static void find_lives(struct lives *lives) {
    const struct timeline *timeline = lives->timeline;
    const struct program *program = timeline->program;
    for (size_t i = 0; i < lives->first[program->buffers.count]; i++)
        lives->all[i] = (struct life){.begin = timeline->step_s, .end = -1};
    for (size_t i = 0; i < timeline->events.count; i++) {
        const struct timeline_event *event = &timeline->events.items[i];
        const struct instruction *instruction = &program->instructions.items[event->instruction];
        for (int k = 0; k < OPERANDS_MAX; k++)
            if (instruction->operands[k].buffer >= 0) add_use(lives, instruction->operands[k].buffer, event);
    }
    for (size_t b = 0; b < program->buffers.count; b++) {
        const struct buffer *buffer = &program->buffers.items[b];
        struct life *life = &lives->all[lives->first[b]];
        if (buffer->persistent) *life = (struct life){.begin = 0, .end = timeline->step_s};
        if (buffer_is_kept(buffer)) life->end = timeline->step_s;
    }
}

static enum status create_lives(const struct timeline *timeline, struct lives *out) {
    const struct program *program = timeline->program;
    *out = (struct lives){.timeline = timeline};
    out->first = mem_array(program->buffers.count + 1, sizeof *out->first);
    if (!out->first) return STATUS_FAILED;
    for (size_t b = 0; b < program->buffers.count; b++)
        out->first[b + 1] = out->first[b] + (size_t)lives_of(program, &program->buffers.items[b]);
    out->all = mem_array(out->first[program->buffers.count], sizeof *out->all);
    if (!out->all) return STATUS_FAILED;
    find_lives(out);
    return STATUS_OK;
}

static int compare_changes(const void *a, const void *b) {
    double x = ((const struct change *)a)->time_s, y = ((const struct change *)b)->time_s;
    return (x > y) - (x < y);
}

/* A tier's begins and ends of lives, by time; the end of the step is left out. Returns their number. */
static size_t list_changes(const struct lives *lives, enum tier tier, struct change *out) {
    const struct program *program = lives->timeline->program;
    size_t count = 0;
    for (size_t b = 0; b < program->buffers.count; b++) {
        const struct buffer *buffer = &program->buffers.items[b];
        for (size_t i = lives->first[b]; buffer->tier == tier && i < lives->first[b + 1]; i++) {
            const struct life *life = &lives->all[i];
            if (life->end < life->begin) continue;
            out[count++] = (struct change){life->begin, buffer->kind, buffer->bytes};
            if (life->end < lives->timeline->step_s)
                out[count++] = (struct change){life->end, buffer->kind, -buffer->bytes};
        }
    }
    qsort(out, count, sizeof *out, compare_changes);
    return count;
}

static enum status sum_changes(const struct change *changes, size_t count, struct memory_points *out) {
    struct memory_point point = {0};
    for (size_t i = 0; i < count; i++) {
        if (changes[i].time_s > point.time_s) {
            TRY(vec_push(&out->list, point));
            point.time_s = changes[i].time_s;
        }
        point.bytes[changes[i].kind] += changes[i].bytes;
    }
    return vec_push(&out->list, point);
}

enum status timeline_memory(const struct timeline *timeline, enum tier tier, struct memory_points *out) {
    struct lives lives;
    struct memory_points points = {0};
    struct change *changes = NULL;
    enum status status;
    TRY_GOTO(status, create_lives(timeline, &lives), done);
    changes = mem_array(2 * lives.first[timeline->program->buffers.count], sizeof *changes);
    TRY_GOTO(status, changes ? STATUS_OK : STATUS_FAILED, done);
    TRY_GOTO(status, sum_changes(changes, list_changes(&lives, tier, changes), &points), done);
    *out = points;
done:
    mem_free(changes);
    mem_free(lives.first);
    mem_free(lives.all);
    if (status != STATUS_OK) vec_free(&points.list);
    return status;
}
