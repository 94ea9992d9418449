/* A timeline: when each instruction of a step ran. Measured by src/run and predicted by src/sim, of one type, so that
 * they can be subtracted, drawn over each other and written as one file. */
#ifndef BALLAST_SIM_TIMELINE_H
#define BALLAST_SIM_TIMELINE_H

#include <jansson.h>

#include "base/mem.h"
#include "program/program.h"

enum { TIMELINE_VERSION = 1 };

struct timeline_event {
    int32_t instruction;
    int64_t run;           /* of its section */
    double start_s, end_s; /* from the step's beginning */
};

struct timeline {
    const struct program *program;     /* borrowed; outlives the timeline */
    VEC(struct timeline_event) events; /* by stream, and in each stream's order */
    double step_s;                     /* end of the last event */
};
/* Room for one step's events, so that recording allocates nothing. */
enum status timeline_create(const struct program *program, struct timeline *out);
void timeline_free(struct timeline *timeline);

/* Seconds that a stream is at work, and that it waits with work left. */
struct timeline_stream {
    enum stream_role role;
    double busy_s, waiting_s;
};
/* out: program->streams entries. */
void timeline_summarise(const struct timeline *timeline, struct timeline_stream *out);

/* Self-contained, for readers that have no program (the page, other tools):
 *   {"version", "step_s", "names": [TEXT], "streams": [{"role", "busy_s", "waiting_s"}],
 *    "events": [[STREAM, NAME, BLOCK, SECTION, GRAIN, PHASE, START_US, DURATION_US, BYTES]],
 *    "blocks": [TEXT], "sections": [TEXT], "phases": [TEXT],
 *    "tiers": [{"name", "program_bytes", "kinds": [TEXT], "points": [[TIME_US, BYTES of each kind…]]}]}
 * Numbers in events index the lists; BYTES are those moved, 0 for kernels. A point holds from its time to the next.
 * NULL when out of memory. */
json_t *timeline_to_json(const struct timeline *timeline);

#endif
