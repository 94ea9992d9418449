/* Bytes of live buffers over a step's time. */
#pragma once

#include "search/sim/timeline.h"

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
