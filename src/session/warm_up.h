/* One call of every kernel of a plan's programs, before its arenas are taken: a GPU's libraries load the code of a
 * kernel and its local memory at the first call, out of memory that nobody could know before. */
#ifndef BALLAST_SESSION_WARM_UP_H
#define BALLAST_SESSION_WARM_UP_H

#include "session/session_plan.h"

/* Calls the kernels on zeros in memory of its own, then compares the plan's device tier with what the device has left.
 * Does nothing on a backend whose code takes no device memory. NO_FIT, with the --device-memory that fits; FAILED where
 * a kernel fails. */
enum status warm_up(const struct session_plan *plan);

#endif
