/* Copies between any two tiers, for the runner and for measurements. */
#pragma once

#include "runtime/store/arena.h"

/* A staging buffer between the disk and device-only memory: two places that take turns, so that disk and device work at
 * the same time. Zero-initialise. */
enum { STAGING_BYTES = 8 << 20, STAGING_PLACES = 2 };
struct copy_staging {
    char *place[STAGING_PLACES];
    void *event[STAGING_PLACES]; /* recorded after the copies out of or into the place */
    int next;                    /* place */
};

/* Takes STAGING_PLACES times STAGING_BYTES of the backend's host memory; the backend has streams, and the thread has
 * entered them. Close in any case, with no copy in flight. */
enum status copy_staging_open(const struct backend *backend, struct copy_staging *staging);
void copy_staging_close(const struct backend *backend, struct copy_staging *staging);

/* One end of a copy. */
struct tier_place {
    const struct arena *arena;
    int64_t offset;
};

/* Copies `bytes`. From and to the disk, offsets and bytes are whole blocks, `channel` is the disk's, and the disk's
 * part is complete on return; the device's part is enqueued on the stream, as are copies between memory tiers of a
 * backend with streams. `staging` is needed between the disk and device-only memory, and may otherwise be NULL. FAILED
 * when disk or device fails. */
enum status tier_copy(const struct backend *backend, struct copy_staging *staging, struct tier_place from,
                      struct tier_place to, int64_t bytes, int channel, void *stream);
