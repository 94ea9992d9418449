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

/* Graph segments: where a program's instructions on one stream can be asked for as a whole, by a graph that was
 * captured once (backend.h).
 *
 * A graph holds its calls' arguments and begins and ends at once for all other streams. So a graph segment is a longest
 * sequence of instructions that follow each other on a stream in one repetition of a section, of which
 * - each is work of the device's (not the disk's, nor in the host tier, nor between ranks), at the same addresses in
 * every repetition (no operand moves on; values of the step are read from the device's memory, at one address too), and
 * in every step (not deferred: each forward kernel that reads a deferred update waits for it, so nothing would be won);
 * - all change parameters or the optimizer's state or none does, since these changes wait for the runner's gate;
 * - only the first waits for other streams, and only the last is waited for. */

/* Launching a graph takes a processor some 2.5 us however long it is (NVIDIA, "Constant Time Launch for Straight-Line
 * CUDA Graphs", CUDA 12.6), which is what one or two kernels take: with fewer than four calls little is saved for what
 * a graph takes of the device's memory. */
enum { GRAPH_SEGMENT_MIN = 4 };

struct graph_segment {
    int32_t first, last; /* instructions of the stream; those of others in between are not part of it */
    int32_t count;
    int64_t runs; /* in a step */
    bool changes_state;
};

struct graph_segments {
    VEC(struct graph_segment) all; /* those that a step runs most often first */
    int32_t *at;                   /* by instruction: the graph segment that begins there; -1: none */
};

/* FAILED only for lack of memory; free in any case. */
enum status graph_segments_find(const struct program *program, struct graph_segments *out);
void graph_segments_free(struct graph_segments *graph_segments);
