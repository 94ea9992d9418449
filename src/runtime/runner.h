/* Runs an executable's program in given arenas: one worker for each stream, waits between them, nothing allocated in a
 * step.
 *
 * On a backend with streams (backend.h) the workers only ask for work, and may be far ahead of it: the counts that they
 * wait for are then of issues asked for, and the order in which these are done is left to the backend's events. Work of
 * the workers' own (the disk's, kernels in the host tier) waits for the events themselves. A step ends when all is
 * done.
 *
 * Where such a backend has graphs (backend.h), a step asks for whole spans of a stream at once (runtime/spans.h), from
 * the second step on: the same work in the same order. A step that is recorded or observed is asked for call by call.
 *
 * Addresses. What runner_data returns is always for the CPU. Where a tier's memory has no addresses for it
 * (arena.mapped), inputs, results and kept activations have mirrors in memory that has, which are sent to the device
 * before each step and fetched after it; weights and state have none and are reached by runner_read and runner_write
 * alone, as on the disk. So: inputs and results through runner_data; weights and state through runner_data where that
 * is not NULL, else (or always) through runner_read and runner_write; what an instruction has made, within a step, by
 * runner_read_operand. */
#ifndef BALLAST_RUNTIME_RUNNER_H
#define BALLAST_RUNTIME_RUNNER_H

#include "runtime/executable.h"
#include "sim/timeline.h"
#include "store/arena.h"

struct runner;

/* `arenas` has one arena a tier, at least of the program's size, with RUNNER_CHANNELS channels on the disk; several
 * runners may share them and take turns (training and evaluation of one model have their parameters at the same
 * places). Borrows both. */
enum { RUNNER_CHANNELS = STREAM_ROLE_COUNT };
enum status runner_create(const struct executable *executable, const struct arena *arenas, struct runner **out);
void runner_free(struct runner *runner);

/* Runs one step with these SCALAR_COUNT values and returns when all streams are done. A program that defers updates
 * makes those that the step before left, with that step's values, and leaves its own. FAILED when a tier's store did:
 * what the arenas hold is then not to be used, and every later step fails alike. */
enum status runner_step(struct runner *runner, const double *scalars);
/* Makes the updates that the last step left, if it left any: before parameters and state are read from outside, or by
 * another program. */
enum status runner_finish(struct runner *runner);

/* The bytes of an input (all grains), result or kept activation (of the last pass's first grain), or of a parameter or
 * state whose home is in memory that the CPU has addresses for. NULL when the program has none, and for other homes. */
void *runner_data(const struct runner *runner, const struct tensor *tensor);
/* Copies [offset, offset + bytes) of a parameter or state between its home, on whatever tier, and memory: by one thread
 * at a time, which has the disk's channel 0, and never while a step may change what is read (runner_set_gate). FAILED
 * when the store does. */
enum status runner_read(struct runner *runner, const struct tensor *tensor, int64_t offset, int64_t bytes, void *to);
enum status runner_write(struct runner *runner, const struct tensor *tensor, int64_t offset, int64_t bytes,
                         const void *from);

/* Called before each instruction that changes a parameter or the optimizer's state, or once before several that are
 * asked for together, by the thread that asks for them: what
 * reads them during a step (a checkpoint) can be waited for there. NULL: none. Not while a step runs. */
typedef void runner_gate(void *payload);
void runner_set_gate(struct runner *runner, runner_gate *gate, void *payload);

/* Called after each instruction; for finding where a value went wrong, or where time goes. While there is one, all
 * streams' instructions run one after the other in the caller's thread. NULL: none. */
typedef void runner_observer(void *payload, const struct runner *runner, int32_t instruction, int64_t run);
void runner_set_observer(struct runner *runner, runner_observer *observer, void *payload);
/* Notes when each instruction of the steps to come runs, on whatever streams: the timeline, made for this program,
 * holds the last whole step. Costs two looks at the clock an instruction, no lock and no memory. On a backend with
 * streams each instruction is waited for, so that its time is known: the others go on meanwhile. NULL: none. Not while
 * a step runs. */
void runner_set_recorder(struct runner *runner, struct timeline *timeline);
/* The program's spans, and how many of them steps launch as graphs: none before the second step, nor where the backend
 * has none; fewer where some could not be captured. */
struct runner_graph_count {
    size_t spans, graphs;
};
struct runner_graph_count runner_count_graphs(const struct runner *runner);
/* For the CPU, the address of an instruction's operand in the given run of its section; NULL where it has none. */
void *runner_operand(const struct runner *runner, const struct operand *operand, int64_t run);
/* Copies operand->bytes from there, from any tier but the disk, in an observer. FAILED when the device does. */
enum status runner_read_operand(const struct runner *runner, const struct operand *operand, int64_t run, void *to);

/* Runs one step's issues one at a time in a random order that streams and waits allow, and fills every buffer in memory
 * with 0xFF bytes once its last use in the step is over. Bit for bit the same result is expected. For tests. */
enum status runner_step_interleaved(struct runner *runner, const double *scalars, uint64_t seed);

#endif
