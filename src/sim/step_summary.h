/* A step's timeline in numbers that fit a table: what plans, predictions and reports say of it. */
#ifndef BALLAST_SIM_STEP_SUMMARY_H
#define BALLAST_SIM_STEP_SUMMARY_H

#include <jansson.h>

#include "sim/simulate.h"

struct step_summary {
    double step_s; /* 0: not known, and the rest empty */
    struct timeline_stream streams[STREAM_ROLE_COUNT];
    int stream_count;
    struct bound bounds[BOUNDS_MAX]; /* what the step's time is made of, the most first */
    int bound_count;
};

void step_summarise(const struct timeline *timeline, const struct costs *costs, struct step_summary *out);

/* Sets "step_s" (null when not known), "streams": [{"role", "busy_s", "waiting_s"}] and "binds": [{"what", "seconds"}].
 * FAILED when out of memory. */
enum status step_summary_add_json(const struct step_summary *summary, json_t *object);

/* "disk writes during backward"; returns `text`. */
enum { BOUND_WORDS_BYTES = 96 };
char *bound_words(const struct bound *bound, char text[BOUND_WORDS_BYTES]);

#endif
