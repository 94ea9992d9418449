/* A timeline: when each instruction of a step began and ended. Measured (src/runtime) and predicted (src/search/sim)
 * ones have one type, so they can be compared, drawn over each other and written to one kind of file. */
#pragma once

#include <jansson.h>

#include "base/json.h"
#include "compiler/order.h"
#include "compiler/program.h"

enum { TIMELINE_VERSION = 1 };

/* One issue of an instruction. */
struct timeline_event {
    int32_t instruction;
    int64_t repetition;    /* of its section */
    double start_s, end_s; /* from the step's beginning; equal where the step did not issue it */
};

struct timeline {
    const struct program *program;     /* borrowed; outlives the timeline */
    bool measured;                     /* else predicted */
    VEC(struct timeline_event) events; /* by stream, and in each stream's order */
    size_t begins[STREAMS_MAX + 1];    /* by stream: its first event; where there is no such stream, the last's end */
    struct timeline_place {
        size_t first, stride;
    } * places;    /* by instruction: repetition r is event first + r * stride */
    double step_s; /* end of the last event */
    int64_t step;  /* measured: the step's number in its training run, from 1; 0: not known */
    double wall_s; /* measured: seconds of the whole step, the work around the program included */
};
/* All events of one step with times of 0, so that filling them in allocates nothing. */
enum status timeline_create(const struct program *program, struct timeline *out);
void timeline_free(struct timeline *timeline);

static inline struct timeline_event *timeline_find(const struct timeline *timeline, int32_t instruction,
                                                   int64_t repetition) {
    const struct timeline_place *place = &timeline->places[instruction];
    return &timeline->events.items[place->first + (size_t)repetition * place->stride];
}

/* Sets step_s from the events. */
void timeline_end(struct timeline *timeline);

/* The cause of an event: of the events that it waited for and the one before it on its stream, the one that ended last.
 * NULL: it waited for none of this step. */
const struct timeline_event *timeline_cause(const struct timeline *timeline, const struct timeline_event *event);

/* Seconds that a stream works, and that it waits before its last event. */
struct timeline_stream {
    enum stream_role role;
    double busy_s, waiting_s;
};
/* out: program->streams entries. */
void timeline_summarise(const struct timeline *timeline, struct timeline_stream *out);

/* [{"role", "busy_s", "waiting_s"}]; NULL when out of memory. */
json_t *timeline_streams_to_json(const struct timeline_stream *streams, int count);

/* Self-contained, for readers that have no program (the page, other tools):
 *   {"version", "kind": "measured" or "predicted", "step" and "wall_s" (of a run's), "step_s", "names": [TEXT],
 *    "moves": by name, what is copied or set to zero ("activations", "optimizer", …), "" for kernels
 *    "streams": [{"role", "busy_s", "waiting_s"}],
 *    "events": [[STREAM, NAME, BLOCK, SECTION, MICRO_BATCH, PHASE, START_US, DURATION_US, BYTES, CAUSE]],
 *    "blocks": [TEXT], "sections": [TEXT], "phases": [TEXT],
 *    "tiers": [{"name", "program_bytes", "kinds": [TEXT], "points": [[TIME_US, BYTES of each kind…]]}]}
 * Numbers in events index the lists, MICRO_BATCH apart, which is that of the step, -1 for none; a BLOCK or PHASE of -1
 * is none; those of a copy are of the kernels that it is for. The phase "recomputation" is a forward that comes again.
 * BYTES are those moved, 0 for kernels. CAUSE is the index of the event whose end let this one begin (timeline_cause),
 * -1: none; files of older versions lack it, and "moves". What a step left out is no event. A point holds from its time
 * to the next (timeline_memory). NULL when out of memory. */
json_t *timeline_to_json(const struct timeline *timeline);
/* Writes it in place of the file (file_replace). */
enum status timeline_write(const struct timeline *timeline, const char *path);

/* Bytes of live buffers over a step's time. */

struct memory_point {
    double time_s; /* holds from here to the next point */
    int64_t bytes[BUFFER_KIND_COUNT];
};

struct memory_points {
    VEC(struct memory_point) list; /* at most one a time; the first at 0 */
};

/* A buffer counts from the start of its first use to the end of its last, a persistent one always, results to the
 * step's end; one that is used within a repeated section alone, in each repetition by itself. The sum is at most the
 * arena's size: buffers that share bytes are never live together. The caller frees the list. FAILED when out of memory.
 */
enum status timeline_memory(const struct timeline *timeline, enum tier tier, struct memory_points *out);
