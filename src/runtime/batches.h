/* Batches: instructions that follow each other on a stream and whose kernels do their work in one call
 * (kernel->run_together of backend.h), as the updates of a chunk's parameters do on a GPU.
 *
 * A batch begins and ends at once for all other streams, so only its first instruction waits for others and only its
 * last is waited for. Its kernels are the device's, all deferred or none; none of them uses what another one
 * writes. */
#pragma once

#include "runtime/executable.h"

/* *last: by instruction, the last instruction of the batch that begins there; itself where none begins. FAILED only for
 * lack of memory; the caller frees by mem_free in any case. */
enum status batches_find(const struct executable *executable, int32_t **last);
