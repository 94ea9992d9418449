#include "report/page/timeline.h"

#include <math.h>

#include "base/json.h"
#include "report/page/page.h"
#include "search/sim/timeline.h"

/* Files of older versions lack the last field. */
enum { EVENT_FIELDS = 10, EVENT_FIELDS_MIN = 9, TIMELINE_STREAMS_MAX = 64 };

/* The length of a list of the file; BAD_INPUT where it is none. */
static enum status count_list(const char *name, const json_t *timeline, const char *field, int32_t *count) {
    const json_t *list = json_object_get(timeline, field);
    if (!json_is_array(list)) return status_set(STATUS_BAD_INPUT, "%s: %s: must be an array", name, field);
    if (json_array_size(list) > INT32_MAX) return status_set(STATUS_BAD_INPUT, "%s: %s: too long", name, field);
    *count = (int32_t)json_array_size(list);
    return STATUS_OK;
}

struct list_counts {
    int32_t streams, names, blocks, sections, phases, events;
};

static enum status count_lists(const char *name, const json_t *timeline, struct list_counts *out) {
    TRY(count_list(name, timeline, "streams", &out->streams));
    if (out->streams > TIMELINE_STREAMS_MAX)
        return status_set(STATUS_BAD_INPUT, "%s: streams: more than %d", name, TIMELINE_STREAMS_MAX);
    TRY(count_list(name, timeline, "names", &out->names));
    TRY(count_list(name, timeline, "blocks", &out->blocks));
    TRY(count_list(name, timeline, "sections", &out->sections));
    TRY(count_list(name, timeline, "phases", &out->phases));
    return count_list(name, timeline, "events", &out->events);
}

static enum status event_refused(const char *name, size_t event, const char *what) {
    return status_set(STATUS_BAD_INPUT, "%s: events[%zu]: %s", name, event, what);
}

static enum status read_event(const char *name, const json_t *array, size_t number, const struct list_counts *counts,
                              struct timeline_row *out) {
    double fields[EVENT_FIELDS] = {[EVENT_FIELDS - 1] = -1};
    size_t count = json_array_size(array);
    if (count < EVENT_FIELDS_MIN || count > EVENT_FIELDS)
        return event_refused(name, number, "must be an array of ten numbers");
    for (size_t i = 0; i < count; i++) {
        const json_t *value = json_array_get(array, i);
        if (!json_is_number(value)) return event_refused(name, number, "must be an array of ten numbers");
        fields[i] = json_number_value(value);
    }
    const int32_t max[] = {counts->streams, counts->names, counts->blocks, counts->sections, INT32_MAX, counts->phases};
    int32_t index[6];
    for (int i = 0; i < 6; i++) {
        if (!(fields[i] >= (i < 2 ? 0 : -1) && fields[i] < max[i]))
            return event_refused(name, number, "an index is outside its list");
        index[i] = (int32_t)fields[i];
    }
    if (!(fields[6] >= 0 && fields[7] >= 0 && fields[8] >= 0 && fields[8] < 9e18))
        return event_refused(name, number, "times and bytes must not be negative");
    if (!(fields[9] >= -1 && fields[9] < counts->events))
        return event_refused(name, number, "what it waited for is no event");
    *out = (struct timeline_row){.stream = index[0],
                                 .name = index[1],
                                 .block = index[2],
                                 .section = index[3],
                                 .micro_batch = index[4],
                                 .phase = index[5],
                                 .start_us = fields[6],
                                 .end_us = fields[6] + fields[7],
                                 .longest_us = fields[7],
                                 .bytes = (int64_t)fields[8],
                                 .events = 1,
                                 .first = (int32_t)number,
                                 .cause = (int32_t)fields[9]};
    return STATUS_OK;
}

static int by_stream_and_time(const void *left, const void *right) {
    const struct timeline_row *a = left, *b = right;
    if (a->stream != b->stream) return a->stream < b->stream ? -1 : 1;
    if (a->start_us < b->start_us || a->start_us > b->start_us) return a->start_us < b->start_us ? -1 : 1;
    return (a->first > b->first) - (a->first < b->first);
}

