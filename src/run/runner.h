/* Runs an executable's program in given arenas: one worker for each stream, waits between them, nothing allocated in a
 * step. */
#ifndef BALLAST_RUN_RUNNER_H
#define BALLAST_RUN_RUNNER_H

#include "run/executable.h"
#include "store/arena.h"

struct runner;

/* `arena` must hold the program's device tier; several runners may share one arena and take turns (training and
 * evaluation of one model have their parameters at the same offsets). Borrows both. */
enum status runner_create(const struct executable *executable, const struct arena *arena, struct runner **out);
void runner_free(struct runner *runner);

/* Runs one step with these SCALAR_COUNT values and returns when all streams are done. FAILED if a worker could not run.
 */
enum status runner_step(struct runner *runner, const double *scalars);
/* The bytes of a parameter, state, input (all grains), result or kept activation (of the last pass's first grain). */
void *runner_data(const struct runner *runner, const struct tensor *tensor);

/* Called before each instruction that changes a parameter or the optimizer's state, by the thread that runs it: what
 * reads them during a step (a checkpoint) can be waited for there. NULL: none. Not while a step runs. */
typedef void runner_gate(void *payload);
void runner_set_gate(struct runner *runner, runner_gate *gate, void *payload);

/* Called after each instruction of a single-stream program; for finding where a value went wrong. NULL: none. */
typedef void runner_observer(void *payload, const struct runner *runner, int32_t instruction, int64_t run);
void runner_set_observer(struct runner *runner, runner_observer *observer, void *payload);
/* The address of an instruction's operand in the given run of its section. */
void *runner_operand(const struct runner *runner, const struct operand *operand, int64_t run);

/* Runs one step's issues one at a time in a random order that streams and waits allow, and fills every buffer with 0xFF
 * bytes once its last use in the step is over. Bit for bit the same result is expected. For tests. */
enum status runner_step_interleaved(struct runner *runner, const double *scalars, uint64_t seed);

#endif
