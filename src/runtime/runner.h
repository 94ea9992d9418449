/* Executes a program in given arenas: one worker for each stream, waits between them, no allocation in a step.
 *
 * Files, in the order to read them:
 *   executable: a program with its kernels;
 *   runner: this file; instructions and steps;
 *   runner_state: shared by the runner's files;
 *   tensors: reading and writing them between steps;
 *   streams: a thread per stream; a backend's streams and events;
 *   segments: instructions that are enqueued together: kernels of one call, graphs.
 *
 * On a backend with streams (backend.h) the workers only enqueue work and may be far ahead of it: the counts that they
 * wait for are of issues enqueued, and the backend's events order the execution. The workers' own work (disk copies,
 * kernels in the host tier) waits for the events. A step ends when all work is done.
 *
 * Where such a backend has graphs (backend.h), steps from the second on launch whole segments of a stream at once
 * (runtime/segments.h): the same work in the same order. A step that is recorded or observed is enqueued call by call.
 *
 * Addresses. runner_data returns addresses that the CPU can use. Where it cannot use a tier's memory (arena.mapped),
 * inputs, results and kept activations have CPU copies, which are sent to the device before each step and fetched after
 * it. Weights and state have none: runner_data returns NULL for them, as on the disk, and runner_read and runner_write
 * copy them; these work on every tier. Within a step, runner_read_operand reads what an instruction wrote. */
#pragma once

#include "comm/comm.h"
#include "runtime/executable.h"
#include "runtime/store/arena.h"
#include "search/sim/timeline.h"

struct runner;

/* `arenas` has one arena a tier, at least of the program's size, with RUNNER_CHANNELS channels on the disk; several
 * runners may share them and take turns (programs of one model have their parameters at the same offsets). Borrows
 * all. With several ranks (`comm`; NULL: one) creating is collective, and so is each step of a program that has
 * operations between them; the arenas that these work on are shared where program->place.in_place says so. */
enum { RUNNER_CHANNELS = STREAM_ROLE_COUNT };
enum status runner_create(const struct executable *executable, const struct arena *arenas, struct comm *comm,
                          struct runner **out);
void runner_free(struct runner *runner);

/* Makes one step with these SCALAR_COUNT values and returns when all streams are done. A program that defers updates
 * makes those of the previous step, with that step's values, and leaves its own to the next. FAILED when a tier's store
 * failed: the arenas' contents are then invalid, and every later step fails alike. */
enum status runner_step(struct runner *runner, const double *scalars);
/* Makes the updates that the last step left, if any. To be called before parameters and state are read from outside or
 * by another program. */
enum status runner_finish(struct runner *runner);

/* The bytes of an input (all micro-batches), result or kept activation (of the last wave's first micro-batch), in
 * memory that the CPU can address. Also of a parameter or state, if this rank has all of it. NULL if the program has
 * none, and for other home tiers. */
void *runner_data(const struct runner *runner, const struct tensor *tensor);
/* The elements of a parameter or state that this rank has: all, or those of its shard, which may be none. Returns the
 * address of the first of them; NULL where the CPU has none. */
void *runner_local_shard(const struct runner *runner, const struct tensor *tensor, int64_t *first, int64_t *elements);
/* Copies bytes [offset, offset + bytes) of a parameter or state that this rank has between its home, on any tier, and
 * memory. Only one thread at a time may call it, which uses the disk's channel 0, and never while a step may change the
 * bytes (runner_set_gate). FAILED if the store fails. */
enum status runner_read(struct runner *runner, const struct tensor *tensor, int64_t offset, int64_t bytes, void *to);
enum status runner_write(struct runner *runner, const struct tensor *tensor, int64_t offset, int64_t bytes,
                         const void *from);

/* Called before each instruction that changes a parameter or the optimizer's state, or once before several that are
 * enqueued together, by the thread that enqueues or executes them; it may wait for a reader of these (a checkpoint).
 * NULL: none. Not to be set within a step. */
typedef void runner_gate(void *payload);
void runner_set_gate(struct runner *runner, runner_gate *gate, void *payload);

/* Called after each instruction, for finding where a value went wrong. While there is one, the instructions of all
 * streams are executed one after the other in the caller's thread. NULL: none. */
typedef void runner_observer(void *payload, const struct runner *runner, int32_t instruction, int64_t repetition);
void runner_set_observer(struct runner *runner, runner_observer *observer, void *payload);
/* Records when each instruction begins and ends in the steps to come: the timeline, made for this program, holds the
 * last whole step. Costs two readings of the clock an instruction, no lock and no memory. On a backend with streams the
 * worker waits for each instruction to know its time; other streams go on. NULL: none. Not to be set within a step. */
void runner_set_recorder(struct runner *runner, struct timeline *timeline);
/* The CPU's address of an instruction's operand in the given repetition of its section; NULL where it has none. */
void *runner_operand(const struct runner *runner, const struct operand *operand, int64_t repetition);
/* Copies operand->bytes of it, from any tier but the disk; for observers. FAILED when the device fails. */
enum status runner_read_operand(const struct runner *runner, const struct operand *operand, int64_t repetition,
                                void *to);
