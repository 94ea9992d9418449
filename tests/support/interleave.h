/* Executes one step with its streams' issues in random order. */
#pragma once

#include "runtime/runner.h"

/* Runs one step with its issues one at a time, in a random order that streams and waits allow. Fills every buffer in
 * memory with 0xFF bytes after its last use in the step. The result must equal runner_step's bit for bit. */
enum status runner_step_interleaved(struct runner *runner, const double *scalars, uint64_t seed);
