/* Events of a timeline file as plain rows: read and checked, chained, thinned. Private to the page. */
#pragma once

#include <jansson.h>

#include "base/base.h"

struct timeline_row {
    int32_t stream, name, block, section, micro_batch, phase; /* indices of the file's lists; -1: none */
    double start_us, end_us;
    double longest_us; /* of the events it stands for: the one that gave the name */
    int64_t bytes;
    int32_t events; /* that it stands for */
    int32_t first;  /* of them, counted through all events by stream and time */
    int32_t cause;  /* counted so too: the event whose end let the first begin; -1: none */
    bool chained;   /* on the chain that the step's length comes from */
};

struct timeline_rows {
    VEC(struct timeline_row) items; /* by stream, then by time */
    int32_t streams, phases;
    bool has_causes; /* the file says what events waited for */
    double end_us;   /* of the last event */
};

/* BAD_INPUT "NAME: events[12]: …". The caller calls vec_free(&out->items). */
enum status timeline_rows_read(const char *name, const json_t *timeline, struct timeline_rows *out);
/* Marks the chain: from the event that ends last, each time the one whose end let it begin. Where the file does not
 * say which that was, it is taken to be the one before it on its stream, unless the stream stood still in between; then
 * the event of another stream that had just ended. */
enum status timeline_rows_chain(struct timeline_rows *rows);
/* The row that holds an event, by the count that `first` and `cause` have; -1 for -1. */
int32_t timeline_rows_find(const struct timeline_rows *rows, int32_t event);
/* Joins neighbours on a stream, the shortest first, until at most `max` rows are left. */
void timeline_rows_thin(struct timeline_rows *rows, size_t max);

/* A timeline file (search/sim/timeline.h) made ready for the page: checked field by field, thinned to what a screen can
 * show, and with the chain of events that the step's length comes from. */

enum {
    PAGE_TIMELINE_EVENTS = 12000, /* at most, of about 50 bytes each in the page */
    PAGE_TIMELINE_POINTS = 1200   /* of each tier */
};

/* The file's object with
 *   - "events" rows whose last numbers are: how many events the row stands for (neighbours on a stream that are too
 *     short to be seen go together; the name is that of the longest), 1 where it is on the chain, else 0, and the row
 *     whose end let it begin, -1 where that is not known;
 *   - "bounds": [{"role", "phase", "seconds"}] of the chain, the largest first;
 *   - "points" of which the highest and the lowest in each interval of time are left.
 * BAD_INPUT "FILE: FIELD: …". The caller drops it. */
enum status page_timeline_read(const char *path, json_t **out);
/* The same of an object that is there already; `name` stands for the path in messages. */
enum status page_timeline_make(const char *name, const json_t *timeline, json_t **out);

/* Timelines as a Chrome trace, the JSON that Perfetto and chrome://tracing show ("Trace Event Format", Google, 2016).
 */

/* An empty trace: {"displayTimeUnit": "ms", "traceEvents": []}. NULL when out of memory. */
json_t *trace_create(void);
/* Adds a timeline in the form of timeline_to_json as a process of its own: streams as threads, memory by tier and kind
 * as counters. `process` counts from 1; `file` stands for where the timeline was read. BAD_INPUT naming file and field
 * for what is no timeline. */
enum status trace_add(json_t *trace, int process, const char *file, const json_t *timeline);
