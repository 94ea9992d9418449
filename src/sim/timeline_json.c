#include <math.h>
#include <string.h>

#include "base/json.h"
#include "sim/timeline.h"
#include "sim/timeline_memory.h"

/* What stands for instructions in the file. */
struct labels {
    const struct program *program;
    json_t *names;
    int32_t *name;          /* by instruction: index in names */
    int32_t *block, *phase; /* by group: those of its kernels; -1: it has none */
};

/* Kernels of one node share a name, and so do copies of one buffer. */
static enum status label_instructions(struct labels *labels) {
    const struct program *program = labels->program;
    size_t nodes = program->graph->nodes.count, keys = nodes + 2 * program->buffers.count;
    int32_t *known = mem_array(keys, sizeof *known); /* 1 + the name's index */
    int failed = !known;
    for (size_t i = 0; i < program->instructions.count && !failed; i++) {
        const struct instruction *instruction = &program->instructions.items[i];
        const struct node *node = instruction->node;
        int32_t buffer = instruction->operands[OP_INPUTS_MAX].buffer;
        bool zero = instruction->opcode == OPCODE_ZERO;
        size_t key = node ? (size_t)node->id : nodes + 2 * (size_t)buffer + zero;
        if (known[key] == 0) {
            const char *verb = node ? "" : zero ? "zero " : "copy ";
            failed = json_array_append_new(
                labels->names, json_sprintf("%s%s", verb, node ? node->name : program->buffers.items[buffer].name));
            known[key] = (int32_t)json_array_size(labels->names);
        }
        labels->name[i] = known[key] - 1;
    }
    mem_free(known);
    return failed ? status_no_memory(0, "a timeline's JSON") : STATUS_OK;
}

static void label_groups(struct labels *labels, size_t groups) {
    const struct program *program = labels->program;
    for (size_t g = 0; g < groups; g++)
        labels->block[g] = labels->phase[g] = -1;
    for (size_t i = program->instructions.count; i-- > 0;) {
        const struct instruction *instruction = &program->instructions.items[i];
        if (!instruction->node) continue;
        labels->block[instruction->group] = instruction->node->block;
        labels->phase[instruction->group] = (int32_t)instruction->node->phase;
    }
}

static void labels_free(struct labels *labels) {
    json_decref(labels->names);
    mem_free(labels->name);
    mem_free(labels->block);
    mem_free(labels->phase);
}

static enum status labels_create(const struct program *program, struct labels *out) {
    size_t groups = 0;
    for (size_t i = 0; i < program->instructions.count; i++)
        if ((size_t)program->instructions.items[i].group >= groups)
            groups = (size_t)program->instructions.items[i].group + 1;
    *out = (struct labels){.program = program,
                           .names = json_array(),
                           .name = mem_array(program->instructions.count, sizeof *out->name),
                           .block = mem_array(groups, sizeof *out->block),
                           .phase = mem_array(groups, sizeof *out->phase)};
    if (!out->names || !out->name || !out->block || !out->phase) return STATUS_FAILED;
    label_groups(out, groups);
    return label_instructions(out);
}

/* In steps of a nanosecond, which is what clocks give. */
static double microseconds(double seconds) { return round(seconds * 1e9) * 1e-3; }

static json_t *event_to_json(const struct labels *labels, const struct timeline_event *event) {
    const struct program *program = labels->program;
    const struct instruction *instruction = &program->instructions.items[event->instruction];
    const struct section *section = &program->sections.items[instruction->section];
    const struct node *node = instruction->node;
    int64_t grain = section->first_grain + event->run * section->grains + instruction->grain;
    int32_t buffer = instruction->operands[OP_INPUTS_MAX].buffer;
    int64_t moved = 0;
    if (instruction->opcode == OPCODE_COPY) moved = program_moved_bytes(program, program->buffers.items[buffer].bytes);
    if (instruction->opcode == OPCODE_ZERO) moved = instruction->operands[OP_INPUTS_MAX].bytes;
    return json_pack("[i, i, i, i, I, i, f, f, I]", instruction->stream, (int)labels->name[event->instruction],
                     (int)(node ? node->block : labels->block[instruction->group]), instruction->section,
                     (json_int_t)(section->first_grain < 0 ? -1 : grain),
                     node ? (int)node->phase : (int)labels->phase[instruction->group], microseconds(event->start_s),
                     microseconds(event->end_s - event->start_s), (json_int_t)moved);
}

static json_t *events_to_json(const struct timeline *timeline, const struct labels *labels) {
    json_t *events = json_array();
    int failed = !events;
    for (size_t i = 0; i < timeline->events.count && !failed; i++) {
        const struct timeline_event *event = &timeline->events.items[i];
        if (event->end_s > event->start_s) failed |= json_array_append_new(events, event_to_json(labels, event));
    }
    if (!failed) return events;
    json_decref(events);
    return NULL;
}

