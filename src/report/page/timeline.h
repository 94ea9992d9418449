/* Events of a timeline file as plain rows: reads, checks, chains and thins them. Private to the page. */
#pragma once

#include <jansson.h>

#include "base/base.h"

struct timeline_row {
    int32_t stream, name, block, section, micro_batch, phase; /* indices of the file's lists; -1: none */
    double start_us, end_us;
    double longest_us; /* longest of the events it represents, which gives the name */
    int64_t bytes;
    int32_t events; /* number of events it represents */
    int32_t first;  /* the first of them, counted over all events by stream and time */
    int32_t cause;  /* counted likewise: the event whose end started the first; -1: none */
    bool chained;   /* on the chain that determines the step's length */
};

struct timeline_rows {
    VEC(struct timeline_row) items; /* by stream, then by time */
    int32_t streams, phases;
    bool has_causes; /* the file has causes of events */
    double end_us;   /* of the last event */
};

/* BAD_INPUT "NAME: events[12]: …". The caller calls vec_free(&out->items). */
enum status timeline_rows_read(const char *name, const json_t *timeline, struct timeline_rows *out);
/* Marks the chain: starts from the event that ends last and follows causes. If the file has no causes, the cause is the
 * previous event on its stream. If the stream was idle in between, it is the event of another stream that had just
 * ended. */
enum status timeline_rows_chain(struct timeline_rows *rows);
/* The row of an event, counted like `first` and `cause`; -1 for -1. */
int32_t timeline_rows_find(const struct timeline_rows *rows, int32_t event);
/* Joins adjacent events of a stream, the shortest first, until at most `max` rows are left. */
void timeline_rows_thin(struct timeline_rows *rows, size_t max);

/* A timeline file (search/sim/timeline.h) for the page: checked field by field, thinned to screen resolution, with the
 * chain of events that determines the step's length. */

enum {
    PAGE_TIMELINE_EVENTS = 12000, /* maximum, of about 50 bytes each in the page */
    PAGE_TIMELINE_POINTS = 1200   /* per tier */
};

/* The file's object with these changes:
 * - "events" are rows that end with three numbers. First, the number of events that the row represents: adjacent events
 *   of a stream that are too short to see are joined, under the name of the longest. Second, 1 if it is on the chain,
 *   else 0. Third, the row whose end started it, or -1 if unknown.
 * - "bounds": [{"role", "phase", "seconds"}] of the chain, the largest first.
 * - "points" are thinned to the maximum and the minimum in each interval of time.
 *
 * BAD_INPUT "FILE: FIELD: …". The caller drops it. */
enum status page_timeline_read(const char *path, json_t **out);
/* The same for an existing object; `name` replaces the path in messages. */
enum status page_timeline_make(const char *name, const json_t *timeline, json_t **out);

/* Timelines as a Chrome trace, the JSON of Perfetto and chrome://tracing ("Trace Event Format", Google, 2016). */

/* An empty trace: {"displayTimeUnit": "ms", "traceEvents": []}. NULL if out of memory. */
json_t *trace_create(void);
/* Adds a timeline in the form of timeline_to_json as a process: streams as threads, memory by tier and kind as
 * counters. `process` counts from 1; `file` is the timeline's source. BAD_INPUT naming file and field if it is not a
 * timeline. */
enum status trace_add(json_t *trace, int process, const char *file, const json_t *timeline);
