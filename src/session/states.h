/* Weights and optimizer states between two engines of the same model: one leaves them here, the other takes them up,
 * wherever its policy has them. The bytes are the same. Each of several ranks keeps its own or, if the partition of the
 * other engine may differ, all of them write one file in a directory that all of them reach. */
#pragma once

#include "session/engine.h"

struct kept_states {
    struct arena arena;
    const struct comm *comm;
    char *path; /* of the file with all ranks' states; NULL: they are in the arena */
};

/* Bytes that the engine's states take here. */
int64_t kept_states_bytes(const struct engine *engine);
/* Copies them in between two steps, after engine_settle: into memory (TIER_HOST), or into a file without a name in
 * `folder` (TIER_DISK). FAILED where there is no space; BAD_INPUT where the directory is none. Collective; all ranks
 * fail alike. The caller frees, then too. */
enum status kept_states_take(const struct engine *engine, enum tier tier, const char *folder, struct kept_states *out);
/* The same of all ranks, which have `folder` in common, in a file there. Collective; all ranks fail alike. */
enum status kept_states_take_together(const struct engine *engine, const char *folder, struct kept_states *out);
/* Copies them to an engine of the same recipe and, unless they were taken together, of a partition by which each rank
 * has the same of them. Collective; all ranks fail alike. */
enum status kept_states_give(const struct kept_states *kept, const struct engine *engine);
void kept_states_free(struct kept_states *kept);
