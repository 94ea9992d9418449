/* Times calls of a backend: on a processor by the clock around them, on a device by its own clock between two events of
 * a stream. On a device several calls are queued in a row, as programs do, so that queueing one overlaps with the work
 * of another. */
#pragma once

#include "backend/backend.h"
#include "profile/measurement.h"

struct work_clock {
    const struct backend *backend;
    void *stream;      /* queue the work on it; NULL where the backend has none */
    void *begin, *end; /* timed events */
};

/* Zero-initialise, close in any case, with nothing under way. Enters the device. FAILED when the device does. */
enum status work_clock_open(const struct backend *backend, struct work_clock *out);
void work_clock_close(struct work_clock *clock);

typedef enum status work_call(void *payload);
/* Calls `work` `calls` times and returns when all of it is done; *out is the time of one call. FAILED when a call or
 * the device does. */
enum status work_clock_time(const struct work_clock *clock, work_call *work, void *payload, int calls,
                            struct sample *out);
/* Blocks until all work queued on the clock's stream is done. */
enum status work_clock_finish(const struct work_clock *clock);
