/* Times work that a backend is asked for: on a processor by the clock around the calls, on a device by the device's own
 * clock between two events of a stream. There several calls in a row are asked for, as programs do, so that what it
 * takes to ask for one passes while another is worked on. */
#ifndef BALLAST_PROFILE_WORK_CLOCK_H
#define BALLAST_PROFILE_WORK_CLOCK_H

#include "backend/backend.h"
#include "profile/measurement.h"

struct work_clock {
    const struct backend *backend;
    void *stream;      /* the work is to be asked for on it; NULL where the backend has none */
    void *begin, *end; /* timed events */
};

/* Zero-initialise, close in any case, with nothing under way. Enters the device. FAILED when the device does. */
enum status work_clock_open(const struct backend *backend, struct work_clock *out);
void work_clock_close(struct work_clock *clock);

typedef enum status work_call(void *payload);
/* Calls `work` so often and returns when all of it is done: *out is for one call. FAILED when a call or the device
 * does. */
enum status work_clock_time(const struct work_clock *clock, work_call *work, void *payload, int calls,
                            struct sample *out);
/* Returns when all is done that was asked for on the clock's stream. */
enum status work_clock_finish(const struct work_clock *clock);

#endif
