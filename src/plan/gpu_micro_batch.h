/* How many tokens a micro-batch has on a GPU, where nothing else is asked for: a matter of the model and the GPU
 * alone, so that a plan for a target device has the micro-batches that the GPU itself would be given.
 *
 * More tokens fill the GPU's multiprocessors better, and pay once for what each micro-batch costs however small it is:
 * gradients in fp32 are read and written by the GEMM that adds to them. But a micro-batch's activations are in
 * memory at once. */
#pragma once

#include "base/base.h"

enum { GPU_MICRO_BATCH_MIN = 4096, GPU_MICRO_BATCH_MAX = 32768 };

/* For a GPU of so many multiprocessors, and memory: GPU_MICRO_BATCH_MIN times a power of two, to
 * GPU_MICRO_BATCH_MAX. */
int64_t gpu_micro_batch_tokens(int multiprocessors, int64_t memory_bytes, int64_t layers, int64_t width);
