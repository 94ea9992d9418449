#include "report/page/page_timeline.h"

#include <math.h>
#include <stdlib.h>

#include "base/json.h"
#include "report/page/timeline_rows.h"
#include "search/sim/timeline.h"

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
    if (!failed) return events;
    json_decref(events);
    return NULL;
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
    if (!failed) return bounds;
    json_decref(bounds);
    return NULL;
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
    if (!failed) return kept;
    json_decref(kept);
    return NULL;
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
