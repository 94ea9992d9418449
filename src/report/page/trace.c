#include "report/page/trace.h"

#include "base/json.h"
#include "search/sim/timeline.h"

/* Columns of a timeline's events (search/sim/timeline.h) that a trace shows. */
enum { STREAM, NAME, BLOCK, SECTION, MICRO_BATCH, PHASE, START_US, DURATION_US, BYTES, COLUMNS };

struct source {
    const char *file;
    int process;
    const json_t *names, *streams, *blocks, *sections, *phases, *events, *tiers;
    json_t *out; /* traceEvents */
};

json_t *trace_create(void) {
    json_t *trace = json_pack("{s:s, s:[]}", "displayTimeUnit", "ms", "traceEvents");
    if (!trace) (void)status_no_memory(0, "a trace's JSON");
    return trace;
}

static enum status append(struct source *source, json_t *event) {
    return json_array_append_new(source->out, event) == 0 ? STATUS_OK : status_no_memory(0, "a trace's JSON");
}

static enum status read_list(const char *file, const json_t *timeline, const char *field, const json_t **out) {
    *out = json_object_get(timeline, field);
    return json_is_array(*out) ? STATUS_OK : status_set(STATUS_BAD_INPUT, "%s: %s: must be a list", file, field);
}

static enum status read_source(const char *file, const json_t *timeline, struct source *out) {
    int64_t version = 0;
    out->file = file;
    TRY(json_read_version(file, timeline, TIMELINE_VERSION, &version));
    TRY(read_list(file, timeline, "names", &out->names));
    TRY(read_list(file, timeline, "streams", &out->streams));
    TRY(read_list(file, timeline, "blocks", &out->blocks));
    TRY(read_list(file, timeline, "sections", &out->sections));
    TRY(read_list(file, timeline, "phases", &out->phases));
    TRY(read_list(file, timeline, "events", &out->events));
    return read_list(file, timeline, "tiers", &out->tiers);
}

static enum status add_names(struct source *source, const char *kind) {
    size_t stream;
    const json_t *object;
    TRY(append(source, json_pack("{s:s, s:s, s:i, s:{s:s}}", "ph", "M", "name", "process_name", "pid", source->process,
                                 "args", "name", kind)));
    json_array_foreach(source->streams, stream, object) {
        const char *role = json_string_value(json_object_get(object, "role"));
        if (!role) return status_set(STATUS_BAD_INPUT, "%s: streams[%zu]: has no role", source->file, stream);
        TRY(append(source, json_pack("{s:s, s:s, s:i, s:i, s:{s:s}}", "ph", "M", "name", "thread_name", "pid",
                                     source->process, "tid", (int)stream, "args", "name", role)));
        TRY(append(source, json_pack("{s:s, s:s, s:i, s:i, s:{s:i}}", "ph", "M", "name", "thread_sort_index", "pid",
                                     source->process, "tid", (int)stream, "args", "sort_index", (int)stream)));
    }
    return STATUS_OK;
}

/* The text that a column's number stands for; "" for -1, NULL where it is no index of the list. */
static const char *text_of(const json_t *list, const json_t *index) {
    json_int_t at = json_integer_value(index);
    if (!json_is_integer(index) || at < -1) return NULL;
    return at < 0 ? "" : json_string_value(json_array_get(list, (size_t)at));
}

static enum status add_event(struct source *source, size_t index, const json_t *row) {
    const char *name = text_of(source->names, json_array_get(row, NAME));
    const char *block = text_of(source->blocks, json_array_get(row, BLOCK));
    const char *section = text_of(source->sections, json_array_get(row, SECTION));
    const char *phase = text_of(source->phases, json_array_get(row, PHASE));
    json_int_t stream = json_integer_value(json_array_get(row, STREAM));
    bool numbers = true;
    for (size_t i = 0; i < COLUMNS; i++)
        numbers &= json_is_number(json_array_get(row, i));
    bool whole = json_array_size(row) >= COLUMNS && numbers && name && block && section && phase && stream >= 0 &&
                 (size_t)stream < json_array_size(source->streams);
    if (!whole) return status_set(STATUS_BAD_INPUT, "%s: events[%zu]: is no event", source->file, index);
    return append(source, json_pack("{s:s, s:s, s:s, s:i, s:I, s:O, s:O, s:{s:s, s:s, s:O, s:O}}", "ph", "X", "name",
                                    name, "cat", phase[0] ? phase : "copy", "pid", source->process, "tid", stream, "ts",
                                    json_array_get(row, START_US), "dur", json_array_get(row, DURATION_US), "args",
                                    "block", block, "section", section, "micro_batch", json_array_get(row, MICRO_BATCH),
                                    "bytes", json_array_get(row, BYTES)));
}

static json_t *point_to_json(const json_t *kinds, const json_t *point) {
    json_t *object = json_object();
    int failed = !object;
    for (size_t i = 0; i < json_array_size(kinds); i++)
        failed |= json_object_set(object, json_string_value(json_array_get(kinds, i)), json_array_get(point, i + 1));
    if (!failed) return object;
    json_decref(object);
    return NULL;
}

static bool is_point(const json_t *kinds, const json_t *point) {
    bool whole = json_array_size(point) == json_array_size(kinds) + 1;
    for (size_t i = 0; i < json_array_size(point); i++)
        whole &= json_is_number(json_array_get(point, i)) != 0;
    return whole;
}

static enum status add_tier(struct source *source, size_t index, const json_t *tier) {
    const char *name = json_string_value(json_object_get(tier, "name"));
    const json_t *kinds = json_object_get(tier, "kinds"), *points = json_object_get(tier, "points"), *point;
    bool whole = name && json_is_array(kinds) && json_is_array(points);
    for (size_t i = 0; i < json_array_size(kinds); i++)
        whole &= json_is_string(json_array_get(kinds, i)) != 0;
    if (!whole) return status_set(STATUS_BAD_INPUT, "%s: tiers[%zu]: is no tier", source->file, index);
    size_t at;
    json_array_foreach(points, at, point) {
        if (!is_point(kinds, point))
            return status_set(STATUS_BAD_INPUT, "%s: tiers[%zu].points[%zu]: is no point", source->file, index, at);
        TRY(append(source,
                   json_pack("{s:s, s:o, s:i, s:O, s:o}", "ph", "C", "name", json_sprintf("%s memory", name), "pid",
                             source->process, "ts", json_array_get(point, 0), "args", point_to_json(kinds, point))));
    }
    return STATUS_OK;
}

enum status trace_add(json_t *trace, int process, const char *file, const json_t *timeline) {
    struct source source = {.process = process, .out = json_object_get(trace, "traceEvents")};
    const char *kind = NULL;
    size_t index;
    const json_t *item;
    TRY(read_source(file, timeline, &source));
    TRY(json_require(file, timeline, "kind"));
    TRY(json_read_string(file, timeline, "kind", &kind));
    TRY(add_names(&source, kind));
    json_array_foreach(source.events, index, item) TRY(add_event(&source, index, item));
    json_array_foreach(source.tiers, index, item) TRY(add_tier(&source, index, item));
    return STATUS_OK;
}
