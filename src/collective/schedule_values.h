/* What the data of an operation comes to: its steps executed on symbols. For schedule_proof alone. */
#pragma once

#include "collective/schedule_walk.h"

/* Executes the steps in the walk's order, on a number for each range of bytes that depends on where it comes from and
 * on all that was added to it. FAILED where a rank uses bytes that are on their way, or ends with others than the
 * operation says. `specs` by position in the group. */
enum status schedule_values_check(const struct schedule_walk *walk, const struct comm_spec *const *specs);
