#include "report/page/timeline.h"

#include <math.h>

#include "base/json.h"
#include "report/page/page.h"
#include "search/sim/timeline.h"

/* Older files lack the last field. */
enum { EVENT_FIELDS = 10, EVENT_FIELDS_MIN = 9, TIMELINE_STREAMS_MAX = 64 };

/* The length of a list in the file; BAD_INPUT if it is no list. */
static enum status count_list(const char *name, const json_t *timeline, const char *field, int32_t *count) {
    const json_t *list = json_object_get(timeline, field);
    if (!json_is_array(list)) return status_set(STATUS_BAD_INPUT, "%s: %s: must be an array", name, field);
    if (json_array_size(list) > INT32_MAX) return status_set(STATUS_BAD_INPUT, "%s: %s: too long", name, field);
    *count = (int32_t)json_array_size(list);
    return STATUS_OK;
}

/* The index fields of an event, each into its own list. */
enum { STREAM, NAME, BLOCK, SECTION, MICRO_BATCH, PHASE, INDICES };
static const char *const lists[INDICES] = {
    [STREAM] = "streams", [NAME] = "names", [BLOCK] = "blocks", [SECTION] = "sections", [PHASE] = "phases"};

struct list_counts {
    int32_t of[INDICES], events;
};

static enum status count_lists(const char *name, const json_t *timeline, struct list_counts *out) {
    out->of[MICRO_BATCH] = INT32_MAX;
    for (int i = 0; i < INDICES; i++)
        if (lists[i]) TRY(count_list(name, timeline, lists[i], &out->of[i]));
    if (out->of[STREAM] > TIMELINE_STREAMS_MAX)
        return status_set(STATUS_BAD_INPUT, "%s: streams: more than %d", name, TIMELINE_STREAMS_MAX);
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
    int32_t index[INDICES];
    for (int i = 0; i < INDICES; i++) {
        if (!(fields[i] >= (i <= NAME ? 0 : -1) && fields[i] < counts->of[i]))
            return event_refused(name, number, "an index is outside its list");
        index[i] = (int32_t)fields[i];
    }
    if (!(fields[6] >= 0 && fields[7] >= 0 && fields[8] >= 0 && fields[8] < 9e18))
        return event_refused(name, number, "times and bytes must not be negative");
    if (!(fields[9] >= -1 && fields[9] < counts->events))
        return event_refused(name, number, "what it waited for is no event");
    *out = (struct timeline_row){.stream = index[STREAM],
                                 .name = index[NAME],
                                 .block = index[BLOCK],
                                 .section = index[SECTION],
                                 .micro_batch = index[MICRO_BATCH],
                                 .phase = index[PHASE],
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

/* Converts indices from the file's order to that of the rows. */
static enum status sort_rows(struct timeline_rows *rows) {
    struct timeline_row *items = rows->items.items;
    AUTO_FREE int32_t *places = mem_array(rows->items.count + 1, sizeof *places);
    if (!places) return STATUS_FAILED;
    qsort(items, rows->items.count, sizeof *items, by_stream_and_time);
    for (size_t i = 0; i < rows->items.count; i++)
        places[items[i].first] = (int32_t)i;
    for (size_t i = 0; i < rows->items.count; i++) {
        items[i].first = (int32_t)i;
        if (items[i].cause >= 0) items[i].cause = places[items[i].cause];
        rows->has_causes |= items[i].cause >= 0;
    }
    return STATUS_OK;
}

static void rows_free(struct timeline_rows *rows) { vec_free(&rows->items); }

enum status timeline_rows_read(const char *name, const json_t *timeline, struct timeline_rows *out) {
    struct list_counts counts = {0};
    TRY(count_lists(name, timeline, &counts));
    AUTO(rows_free) struct timeline_rows rows = {.streams = counts.of[STREAM], .phases = counts.of[PHASE]};
    const json_t *list = json_object_get(timeline, "events");
    TRY(vec_reserve(&rows.items, (size_t)counts.events + 1));
    for (size_t i = 0; i < (size_t)counts.events; i++) {
        struct timeline_row row;
        TRY(read_event(name, json_array_get(list, i), i, &counts, &row));
        rows.end_us = fmax(rows.end_us, row.end_us);
        TRY(vec_push(&rows.items, row));
    }
    TRY(sort_rows(&rows));
    *out = TAKE(rows);
    return STATUS_OK;
}

static int by_end(const void *left, const void *right) {
    const struct timeline_row *a = *(struct timeline_row *const *)left, *b = *(struct timeline_row *const *)right;
    if (a->end_us > b->end_us || a->end_us < b->end_us) return a->end_us < b->end_us ? -1 : 1;
    return (a > b) - (a < b);
}

/* Number of `count` events, sorted by end, that ended by `time`. */
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

/* Guesses the cause of an event by time alone. `events`: all, by their ends. */
static struct timeline_row *guess_cause(const struct timeline_rows *rows, struct timeline_row *const *events,
                                        struct timeline_row *event) {
    /* A stream that waits for nothing still pauses some microseconds between two instructions. */
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
    struct timeline_row *first = rows->items.items;
    AUTO_FREE struct timeline_row **events = mem_array(count + 1, sizeof *events);
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

/* Whether a row may absorb the next one at this length. Longer events keep their own rows. So do other phases and the
 * chain, as long as they can be distinguished. */
static bool joins(const struct timeline_row *row, const struct timeline_row *next, double length_us, bool all) {
    if (row->stream != next->stream || next->start_us - row->end_us >= length_us) return false;
    if (next->end_us - row->start_us >= 2 * length_us) return false; /* bounds the length of joined events */
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
    /* A screen resolves some thousandths. Beyond a thousandth of the step, fewer rows matter more than their kinds.
     * Beyond the whole step, each stream becomes one row. */
    for (double part = 1.0 / 16384; rows->items.count > max && part < 4; part *= 2)
        join_below(rows, part * rows->end_us, part > 1.0 / 1024);
}

enum { TIMELINE_FILE_LIMIT_BYTES = 1 << 28, KINDS_MAX = 32, TIMELINE_BOUNDS_MAX = 6 };

/* Tenths of a microsecond suffice for a drawing, and are short in the file. */
static json_t *short_us(double us) { return json_real(round(us * 10) / 10); }

static json_t *rows_to_json(const struct timeline_rows *rows) {
    json_t *events = json_array();
    for (size_t i = 0; i < rows->items.count; i++) {
        const struct timeline_row *row = &rows->items.items[i];
        json_push(&events, json_pack("[i,i,i,i,i,i,o,o,I,i,i,i]", row->stream, row->name, row->block, row->section,
                                     row->micro_batch, row->phase, short_us(row->start_us),
                                     short_us(row->end_us - row->start_us), (json_int_t)row->bytes, row->events,
                                     (int)row->chained, timeline_rows_find(rows, row->cause)));
    }
    return events;
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
    for (size_t i = 0; i < count && i < TIMELINE_BOUNDS_MAX && parts[i].seconds > 0; i++) {
        json_t *stream = json_array_get(json_object_get(timeline, "streams"), (size_t)parts[i].stream);
        json_t *phase =
            parts[i].phase < 0 ? NULL : json_array_get(json_object_get(timeline, "phases"), (size_t)parts[i].phase);
        json_push(&bounds, json_pack("{s:O, s:O?, s:f}", "role", json_object_get(stream, "role"), "phase", phase,
                                     "seconds", parts[i].seconds));
    }
    return bounds;
}

/* Seconds of the chain by stream and phase; index phases + 1 has events of none. */
static json_t *bounds_to_json(const json_t *timeline, const struct timeline_rows *rows) {
    size_t phases = (size_t)rows->phases + 1, count = (size_t)rows->streams * phases;
    AUTO_FREE struct chain_part *parts = mem_array(count, sizeof *parts);
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
    return parts_to_json(timeline, parts, count);
}

/* A point's time and the sum of its bytes; negative if it is malformed. */
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

/* The maximum and minimum of each `bucket` of adjacent points, in their order. */
static void add_extremes(json_t **kept, const json_t *points, size_t from, size_t to, size_t kinds) {
    size_t high = from, low = from;
    for (size_t i = from; i < to; i++) {
        double bytes = point_bytes(json_array_get(points, i), kinds);
        if (bytes > point_bytes(json_array_get(points, high), kinds)) high = i;
        if (bytes < point_bytes(json_array_get(points, low), kinds)) low = i;
    }
    json_push(kept, json_incref(json_array_get(points, high < low ? high : low)));
    if (high != low) json_push(kept, json_incref(json_array_get(points, high < low ? low : high)));
}

static json_t *thin_points(const json_t *points, size_t kinds) {
    json_t *kept = json_array();
    size_t count = json_array_size(points);
    size_t bucket = count <= PAGE_TIMELINE_POINTS ? 1 : (2 * count + PAGE_TIMELINE_POINTS - 1) / PAGE_TIMELINE_POINTS;
    for (size_t from = 0; from < count; from += bucket)
        add_extremes(&kept, points, from, from + bucket < count ? from + bucket : count, kinds);
    return kept;
}

static bool are_names(const json_t *list) {
    bool names = json_is_array(list) && json_array_size(list) <= KINDS_MAX;
    for (size_t i = 0; i < json_array_size(list); i++)
        names &= json_is_string(json_array_get(list, i)) != 0;
    return names;
}

static enum status check_tier(const char *where, const json_t *tier) {
    if (!json_is_object(tier)) return status_set(STATUS_BAD_INPUT, "%s: must be an object", where);
    const json_t *points = json_object_get(tier, "points"), *kinds = json_object_get(tier, "kinds");
    int64_t bytes;
    const char *title;
    TRY(json_require(where, tier, "name"));
    TRY(json_read_string(where, tier, "name", &title));
    TRY(json_require(where, tier, "program_bytes"));
    TRY(json_read_int(where, tier, "program_bytes", 0, INT64_MAX, &bytes));
    if (!are_names(kinds))
        return status_set(STATUS_BAD_INPUT, "%s: kinds: must be an array of at most %d names", where, KINDS_MAX);
    if (!json_is_array(points)) return status_set(STATUS_BAD_INPUT, "%s: points: must be an array", where);
    for (size_t i = 0; i < json_array_size(points); i++)
        if (point_bytes(json_array_get(points, i), json_array_size(kinds)) < 0)
            return status_set(STATUS_BAD_INPUT, "%s: points[%zu]: must be a time and the bytes of each kind", where, i);
    return STATUS_OK;
}

static enum status check_tiers(const char *name, const json_t *timeline) {
    const json_t *tiers = json_object_get(timeline, "tiers");
    char where[512];
    if (!json_is_array(tiers)) return status_set(STATUS_BAD_INPUT, "%s: tiers: must be an array", name);
    for (size_t i = 0; i < json_array_size(tiers); i++) {
        snprintf(where, sizeof where, "%s: tiers[%zu]", name, i);
        TRY(check_tier(where, json_array_get(tiers, i)));
    }
    return STATUS_OK;
}

static json_t *tiers_to_json(const json_t *timeline) {
    json_t *made = json_array(), *tier;
    size_t i;
    json_array_foreach(json_object_get(timeline, "tiers"), i, tier) {
        json_t *kinds = json_object_get(tier, "kinds");
        json_push(&made, json_pack("{s:O, s:O, s:O, s:o}", "name", json_object_get(tier, "name"), "program_bytes",
                                   json_object_get(tier, "program_bytes"), "kinds", kinds, "points",
                                   thin_points(json_object_get(tier, "points"), json_array_size(kinds))));
    }
    return made;
}

/* Checks the lists other than events: texts, and the streams' sums. */
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

/* Checks collectives, if the step has any. */
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

/* Reads the events, and checks the rest. */
static enum status read_timeline(const char *name, const json_t *timeline, struct timeline_rows *out) {
    int64_t version = 0;
    TRY(json_read_version(name, timeline, TIMELINE_VERSION, &version));
    TRY(timeline_rows_read(name, timeline, out));
    TRY(check_lists(name, timeline));
    TRY(check_communication(name, timeline));
    return check_tiers(name, timeline);
}

enum status page_timeline_make(const char *name, const json_t *timeline, json_t **out) {
    double step_s = 0;
    AUTO(rows_free) struct timeline_rows rows = {0};
    TRY(read_timeline(name, timeline, &rows));
    TRY(json_require(name, timeline, "step_s"));
    TRY(json_read_double(name, timeline, "step_s", 0, 1e12, &step_s));
    TRY(timeline_rows_chain(&rows));
    json_t *bounds = bounds_to_json(timeline, &rows); /* from all events, so before thinning */
    json_t *step = json_object_get(timeline, "step");
    timeline_rows_thin(&rows, PAGE_TIMELINE_EVENTS);
#define LIST(key) key, json_object_get(timeline, key)
    *out = json_pack("{s:f, s:O*, s:I, s:o, s:o, s:O, s:O*, s:O, s:O, s:O, s:O, s:O*, s:o}", "step_s", step_s, "step",
                     json_is_integer(step) ? step : NULL, "recorded",
                     (json_int_t)json_array_size(json_object_get(timeline, "events")), "bounds", bounds, "events",
                     rows_to_json(&rows), LIST("names"), LIST("moves"), LIST("streams"), LIST("blocks"),
                     LIST("sections"), LIST("phases"), LIST("communication"), "tiers", tiers_to_json(timeline));
    return *out ? STATUS_OK : status_no_memory(0, "the page's timeline");
}

enum status page_timeline_read(const char *path, json_t **out) {
    json_auto_t *object = NULL;
    TRY(json_read_object(path, TIMELINE_FILE_LIMIT_BYTES, &object));
    return page_timeline_make(path, object, out);
}

json_t *trace_create(void) {
    json_t *trace = json_pack("{s:s, s:[]}", "displayTimeUnit", "ms", "traceEvents");
    if (!trace) (void)status_no_memory(0, "a trace's JSON");
    return trace;
}

/* Destination and process of a timeline's events. */
struct trace_process {
    json_t *out; /* traceEvents; borrowed */
    int number;
    const json_t *timeline;
};

static enum status append(const struct trace_process *process, json_t *event) {
    return json_array_append_new(process->out, event) == 0 ? STATUS_OK : status_no_memory(0, "a trace's JSON");
}

static enum status add_names(const struct trace_process *process, const char *kind) {
    size_t stream;
    const json_t *object;
    TRY(append(process, json_pack("{s:s, s:s, s:i, s:{s:s}}", "ph", "M", "name", "process_name", "pid", process->number,
                                  "args", "name", kind)));
    json_array_foreach(json_object_get(process->timeline, "streams"), stream, object) {
        TRY(append(process,
                   json_pack("{s:s, s:s, s:i, s:i, s:{s:O}}", "ph", "M", "name", "thread_name", "pid", process->number,
                             "tid", (int)stream, "args", "name", json_object_get(object, "role"))));
        TRY(append(process, json_pack("{s:s, s:s, s:i, s:i, s:{s:i}}", "ph", "M", "name", "thread_sort_index", "pid",
                                      process->number, "tid", (int)stream, "args", "sort_index", (int)stream)));
    }
    return STATUS_OK;
}

/* The text of an index; "" for -1. */
static const char *text_of(const struct trace_process *process, int list, int32_t index) {
    const json_t *texts = json_object_get(process->timeline, lists[list]);
    return index < 0 ? "" : json_string_value(json_array_get(texts, (size_t)index));
}

static enum status add_event(const struct trace_process *process, const struct timeline_row *row) {
    const char *phase = text_of(process, PHASE, row->phase);
    return append(process,
                  json_pack("{s:s, s:s, s:s, s:i, s:i, s:f, s:f, s:{s:s, s:s, s:i, s:I}}", "ph", "X", "name",
                            text_of(process, NAME, row->name), "cat", phase[0] ? phase : "copy", "pid", process->number,
                            "tid", (int)row->stream, "ts", row->start_us, "dur", row->longest_us, "args", "block",
                            text_of(process, BLOCK, row->block), "section", text_of(process, SECTION, row->section),
                            "micro_batch", (int)row->micro_batch, "bytes", (json_int_t)row->bytes));
}

static json_t *point_to_json(const json_t *kinds, const json_t *point) {
    json_t *object = json_object(), *kind;
    size_t i;
    json_array_foreach(kinds, i, kind)
        json_put(&object, json_string_value(kind), json_incref(json_array_get(point, i + 1)));
    return object;
}

static enum status add_tier(const struct trace_process *process, const json_t *tier) {
    const char *name = json_string_value(json_object_get(tier, "name"));
    const json_t *kinds = json_object_get(tier, "kinds"), *point;
    size_t i;
    json_array_foreach(json_object_get(tier, "points"), i, point) TRY(append(
        process, json_pack("{s:s, s:o, s:i, s:O, s:o}", "ph", "C", "name", json_sprintf("%s memory", name), "pid",
                           process->number, "ts", json_array_get(point, 0), "args", point_to_json(kinds, point))));
    return STATUS_OK;
}

enum status trace_add(json_t *trace, int process, const char *file, const json_t *timeline) {
    const struct trace_process own = {json_object_get(trace, "traceEvents"), process, timeline};
    AUTO(rows_free) struct timeline_rows rows = {0};
    const char *kind = NULL;
    size_t index;
    const json_t *tier;
    TRY(read_timeline(file, timeline, &rows));
    TRY(json_require(file, timeline, "kind"));
    TRY(json_read_string(file, timeline, "kind", &kind));
    TRY(add_names(&own, kind));
    for (size_t i = 0; i < rows.items.count; i++)
        TRY(add_event(&own, &rows.items.items[i]));
    json_array_foreach(json_object_get(timeline, "tiers"), index, tier) TRY(add_tier(&own, tier));
    return STATUS_OK;
}