static json_t *streams_to_json(const struct timeline *timeline) {
    struct timeline_stream streams[STREAMS_MAX];
    json_t *list = json_array();
    int failed = !list;
    timeline_summarise(timeline, streams);
    for (int s = 0; s < timeline->program->streams; s++)
        failed |=
            json_array_append_new(list, json_pack("{s:s, s:f, s:f}", "role", stream_role_name(streams[s].role),
                                                  "busy_s", streams[s].busy_s, "waiting_s", streams[s].waiting_s));
    if (!failed) return list;
    json_decref(list);
    return NULL;
}

static json_t *point_to_json(const struct memory_point *point) {
    json_t *list = json_array();
    int failed = !list;
    failed |= json_array_append_new(list, json_real(microseconds(point->time_s)));
    for (int kind = 0; kind < BUFFER_KIND_COUNT; kind++)
        failed |= json_array_append_new(list, json_integer((json_int_t)point->bytes[kind]));
    if (!failed) return list;
    json_decref(list);
    return NULL;
}

static json_t *points_to_json(const struct timeline *timeline, enum tier tier) {
    struct memory_points points;
    if (timeline_memory(timeline, tier, &points) != STATUS_OK) return NULL;
    json_t *list = json_array();
    int failed = !list;
    for (size_t i = 0; i < points.list.count; i++)
        failed |= json_array_append_new(list, point_to_json(&points.list.items[i]));
    vec_free(&points.list);
    if (!failed) return list;
    json_decref(list);
    return NULL;
}

static json_t *kinds_to_json(void) {
    json_t *list = json_array();
    int failed = !list;
    for (int kind = 0; kind < BUFFER_KIND_COUNT; kind++)
        failed |= json_array_append_new(list, json_string(buffer_kind_name((enum buffer_kind)kind)));
    if (!failed) return list;
    json_decref(list);
    return NULL;
}

static json_t *tiers_to_json(const struct timeline *timeline) {
    json_t *list = json_array();
    int failed = !list;
    for (enum tier tier = 0; tier < TIER_COUNT; tier++) {
        int64_t bytes = timeline->program->tier_bytes[tier];
        if (bytes == 0) continue;
        failed |= json_array_append_new(list, json_pack("{s:s, s:I, s:o, s:o}", "name", tier_name(tier),
                                                        "program_bytes", (json_int_t)bytes, "kinds", kinds_to_json(),
                                                        "points", points_to_json(timeline, tier)));
    }
    if (!failed) return list;
    json_decref(list);
    return NULL;
}

static json_t *blocks_to_json(const struct graph *graph) {
    json_t *list = json_array();
    int failed = !list;
    for (size_t i = 0; i < graph->blocks.count; i++)
        failed |= json_array_append_new(list, json_string(graph->blocks.items[i]));
    if (!failed) return list;
    json_decref(list);
    return NULL;
}

static json_t *sections_to_json(const struct program *program) {
    json_t *list = json_array();
    int failed = !list;
    for (size_t i = 0; i < program->sections.count; i++)
        failed |= json_array_append_new(list, json_string(program->sections.items[i].name));
    if (!failed) return list;
    json_decref(list);
    return NULL;
}

static json_t *phases_to_json(void) {
    json_t *list = json_array();
    int failed = !list;
    for (int phase = 0; phase < PHASE_COUNT; phase++)
        failed |= json_array_append_new(list, json_string(phase_name((enum phase)phase)));
    if (!failed) return list;
    json_decref(list);
    return NULL;
}

json_t *timeline_to_json(const struct timeline *timeline) {
    const struct program *program = timeline->program;
    struct labels labels = {0};
    json_t *object = NULL;
    if (labels_create(program, &labels) == STATUS_OK)
        object = json_pack("{s:i, s:s, s:f, s:O, s:o, s:o, s:o, s:o, s:o, s:o}", "version", TIMELINE_VERSION, "kind",
                           timeline->measured ? "measured" : "predicted", "step_s", timeline->step_s, "names",
                           labels.names, "streams", streams_to_json(timeline), "events",
                           events_to_json(timeline, &labels), "blocks", blocks_to_json(program->graph), "sections",
                           sections_to_json(program), "phases", phases_to_json(), "tiers", tiers_to_json(timeline));
    labels_free(&labels);
    if (!object) (void)status_no_memory(0, "a timeline's JSON");
    return object;
}

enum status timeline_write(const struct timeline *timeline, const char *path) {
    enum { DIGITS = 12 }; /* nanoseconds of a step of a quarter of an hour */
    json_t *object = timeline_to_json(timeline);
    if (!object) return STATUS_FAILED;
    enum status status = json_write_compact(path, object, DIGITS);
    json_decref(object);
    return status;
}