/* From the file's order to that of the rows, in what is counted by it. */
static enum status sort_rows(struct timeline_rows *rows) {
    struct timeline_row *items = rows->items.items;
    int32_t *places = mem_array(rows->items.count + 1, sizeof *places);
    if (!places) return STATUS_FAILED;
    qsort(items, rows->items.count, sizeof *items, by_stream_and_time);
    for (size_t i = 0; i < rows->items.count; i++)
        places[items[i].first] = (int32_t)i;
    for (size_t i = 0; i < rows->items.count; i++) {
        items[i].first = (int32_t)i;
        if (items[i].cause >= 0) items[i].cause = places[items[i].cause];
        rows->has_causes |= items[i].cause >= 0;
    }
    mem_free(places);
    return STATUS_OK;
}

enum status timeline_rows_read(const char *name, const json_t *timeline, struct timeline_rows *out) {
    struct list_counts counts = {0};
    TRY(count_lists(name, timeline, &counts));
    struct timeline_rows rows = {.streams = counts.streams, .phases = counts.phases};
    const json_t *list = json_object_get(timeline, "events");
    enum status status;
    TRY_GOTO(status, vec_reserve(&rows.items, (size_t)counts.events + 1), failed);
    for (size_t i = 0; i < (size_t)counts.events; i++) {
        struct timeline_row row;
        TRY_GOTO(status, read_event(name, json_array_get(list, i), i, &counts, &row), failed);
        rows.end_us = fmax(rows.end_us, row.end_us);
        TRY_GOTO(status, vec_push(&rows.items, row), failed);
    }
    TRY_GOTO(status, sort_rows(&rows), failed);
    *out = rows;
    return STATUS_OK;
failed:
    vec_free(&rows.items);
    return status;
}

static int by_end(const void *left, const void *right) {
    const struct timeline_row *a = *(struct timeline_row *const *)left, *b = *(struct timeline_row *const *)right;
    if (a->end_us > b->end_us || a->end_us < b->end_us) return a->end_us < b->end_us ? -1 : 1;
    return (a > b) - (a < b);
}

/* Of `count` events by end, how many ended by `time`. */
static size_t ended_by(struct timeline_row *const *events, size_t count, double time_us) {
    size_t low = 0;
    while (low < count) {
        size_t middle = low + (count - low) / 2;
        if (events[middle]->end_us <= time_us)
            low = middle + 1;
        else
            count = middle;
    }
    return low;
}

/* The event that let one begin, by time alone. `events`: all, by their ends. */
static struct timeline_row *guess_cause(const struct timeline_rows *rows, struct timeline_row *const *events,
                                        struct timeline_row *event) {
    /* Between two instructions of a stream that stands still for nothing a runner needs some microseconds. */
    double pause_us = fmin(20, 1e-3 * rows->end_us);
    struct timeline_row *before = event > rows->items.items && event[-1].stream == event->stream ? event - 1 : NULL;
    if (before && before->end_us >= event->start_us - pause_us) return before;
    size_t ended = ended_by(events, rows->items.count, event->start_us + 1e-3);
    while (ended > 0 && events[ended - 1]->chained) /* events without length end where they begin */
        ended--;
    return ended > 0 ? events[ended - 1] : NULL;
}

enum status timeline_rows_chain(struct timeline_rows *rows) {
    size_t count = rows->items.count;
    struct timeline_row **events = mem_array(count + 1, sizeof *events), *first = rows->items.items;
    if (!events) return STATUS_FAILED;
    for (size_t i = 0; i < count; i++)
        events[i] = &first[i];
    qsort(events, count, sizeof *events, by_end);
    struct timeline_row *event = count > 0 ? events[count - 1] : NULL;
    while (event && !event->chained) {
        event->chained = true;
        if (rows->has_causes)
            event = event->cause >= 0 ? &first[event->cause] : NULL;
        else
            event = guess_cause(rows, events, event);
    }
    mem_free(events);
    return STATUS_OK;
}

int32_t timeline_rows_find(const struct timeline_rows *rows, int32_t event) {
    size_t low = 0, high = rows->items.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (rows->items.items[middle].first <= event)
            low = middle + 1;
        else
            high = middle;
    }
    return event < 0 ? -1 : (int32_t)low - 1;
}

/* Whether a row may take in the next one at this length: what is longer keeps a row of its own, and so do, as long as
 * they can be told apart, other phases and the chain. */
static bool joins(const struct timeline_row *row, const struct timeline_row *next, double length_us, bool all) {
    if (row->stream != next->stream || next->start_us - row->end_us >= length_us) return false;
    if (next->end_us - row->start_us >= 2 * length_us) return false; /* else a row of short ones would have no end */
    if (row->longest_us >= length_us || next->longest_us >= length_us) return false;
    return all || (row->phase == next->phase && row->chained == next->chained);
}

