/* Compiling a setup's programs for a plan; private to src/train. */
#ifndef BALLAST_TRAIN_SETUP_COMPILE_H
#define BALLAST_TRAIN_SETUP_COMPILE_H

#include "train/train_setup.h"

/* The programs of the setup's model and purpose under `plan`; `*validation` is NULL unless the purpose is training. The
 * caller frees both. */
enum status setup_compile(const struct train_setup *setup, const struct plan *plan, struct executable **main,
                          struct executable **validation);
/* The arena that both take. */
int64_t setup_program_bytes(const struct executable *main, const struct executable *validation, enum tier tier);

#endif
