/* Copies between any two tiers, as programs and those who measure for them have them. */
#ifndef BALLAST_RUNTIME_TIER_COPY_H
#define BALLAST_RUNTIME_TIER_COPY_H

#include "store/arena.h"

/* Where the disk's bytes pass between the disk and memory that the CPU has no address for: two places that take turns,
 * so that the disk goes on while the device copies. Zero-initialise. */
enum { STAGE_BYTES = 8 << 20, STAGE_PLACES = 2 };
struct copy_stage {
    char *place[STAGE_PLACES];
    void *event[STAGE_PLACES]; /* stands for the copies out of or into the place */
    int next;                  /* place */
};

/* Takes STAGE_PLACES times STAGE_BYTES of the backend's host memory; the backend has streams, and the thread has
 * entered them. Close in any case, with nothing under way. */
enum status copy_stage_open(const struct backend *backend, struct copy_stage *stage);
void copy_stage_close(const struct backend *backend, struct copy_stage *stage);

/* One end of a copy. */
struct tier_place {
    const struct arena *arena;
    int64_t offset;
};

/* Copies so many bytes; where the disk takes part, places and bytes are whole blocks of it, and `channel` is its.
 * Between memory tiers of a backend with streams the copy is only asked for; the disk's has been done on the disk's
 * side when this returns, and what the device has to do of it is on the stream. `stage` is used between the disk and
 * memory without addresses, and may else be NULL. FAILED when disk or device does. */
enum status tier_copy(const struct backend *backend, struct copy_stage *stage, struct tier_place from,
                      struct tier_place to, int64_t bytes, int channel, void *stream);

#endif