static void join(struct timeline_row *row, const struct timeline_row *next) {
    if (next->longest_us > row->longest_us) {
        row->longest_us = next->longest_us;
        row->name = next->name;
        row->block = next->block;
        row->micro_batch = next->micro_batch;
    }
    row->end_us = fmax(row->end_us, next->end_us);
    row->bytes += next->bytes;
    row->events += next->events;
    row->chained |= next->chained;
}

static void join_below(struct timeline_rows *rows, double length_us, bool all) {
    size_t kept = 0;
    struct timeline_row *items = rows->items.items;
    for (size_t i = 1; i < rows->items.count; i++) {
        if (joins(&items[kept], &items[i], length_us, all))
            join(&items[kept], &items[i]);
        else
            items[++kept] = items[i];
    }
    if (rows->items.count > 0) rows->items.count = kept + 1;
}

void timeline_rows_thin(struct timeline_rows *rows, size_t max) {
    /* A screen shows a part in some thousands. Past a thousandth of the step, fewer rows matter more than what they
     * are; past the whole step all rows of a stream are one. */
    for (double part = 1.0 / 16384; rows->items.count > max && part < 4; part *= 2)
        join_below(rows, part * rows->end_us, part > 1.0 / 1024);
}

enum { TIMELINE_FILE_LIMIT_BYTES = 1 << 28, KINDS_MAX = 32, TIMELINE_BOUNDS_MAX = 6 };

/* Tenths of a microsecond are enough for a drawing, and short in the file. */
static json_t *short_us(double us) { return json_real(round(us * 10) / 10); }

static json_t *rows_to_json(const struct timeline_rows *rows) {
    json_t *events = json_array();
    int failed = !events;
    for (size_t i = 0; i < rows->items.count && !failed; i++) {
        const struct timeline_row *row = &rows->items.items[i];
        json_t *event =
            json_pack("[i,i,i,i,i,i,o,o,I,i,i,i]", row->stream, row->name, row->block, row->section, row->micro_batch,
                      row->phase, short_us(row->start_us), short_us(row->end_us - row->start_us),
                      (json_int_t)row->bytes, row->events, (int)row->chained, timeline_rows_find(rows, row->cause));
        failed |= json_array_append_new(events, event);
    }
    return page_json_made(events, failed);
}

struct chain_part {
    int32_t stream, phase;
    double seconds;
};

static int longest_first(const void *left, const void *right) {
    const struct chain_part *a = left, *b = right;
    return (a->seconds < b->seconds) - (a->seconds > b->seconds);
}

static json_t *parts_to_json(const json_t *timeline, const struct chain_part *parts, size_t count) {
    json_t *bounds = json_array();
    int failed = !bounds;
    for (size_t i = 0; i < count && i < TIMELINE_BOUNDS_MAX && parts[i].seconds > 0; i++) {
        json_t *stream = json_array_get(json_object_get(timeline, "streams"), (size_t)parts[i].stream);
        json_t *phase =
            parts[i].phase < 0 ? NULL : json_array_get(json_object_get(timeline, "phases"), (size_t)parts[i].phase);
        failed |= json_array_append_new(bounds, json_pack("{s:O, s:O?, s:f}", "role", json_object_get(stream, "role"),
                                                          "phase", phase, "seconds", parts[i].seconds));
    }
    return page_json_made(bounds, failed);
}

/* Seconds of the chain by stream and phase; index phases + 1 holds events of none. */
static json_t *bounds_to_json(const json_t *timeline, const struct timeline_rows *rows) {
    size_t phases = (size_t)rows->phases + 1, count = (size_t)rows->streams * phases;
    struct chain_part *parts = mem_array(count, sizeof *parts);
    if (!parts) return NULL;
    for (size_t i = 0; i < count; i++)
        parts[i] = (struct chain_part){(int32_t)(i / phases), (int32_t)(i % phases) - 1, 0};
    for (size_t i = 0; i < rows->items.count; i++) {
        const struct timeline_row *row = &rows->items.items[i];
        if (row->chained)
            parts[(size_t)row->stream * phases + (size_t)(row->phase + 1)].seconds +=
                1e-6 * (row->end_us - row->start_us);
    }
    qsort(parts, count, sizeof *parts, longest_first);
    json_t *bounds = parts_to_json(timeline, parts, count);
    mem_free(parts);
    return bounds;
}

