/* Arenas: one block of memory for each tier, of exactly the size that the program says, touched before the first step.
 */
#ifndef BALLAST_STORE_ARENA_H
#define BALLAST_STORE_ARENA_H

#include <stdint.h>

#include "base/status.h"
#include "program/program.h"

struct arena {
    enum tier tier;
    void *base; /* at least BUFFER_ALIGNMENT-aligned; NULL when bytes is 0 */
    int64_t bytes;
};

/* Maps and touches `bytes` of memory (zeroed). FAILED with a hint when the system refuses. */
enum status arena_open(enum tier tier, int64_t bytes, struct arena *out);
void arena_close(struct arena *arena);

#endif
