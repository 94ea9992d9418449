#include "search/sim/timeline.h"

#include <math.h>

#include "base/json.h"
#include "search/sim/step_summary.h"

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

/* An interval of time in which a buffer is live. */
struct life {
    double begin, end; /* end before begin: never used */
};

struct change {
    double time_s;
    enum buffer_kind kind;
    int64_t bytes;
};

struct lives {
    struct scratch memory;
    const struct timeline *timeline;
    size_t *first; /* by buffer: its first life; one more at the end */
    struct life *all;
};

static const struct section *section_at(const struct program *program, int32_t instruction) {
    return &program->sections.items[program->instructions.items[instruction].section];
}

/* A buffer that is used only within one section has a life in each repetition. */
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
    TRY(scratch_items(&out->memory, &out->first, program->buffers.count + 1));
    for (size_t b = 0; b < program->buffers.count; b++)
        out->first[b + 1] = out->first[b] + (size_t)lives_of(program, &program->buffers.items[b]);
    TRY(scratch_items(&out->memory, &out->all, out->first[program->buffers.count]));
    find_lives(out);
    return STATUS_OK;
}

ORDER_BY(compare_changes, struct change, item->time_s)

/* A tier's begins and ends of lives, by time, without the end of the step. Returns their number. */
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
    struct change *changes = NULL;
    *out = (struct memory_points){0};
    enum status status = create_lives(timeline, &lives);
    if (status == STATUS_OK)
        changes = scratch_alloc(&lives.memory, 2 * lives.first[timeline->program->buffers.count], sizeof *changes);
    status = changes ? sum_changes(changes, list_changes(&lives, tier, changes), out) : STATUS_FAILED;
    scratch_free(&lives.memory);
    if (status != STATUS_OK) vec_free(&out->list);
    return status;
}

/* ---- timelines as JSON: timeline.json ---- */

/* Names and numbers of instructions in the file. */
struct labels {
    struct scratch memory;
    const struct program *program;
    json_t *names, *moves;  /* by name */
    int32_t *name;          /* by instruction: index in names */
    bool *again;            /* by instruction: recomputation, that is, an earlier forward in its section has the same
                             * micro-batch */
    int32_t *block, *phase; /* by group: those of its kernels; -1: it has none */
};
/* One past the graph's phases, in the list of phases. */
enum { PHASE_RECOMPUTATION = PHASE_COUNT };

/* The operand that an instruction other than a kernel writes or, if it sends to other ranks, reads. */
static const struct operand *data_of(const struct instruction *instruction) {
    const struct operand *written = &instruction->operands[OP_INPUTS_MAX];
    return written->buffer >= 0 ? written : &instruction->operands[0];
}

static json_t *move_of(const struct labels *labels, const struct instruction *instruction) {
    const struct buffer *buffers = labels->program->buffers.items;
    return json_string(instruction->node ? "" : buffer_kind_name(buffers[data_of(instruction)->buffer].kind));
}

/* Kernels of one node share a name, and so do copies of one buffer. */
static enum status label_instructions(struct labels *labels) {
    const struct program *program = labels->program;
    size_t nodes = program->graph->nodes.count, keys = nodes + OPCODE_ELSEWHERE * program->buffers.count;
    int32_t *known; /* 1 + the name's index */
    int failed = scratch_items(&labels->memory, &known, keys) != STATUS_OK;
    for (size_t i = 0; i < program->instructions.count && !failed; i++) {
        const struct instruction *instruction = &program->instructions.items[i];
        const struct node *node = instruction->node;
        int32_t buffer = node ? -1 : data_of(instruction)->buffer;
        size_t key = node ? (size_t)node->id : nodes + OPCODE_ELSEWHERE * (size_t)buffer + instruction->opcode;
        if (known[key] == 0) {
            bool kernel = instruction->opcode == OPCODE_KERNEL;
            const char *name = node ? node->name : program->buffers.items[buffer].name;
            failed = json_array_append_new(labels->names,
                                           kernel ? json_string(name)
                                                  : json_sprintf("%s %s", opcode_name(instruction->opcode), name));
            failed |= json_array_append_new(labels->moves, move_of(labels, instruction));
            known[key] = (int32_t)json_array_size(labels->names);
        }
        labels->name[i] = known[key] - 1;
    }
    return failed ? status_no_memory(0, "a timeline's JSON") : STATUS_OK;
}

/* A section's instructions are in the order of issue. So the first forward of a node for a micro-batch is the original,
 * and each further one is recomputation. */
