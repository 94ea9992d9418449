/* Compiling a setup's programs for a plan; private to src/train. */
#ifndef BALLAST_SESSION_SETUP_COMPILE_H
#define BALLAST_SESSION_SETUP_COMPILE_H

#include "session/train_setup.h"

/* The programs of the setup's model and purpose under `plan`, into fields of `out` that hold none. The caller frees
 * them, also after a failure. */
enum status setup_compile(const struct train_setup *setup, const struct plan *plan, struct train_setup *out);
void setup_free_programs(struct train_setup *setup);
/* Moves the programs of `from`, which then has none, to `to`, which had none. */
void setup_take_programs(struct train_setup *to, struct train_setup *from);
/* Where the programs do not fit the tiers, compiles others under the policies that a search finds, the fastest first,
 * until some do; if none does, the setup is as it was. */
enum status setup_choose_policy(struct train_setup *setup);
/* The same under the policy that takes least alone: nothing is measured. */
enum status setup_choose_least(struct train_setup *setup);
/* The arena that all of them take. */
int64_t setup_program_bytes(const struct train_setup *setup, enum tier tier);

#endif
