/* Batches: instructions that follow each other on a stream and whose kernels do their work in one call
 * (kernel->run_together of backend.h), as the updates of a chunk's parameters do on a GPU.
 *
 * A batch begins and ends at once for all other streams, so only its first instruction waits for others and only its
 * last is waited for. Its kernels are the device's, all deferred or none; none of them uses what another one
 * writes. */
#pragma once

#include "compiler/program.h"
#include "runtime/executable.h"

/* *last: by instruction, the last instruction of the batch that begins there; itself where none begins. FAILED only for
 * lack of memory; the caller frees by mem_free in any case. */
enum status batches_find(const struct executable *executable, int32_t **last);

/* Graph segments: instructions on one stream that a graph, captured once, launches as a whole (backend.h).
 *
 * A graph holds its calls' arguments, and begins and ends at once for all other streams. So a graph segment is a
 * longest sequence of consecutive instructions on a stream in one repetition of a section, under these conditions:
 * - Each instruction is work of the device (not of the disk, the host tier or between ranks).
 * - Each has the same addresses in every repetition: no operand moves on, and values of the step are read from a fixed
 *   address in device memory.
 * - Each is executed in every step. Deferred updates are excluded: each forward kernel that reads one waits for it, so
 *   a graph would save nothing.
 * - All of them change parameters or the optimizer's state or none does, since these changes wait for the runner's
 * gate.
 * - Only the first waits for other streams, and other streams only wait for the last. */

/* Launching a graph takes a processor some 2.5 us however long the graph is (NVIDIA, "Constant Time Launch for
 * Straight-Line CUDA Graphs", CUDA 12.6), as long as one or two kernel launches. A graph of fewer than four calls saves
 * little for the device memory that it takes. */
enum { GRAPH_SEGMENT_MIN = 4 };

struct graph_segment {
    int32_t first, last; /* instructions of the stream; those of others in between are not part of it */
    int32_t count;
    int64_t runs; /* in a step */
    bool changes_state;
};

struct graph_segments {
    VEC(struct graph_segment) all; /* ordered by executions per step, most frequent first */
    int32_t *at;                   /* by instruction: the graph segment that begins there; -1: none */
};

/* FAILED only for lack of memory; free in any case. */
enum status graph_segments_find(const struct program *program, struct graph_segments *out);
void graph_segments_free(struct graph_segments *graph_segments);