static enum status label_again(struct labels *labels) {
    const struct program *program = labels->program;
    int64_t micro_batches = 1;
    for (size_t i = 0; i < program->instructions.count; i++)
        if (program->instructions.items[i].micro_batch >= micro_batches)
            micro_batches = program->instructions.items[i].micro_batch + 1;
    int32_t *seen; /* 1 + the section */
    TRY(scratch_items(&labels->memory, &seen, program->graph->nodes.count * (size_t)micro_batches));
    for (size_t i = 0; i < program->instructions.count; i++) {
        const struct instruction *instruction = &program->instructions.items[i];
        if (!instruction->node || instruction->opcode == OPCODE_TAKE || instruction->micro_batch < 0 ||
            instruction->node->phase != PHASE_FORWARD)
            continue;
        int32_t *last = &seen[(int64_t)instruction->node->id * micro_batches + instruction->micro_batch];
        labels->again[i] = *last == instruction->section + 1;
        *last = instruction->section + 1;
    }
    return STATUS_OK;
}

static int32_t phase_of(const struct labels *labels, size_t instruction) {
    if (labels->again[instruction]) return PHASE_RECOMPUTATION;
    return (int32_t)labels->program->instructions.items[instruction].node->phase;
}

static void label_groups(struct labels *labels, size_t groups) {
    const struct program *program = labels->program;
    for (size_t g = 0; g < groups; g++)
        labels->block[g] = labels->phase[g] = -1;
    for (size_t i = program->instructions.count; i-- > 0;) {
        const struct instruction *instruction = &program->instructions.items[i];
        if (!instruction->node) continue;
        labels->block[instruction->group] = instruction->node->block;
        labels->phase[instruction->group] = phase_of(labels, i);
    }
}

static void labels_free(struct labels *labels) {
    json_decref(labels->names);
    json_decref(labels->moves);
    scratch_free(&labels->memory);
}

static enum status labels_create(const struct program *program, struct labels *out) {
    size_t groups = 0;
    for (size_t i = 0; i < program->instructions.count; i++)
        if ((size_t)program->instructions.items[i].group >= groups)
            groups = (size_t)program->instructions.items[i].group + 1;
    *out = (struct labels){.program = program, .names = json_array(), .moves = json_array()};
    if (!out->names || !out->moves) return STATUS_FAILED;
    TRY(scratch_items(&out->memory, &out->again, program->instructions.count));
    TRY(scratch_items(&out->memory, &out->name, program->instructions.count));
    TRY(scratch_items(&out->memory, &out->block, groups));
    TRY(scratch_items(&out->memory, &out->phase, groups));
    TRY(label_again(out));
    label_groups(out, groups);
    return label_instructions(out);
}

/* Rounded to nanoseconds, the resolution of clocks. */
static double microseconds(double seconds) { return round(seconds * 1e9) * 1e-3; }

static bool has_length(const struct timeline_event *event) { return event->end_s > event->start_s; }

/* The file's index of an event's cause; -1: none. The file omits events that take no time and uses their own cause
 * instead. `places`: by event, its index in the file. */
static int64_t cause_place(const struct timeline *timeline, const struct timeline_event *event, const int64_t *places) {
    do {
        event = timeline_cause(timeline, event);
    } while (event && !has_length(event));
    return event ? places[event - timeline->events.items] : -1;
}

static json_t *event_to_json(const struct labels *labels, const struct timeline_event *event, int64_t cause) {
    const struct program *program = labels->program;
    const struct instruction *instruction = &program->instructions.items[event->instruction];
    const struct section *section = &program->sections.items[instruction->section];
    const struct node *node = instruction->node;
    int64_t micro_batch =
        section->first_micro_batch + event->repetition * section->micro_batches + instruction->micro_batch;
    int32_t buffer = instruction->operands[OP_INPUTS_MAX].buffer;
    int64_t moved = 0;
    if (instruction->opcode == OPCODE_COPY)
        moved = program_moved_bytes(program, program->buffers.items[buffer].bytes);
    else if (instruction->opcode != OPCODE_KERNEL)
        moved = data_of(instruction)->bytes;
    return json_pack("[i, i, i, i, I, i, f, f, I, I]", instruction->stream, (int)labels->name[event->instruction],
                     (int)(node ? node->block : labels->block[instruction->group]), instruction->section,
                     (json_int_t)(section->first_micro_batch < 0 ? -1 : micro_batch),
                     (int)(node ? phase_of(labels, (size_t)event->instruction) : labels->phase[instruction->group]),
                     microseconds(event->start_s), microseconds(event->end_s - event->start_s), (json_int_t)moved,
                     (json_int_t)cause);
}

static json_t *events_to_json(const struct timeline *timeline, const struct labels *labels) {
    json_t *events = json_array();
    int64_t *places = mem_array(timeline->events.count + 1, sizeof *places), count = 0;
    int failed = !events || !places;
    for (size_t i = 0; i < timeline->events.count && !failed; i++)
        if (has_length(&timeline->events.items[i])) places[i] = count++;
    for (size_t i = 0; i < timeline->events.count && !failed; i++) {
        const struct timeline_event *event = &timeline->events.items[i];
        if (!has_length(event)) continue;
        failed |= json_array_append_new(events, event_to_json(labels, event, cause_place(timeline, event, places)));
    }
    mem_free(places);
    return json_unless(failed, events);
}