/* A point's time and the sum of its bytes; negative when it is malformed. */
static double point_bytes(const json_t *point, size_t kinds) {
    if (!json_is_array(point) || json_array_size(point) != kinds + 1) return -1;
    double sum = 0;
    for (size_t i = 0; i <= kinds; i++) {
        double value = json_number_value(json_array_get(point, i));
        if (!json_is_number(json_array_get(point, i)) || value < 0) return -1;
        if (i > 0) sum += value;
    }
    return sum;
}

/* The highest and the lowest of each `bucket` neighbours, in their order. */
static int add_extremes(json_t *kept, const json_t *points, size_t from, size_t to, size_t kinds) {
    size_t high = from, low = from;
    for (size_t i = from; i < to; i++) {
        double bytes = point_bytes(json_array_get(points, i), kinds);
        if (bytes > point_bytes(json_array_get(points, high), kinds)) high = i;
        if (bytes < point_bytes(json_array_get(points, low), kinds)) low = i;
    }
    int failed = json_array_append(kept, json_array_get(points, high < low ? high : low));
    return high == low ? failed : failed | json_array_append(kept, json_array_get(points, high < low ? low : high));
}

static json_t *thin_points(const json_t *points, size_t kinds) {
    json_t *kept = json_array();
    size_t count = json_array_size(points);
    size_t bucket = count <= PAGE_TIMELINE_POINTS ? 1 : (2 * count + PAGE_TIMELINE_POINTS - 1) / PAGE_TIMELINE_POINTS;
    int failed = !kept;
    for (size_t from = 0; from < count && !failed; from += bucket)
        failed |= add_extremes(kept, points, from, from + bucket < count ? from + bucket : count, kinds);
    return page_json_made(kept, failed);
}

static enum status make_tier(const char *name, size_t number, const json_t *tier, json_t **out) {
    char where[512];
    snprintf(where, sizeof where, "%s: tiers[%zu]", name, number);
    if (!json_is_object(tier)) return status_set(STATUS_BAD_INPUT, "%s: must be an object", where);
    const json_t *points = json_object_get(tier, "points"), *kinds = json_object_get(tier, "kinds");
    int64_t bytes = 0;
    const char *title = NULL;
    TRY(json_require(where, tier, "name"));
    TRY(json_read_string(where, tier, "name", &title));
    TRY(json_require(where, tier, "program_bytes"));
    TRY(json_read_int(where, tier, "program_bytes", 0, INT64_MAX, &bytes));
    if (!json_is_array(kinds) || json_array_size(kinds) > KINDS_MAX)
        return status_set(STATUS_BAD_INPUT, "%s: kinds: must be an array of at most %d names", where, KINDS_MAX);
    if (!json_is_array(points)) return status_set(STATUS_BAD_INPUT, "%s: points: must be an array", where);
    for (size_t i = 0; i < json_array_size(points); i++)
        if (point_bytes(json_array_get(points, i), json_array_size(kinds)) < 0)
            return status_set(STATUS_BAD_INPUT, "%s: points[%zu]: must be a time and the bytes of each kind", where, i);
    *out = json_pack("{s:s, s:I, s:O, s:o}", "name", title, "program_bytes", (json_int_t)bytes, "kinds", kinds,
                     "points", thin_points(points, json_array_size(kinds)));
    return *out ? STATUS_OK : status_no_memory(0, "a tier of the page");
}

static enum status make_tiers(const char *name, const json_t *timeline, json_t **out) {
    const json_t *tiers = json_object_get(timeline, "tiers");
    if (!json_is_array(tiers)) return status_set(STATUS_BAD_INPUT, "%s: tiers: must be an array", name);
    json_t *made = json_array();
    enum status status = made ? STATUS_OK : status_no_memory(0, "tiers");
    for (size_t i = 0; i < json_array_size(tiers) && status == STATUS_OK; i++) {
        json_t *tier = NULL;
        status = make_tier(name, i, json_array_get(tiers, i), &tier);
        if (status == STATUS_OK && json_array_append_new(made, tier) != 0) status = status_no_memory(0, "tiers");
    }
    if (status == STATUS_OK)
        *out = made;
    else
        json_decref(made);
    return status;
}

