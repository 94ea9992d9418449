/* A timeline: when each instruction of a step began and ended. Measured timelines (src/runtime) and predicted ones
 * (src/search/sim) have one type, so they can be compared, drawn over each other and written to one kind of file. */
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
    double start_s, end_s; /* from the step's beginning; equal if the step did not issue it */
};

struct timeline {
    const struct program *program;     /* borrowed; outlives the timeline */
    bool measured;                     /* otherwise predicted */
    VEC(struct timeline_event) events; /* by stream, and in each stream's order */
    size_t begins[STREAMS_MAX + 1];    /* by stream: its first event; for a missing stream, the last one's end */
    struct timeline_place {
        size_t first, stride;
    } * places;    /* by instruction: repetition r is event first + r * stride */
    double step_s; /* end of the last event */
    int64_t step;  /* measured: the step's number in its training run, from 1; 0: unknown */
    double wall_s; /* measured: seconds of the whole step, including the work around the program */
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

/* The cause of an event: the last to end among the events that it waited for and the previous one on its stream. NULL:
 * it waited for none of this step. */
const struct timeline_event *timeline_cause(const struct timeline *timeline, const struct timeline_event *event);

/* Seconds that a stream works, and that it waits before its last event. */
struct timeline_stream {
    enum stream_role role;
    double busy_s, waiting_s;
};
/* out: program->streams entries. */
void timeline_summarise(const struct timeline *timeline, struct timeline_stream *out);

/* [{"role", "busy_s", "waiting_s"}]; NULL if out of memory. */
json_t *timeline_streams_to_json(const struct timeline_stream *streams, int count);

/* Self-contained, for readers that have no program (the page, other tools):
 *
 *   {"version", "kind": "measured" or "predicted", "step" and "wall_s" (of a run's), "step_s", "names": [TEXT],
 *    "moves": by name, the kind of data copied or set to zero ("activations", "optimizer", …), "" for kernels
 *
 *    "streams": [{"role", "busy_s", "waiting_s"}],
 *    "events": [[STREAM, NAME, BLOCK, SECTION, MICRO_BATCH, PHASE, START_US, DURATION_US, BYTES, CAUSE]],
 *    "blocks": [TEXT], "sections": [TEXT], "phases": [TEXT],
 *    "tiers": [{"name", "program_bytes", "kinds": [TEXT], "points": [[TIME_US, BYTES of each kind…]]}]}
 *
 * - Numbers in events index the lists; -1: none. MICRO_BATCH counts within the step.
 * - A copy has the BLOCK and PHASE of the kernels that it serves. The phase "recomputation" is a repeated forward.
 * - BYTES are those moved, 0 for kernels.
 * - CAUSE is the index of the event whose end started this one (timeline_cause). Older files lack it and "moves".
 * - A point holds from its time to the next (timeline_memory).
 *
 * Skipped instructions are omitted. NULL if out of memory. */
json_t *timeline_to_json(const struct timeline *timeline);
/* Writes it to the file atomically (file_replace). */
enum status timeline_write(const struct timeline *timeline, const char *path);

/* Bytes of live buffers over a step's time. */

struct memory_point {
    double time_s; /* holds from here to the next point */
    int64_t bytes[BUFFER_KIND_COUNT];
};

struct memory_points {
    VEC(struct memory_point) list; /* at most one per time; the first at 0 */
};

/* Bytes of live buffers over time. A buffer counts from the start of its first use to the end of its last; a persistent
 * one always; results to the step's end. A buffer that is used only within a repeated section counts in each repetition
 * by itself. The sum is at most the arena's size: buffers that share bytes are never live together. The caller frees
 * the list. FAILED if out of memory. */
enum status timeline_memory(const struct timeline *timeline, enum tier tier, struct memory_points *out);