json_t *timeline_streams_to_json(const struct timeline_stream *streams, int count) {
    json_t *list = json_array();
    int failed = !list;
    for (int s = 0; s < count; s++)
        failed |=
            json_array_append_new(list, json_pack("{s:s, s:f, s:f}", "role", stream_role_name(streams[s].role),
                                                  "busy_s", streams[s].busy_s, "waiting_s", streams[s].waiting_s));
    return json_unless(failed, list);
}

static json_t *point_to_json(const struct memory_point *point) {
    json_t *list = json_array();
    int failed = !list;
    failed |= json_array_append_new(list, json_real(microseconds(point->time_s)));
    for (int kind = 0; kind < BUFFER_KIND_COUNT; kind++)
        failed |= json_array_append_new(list, json_integer((json_int_t)point->bytes[kind]));
    return json_unless(failed, list);
}

static json_t *points_to_json(const struct timeline *timeline, enum tier tier) {
    struct memory_points points;
    if (timeline_memory(timeline, tier, &points) != STATUS_OK) return NULL;
    json_t *list = json_array();
    int failed = !list;
    for (size_t i = 0; i < points.list.count; i++)
        failed |= json_array_append_new(list, point_to_json(&points.list.items[i]));
    vec_free(&points.list);
    return json_unless(failed, list);
}

/* The names of numbers from 0 on. */
static json_t *names_to_json(const char *(*name)(const void *payload, int number), const void *payload, int count) {
    json_t *list = json_array();
    int failed = !list;
    for (int i = 0; i < count; i++)
        failed |= json_array_append_new(list, json_string(name(payload, i)));
    return json_unless(failed, list);
}

static const char *name_kind(const void *payload, int kind) {
    (void)payload;
    return buffer_kind_name((enum buffer_kind)kind);
}
static const char *name_block(const void *graph, int block) {
    return ((const struct graph *)graph)->blocks.items[block];
}
static const char *name_section(const void *program, int section) {
    return ((const struct program *)program)->sections.items[section].name;
}
static const char *name_phase(const void *payload, int phase) {
    (void)payload;
    return phase == PHASE_RECOMPUTATION ? "recomputation" : phase_name((enum phase)phase);
}

static json_t *tiers_to_json(const struct timeline *timeline) {
    json_t *list = json_array();
    int failed = !list;
    for (enum tier tier = 0; tier < TIER_COUNT; tier++) {
        int64_t bytes = timeline->program->tier_bytes[tier];
        if (bytes == 0) continue;
        failed |= json_array_append_new(list, json_pack("{s:s, s:I, s:o, s:o}", "name", tier_name(tier),
                                                        "program_bytes", (json_int_t)bytes, "kinds",
                                                        names_to_json(name_kind, NULL, BUFFER_KIND_COUNT), "points",
                                                        points_to_json(timeline, tier)));
    }
    return json_unless(failed, list);
}

json_t *timeline_to_json(const struct timeline *timeline) {
    const struct program *program = timeline->program;
    struct labels labels = {0};
    struct timeline_stream streams[STREAMS_MAX];
    json_t *object = NULL;
    timeline_summarise(timeline, streams);
    if (labels_create(program, &labels) == STATUS_OK)
        object =
            json_pack("{s:i, s:s, s:f, s:O, s:O, s:o, s:o, s:o, s:o, s:o, s:o}", "version", TIMELINE_VERSION, "kind",
                      timeline->measured ? "measured" : "predicted", "step_s", timeline->step_s, "names", labels.names,
                      "moves", labels.moves, "streams", timeline_streams_to_json(streams, program->streams), "events",
                      events_to_json(timeline, &labels), "blocks",
                      names_to_json(name_block, program->graph, (int)program->graph->blocks.count), "sections",
                      names_to_json(name_section, program, (int)program->sections.count), "phases",
                      names_to_json(name_phase, NULL, PHASE_RECOMPUTATION + 1), "tiers", tiers_to_json(timeline));
    labels_free(&labels);
    int failed = object && timeline->step > 0
                     ? json_object_update_new(object, json_pack("{s:I, s:f}", "step", (json_int_t)timeline->step,
                                                                "wall_s", timeline->wall_s))
                     : 0;
    failed |= object && step_summary_add_communication(timeline, object) != STATUS_OK;
    return json_made(failed, object, "a timeline's JSON");
}

enum status timeline_write(const struct timeline *timeline, const char *path) {
    enum { DIGITS = 12 }; /* nanoseconds of a step of a quarter of an hour */
    json_auto_t *object = timeline_to_json(timeline);
    if (!object) return STATUS_FAILED;
    return json_write_compact(path, object, DIGITS);
}
