/* How many tokens a grain has on a GPU, where nothing else is asked for.
 *
 * More fill the card's multiprocessors better, and pay once for what each grain costs however small it is: gradients in
 * fp32 are read and written by the product that adds to them. But a grain's activations are in memory at once. */
#ifndef BALLAST_BACKEND_CUDA_CUDA_GRAIN_H
#define BALLAST_BACKEND_CUDA_CUDA_GRAIN_H

#include <stdint.h>

enum { CUDA_GRAIN_LEAST = 4096, CUDA_GRAIN_MOST = 32768 };

/* For a card of so many multiprocessors, and memory: CUDA_GRAIN_LEAST times a power of two, to CUDA_GRAIN_MOST. */
int64_t cuda_grain_tokens(int multiprocessors, int64_t memory_bytes, int64_t layers, int64_t width);

/* For the device of the process: backend->choose_grain_tokens. CUDA_GRAIN_LEAST where it cannot be asked. */
int64_t cuda_choose_grain_tokens(int64_t layers, int64_t width, int64_t device_bytes);

#endif
