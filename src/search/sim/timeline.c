#include "search/sim/timeline.h"

/* Counts the instructions of each stream in a section; `counts` has STREAMS_MAX entries. */
static void count_streams(const struct program *program, const struct section *section, size_t *counts) {
    for (int s = 0; s < STREAMS_MAX; s++)
        counts[s] = 0;
    for (int32_t i = section->first; i < section->first + section->count; i++)
        counts[program->instructions.items[i].stream]++;
}

static void find_begins(struct timeline *timeline) {
    const struct program *program = timeline->program;
    size_t counts[STREAMS_MAX], totals[STREAMS_MAX] = {0};
    for (size_t i = 0; i < program->sections.count; i++) {
        count_streams(program, &program->sections.items[i], counts);
        for (int s = 0; s < STREAMS_MAX; s++)
            totals[s] += counts[s] * (size_t)program->sections.items[i].repeat;
    }
    for (int s = 0; s < STREAMS_MAX; s++)
        timeline->begins[s + 1] = timeline->begins[s] + totals[s];
}

static void find_places(struct timeline *timeline) {
    const struct program *program = timeline->program;
    size_t next[STREAMS_MAX], counts[STREAMS_MAX];
    for (int s = 0; s < STREAMS_MAX; s++)
        next[s] = timeline->begins[s];
    for (size_t i = 0; i < program->sections.count; i++) {
        const struct section *section = &program->sections.items[i];
        count_streams(program, section, counts);
        for (int32_t k = section->first; k < section->first + section->count; k++) {
            int stream = program->instructions.items[k].stream;
            timeline->places[k] = (struct timeline_place){next[stream]++, counts[stream]};
        }
        for (int s = 0; s < STREAMS_MAX; s++)
            next[s] += counts[s] * (size_t)(section->repeat - 1);
    }
}

static void name_events(struct timeline *timeline) {
    const struct program *program = timeline->program;
    for (size_t i = 0; i < program->instructions.count; i++) {
        int64_t repeat = program->sections.items[program->instructions.items[i].section].repeat;
        for (int64_t repetition = 0; repetition < repeat; repetition++)
            *timeline_find(timeline, (int32_t)i, repetition) =
                (struct timeline_event){.instruction = (int32_t)i, .repetition = repetition, .start_s = 0};
    }
}

enum status timeline_create(const struct program *program, struct timeline *out) {
    struct timeline timeline = {.program = program};
    find_begins(&timeline);
    timeline.places = mem_array(program->instructions.count, sizeof *timeline.places);
    enum status status = timeline.places ? STATUS_OK : STATUS_FAILED;
    if (status == STATUS_OK) status = vec_reserve(&timeline.events, timeline.begins[STREAMS_MAX]);
    if (status != STATUS_OK) {
        timeline_free(&timeline);
        return status;
    }
    timeline.events.count = timeline.begins[STREAMS_MAX];
    find_places(&timeline);
    name_events(&timeline);
    *out = timeline;
    return STATUS_OK;
}

void timeline_free(struct timeline *timeline) {
    vec_free(&timeline->events);
    mem_free(timeline->places);
    *timeline = (struct timeline){0};
}

void timeline_end(struct timeline *timeline) {
    timeline->step_s = 0;
    for (size_t i = 0; i < timeline->events.count; i++)
        if (timeline->events.items[i].end_s > timeline->step_s) timeline->step_s = timeline->events.items[i].end_s;
}

void timeline_summarise(const struct timeline *timeline, struct timeline_stream *out) {
    for (int s = 0; s < timeline->program->streams; s++) {
        double busy = 0, end = 0;
        for (size_t i = timeline->begins[s]; i < timeline->begins[s + 1]; i++) {
            const struct timeline_event *event = &timeline->events.items[i];
            busy += event->end_s - event->start_s;
            end = event->end_s;
        }
        out[s] = (struct timeline_stream){timeline->program->roles[s], busy, end - busy};
    }
}

const struct timeline_event *timeline_cause(const struct timeline *timeline, const struct timeline_event *event) {
    const struct program *program = timeline->program;
    const struct instruction *instruction = &program->instructions.items[event->instruction];
    size_t index = (size_t)(event - timeline->events.items);
    const struct timeline_event *cause = index > timeline->begins[instruction->stream] ? event - 1 : NULL;
    for (int32_t w = 0; w < instruction->wait_count; w++) {
        int32_t waited = instruction->waits[w];
        int64_t required = program_issues_required(program, waited, event->instruction, 0, event->repetition);
        if (required == 0) continue;
        const struct timeline_event *other = timeline_find(timeline, waited, required - 1);
        if (!cause || other->end_s > cause->end_s) cause = other;
    }
    return cause;
}
