#include "report/page/timeline_rows.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/json.h"

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
