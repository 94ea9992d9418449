/* Weights and optimizer state out of an engine's reach: one engine leaves them here, and another one of the same model
 * takes them up, wherever its policy has them. The bytes are the same. */
#ifndef BALLAST_SESSION_KEPT_STATES_H
#define BALLAST_SESSION_KEPT_STATES_H

#include "session/engine.h"

struct kept_states {
    struct arena arena;
};

/* Bytes that the states of a plan's main program take here. */
int64_t kept_states_bytes(const struct session_plan *plan);
/* Copies them in between two steps, after engine_settle: into memory (TIER_HOST), or into a file without a name in
 * `folder` (TIER_DISK). FAILED where there is no room; BAD_INPUT where the folder is none. The caller frees, then too.
 */
enum status kept_states_take(const struct engine *engine, enum tier tier, const char *folder, struct kept_states *out);
/* Copies them to an engine of the same recipe. */
enum status kept_states_give(const struct kept_states *kept, const struct engine *engine);
void kept_states_free(struct kept_states *kept);

#endif