/* What the lists hold besides the events: texts, and the streams' sums. */
static enum status check_lists(const char *name, const json_t *timeline) {
    static const char *const texts[] = {"names", "moves", "blocks", "sections", "phases"};
    const json_t *value;
    size_t i;
    const json_t *moves = json_object_get(timeline, "moves");
    if (moves && json_array_size(moves) != json_array_size(json_object_get(timeline, "names")))
        return status_set(STATUS_BAD_INPUT, "%s: moves: must be as long as names", name);
    for (size_t list = 0; list < sizeof texts / sizeof *texts; list++)
        json_array_foreach(json_object_get(timeline, texts[list]), i,
                           value) if (!json_is_string(value)) return status_set(STATUS_BAD_INPUT,
                                                                                "%s: %s[%zu]: must be a string", name,
                                                                                texts[list], i);
    json_array_foreach(json_object_get(timeline, "streams"), i, value) {
        char where[512];
        const char *role;
        double seconds;
        snprintf(where, sizeof where, "%s: streams[%zu]", name, i);
        if (!json_is_object(value)) return status_set(STATUS_BAD_INPUT, "%s: must be an object", where);
        TRY(json_require(where, value, "role"));
        TRY(json_read_string(where, value, "role", &role));
        TRY(json_read_double(where, value, "busy_s", 0, 1e12, &seconds));
        TRY(json_read_double(where, value, "waiting_s", 0, 1e12, &seconds));
    }
    return STATUS_OK;
}

/* Operations between ranks, where the step has such. */
static enum status check_communication(const char *name, const json_t *timeline) {
    static const char *const numbers[] = {"seconds", "hidden_s", "in_node_bytes", "across_bytes", "read_bytes"};
    const json_t *object = json_object_get(timeline, "communication");
    char where[512];
    double value;
    if (!object) return STATUS_OK;
    snprintf(where, sizeof where, "%s: communication", name);
    if (!json_is_object(object)) return status_set(STATUS_BAD_INPUT, "%s: must be an object", where);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        TRY(json_require(where, object, numbers[i]));
        TRY(json_read_double(where, object, numbers[i], 0, 1e18, &value));
    }
    return STATUS_OK;
}

static enum status assemble(const json_t *timeline, const struct timeline_rows *rows, double step_s, json_t *tiers,
                            json_t **out) {
    json_t *bounds = bounds_to_json(timeline, rows); /* from all events, so before they are thinned */
    json_t *step = json_object_get(timeline, "step");
    struct timeline_rows thin = *rows;
    timeline_rows_thin(&thin, PAGE_TIMELINE_EVENTS);
#define LIST(key) key, json_object_get(timeline, key)
    *out = json_pack("{s:f, s:O*, s:I, s:o, s:o, s:O, s:O*, s:O, s:O, s:O, s:O, s:O*, s:O}", "step_s", step_s, "step",
                     json_is_integer(step) ? step : NULL, "recorded",
                     (json_int_t)json_array_size(json_object_get(timeline, "events")), "bounds", bounds, "events",
                     rows_to_json(&thin), LIST("names"), LIST("moves"), LIST("streams"), LIST("blocks"),
                     LIST("sections"), LIST("phases"), LIST("communication"), "tiers", tiers);
#undef LIST
    return *out ? STATUS_OK : status_no_memory(0, "the page's timeline");
}

enum status page_timeline_make(const char *name, const json_t *timeline, json_t **out) {
    int64_t version = 0;
    double step_s = 0;
    json_t *tiers = NULL;
    struct timeline_rows rows;
    TRY(json_read_version(name, timeline, TIMELINE_VERSION, &version));
    TRY(json_require(name, timeline, "step_s"));
    TRY(json_read_double(name, timeline, "step_s", 0, 1e12, &step_s));
    TRY(timeline_rows_read(name, timeline, &rows));
    enum status status;
    TRY_GOTO(status, check_lists(name, timeline), done);
    TRY_GOTO(status, check_communication(name, timeline), done);
    TRY_GOTO(status, timeline_rows_chain(&rows), done);
    TRY_GOTO(status, make_tiers(name, timeline, &tiers), done);
    TRY_GOTO(status, assemble(timeline, &rows, step_s, tiers, out), done);
done:
    json_decref(tiers);
    vec_free(&rows.items);
    return status;
}

enum status page_timeline_read(const char *path, json_t **out) {
    json_t *object;
    TRY(json_read_object(path, TIMELINE_FILE_LIMIT_BYTES, &object));
    enum status status = page_timeline_make(path, object, out);
    json_decref(object);
    return status;
}

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
    return page_json_made(object, failed);
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
