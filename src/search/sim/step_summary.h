/* A step's timeline in a few numbers, for plans, predictions and reports. */
#pragma once

#include <jansson.h>

#include "search/sim/simulate.h"

struct step_summary {
    double step_s; /* 0: unknown; everything else is then 0 */
    /* The range of a target device, whose step is not measured. Both 0: no range. */
    double fastest_s, slowest_s;
    struct timeline_stream streams[STREAM_ROLE_COUNT];
    int stream_count;
    double busy_s[STREAM_ROLE_COUNT][ACTIVITY_COUNT]; /* seconds of each stream by activity */
    struct bound bounds[BOUNDS_MAX];                  /* breakdown of the step's time, the largest first */
    int bound_count;
    /* Collectives: their seconds, and the part overlapped with this rank's compute; bytes that one rank moves. All 0 on
     * one rank. */
    double communication_s, hidden_s;
    struct comm_traffic traffic;
};

void step_summarise(const struct timeline *timeline, const struct costs *costs, struct step_summary *out);

/* A difference between two steps: seconds of an activity of a stream, or of its waiting. */
struct step_difference {
    enum stream_role role;
    bool waits;
    enum activity activity; /* unless it waits */
    double predicted_s, measured_s;
};
enum { DIFFERENCES_MAX = 4 };
/* The largest first; differences below a tenth of it are omitted. Returns their number, 0 if there is no difference. */
int step_differences(const struct step_summary *predicted, const struct step_summary *measured,
                     struct step_difference out[DIFFERENCES_MAX]);
/* "compute: matrix products", "compute: waiting"; returns `text`. */
enum { DIFFERENCE_TEXT_BYTES = 64 };
char *difference_text(const struct step_difference *difference, char text[DIFFERENCE_TEXT_BYTES]);

/* Sets "step_s" (null if unknown), "step_range_s": [fastest, slowest] if there is a range, "streams": [{"role",
 * "busy_s", "waiting_s"}] and "binds": [{"what", "seconds"}]. On several ranks also "communication": {"seconds",
 * "hidden_s", "in_node_bytes", "across_bytes", "read_bytes"}: sent by this rank, and read in place by it. FAILED if out
 * of memory. */
enum status step_summary_add_json(const struct step_summary *summary, json_t *object);

/* Sets only "communication", as above, of a step that was simulated or recorded. FAILED if out of memory. */
enum status step_summary_add_communication(const struct timeline *timeline, json_t *object);

/* Reads the fields of step_summary_add_json, except busy_s. BAD_INPUT "FILE: FIELD: …". */
enum status step_summary_read_json(const char *file, const json_t *object, struct step_summary *out);

/* "disk writes during backward"; returns `text`. */
enum { BOUND_TEXT_BYTES = 96 };
char *bound_text(const struct bound *bound, char text[BOUND_TEXT_BYTES]);
