/* Times work on a GPU with the GPU's clock, for the benchmarks in bench/gpu. */
#pragma once

#include "backend/backend.h"

struct gpu_clock {
    void *stream, *begin, *end; /* objects of backend_cuda */
};

/* Returns BAD_INPUT if there is no GPU. */
enum status gpu_clock_open(struct gpu_clock *out);
void gpu_clock_close(struct gpu_clock *clock);
/* Times `calls` successive calls of `enqueue`, which puts work on the clock's stream. In seconds. */
enum status gpu_clock_time(const struct gpu_clock *clock, enum status (*enqueue)(void *context), void *context,
                           int calls, double *seconds);
/* Times one call, in seconds: the median over several series of calls, after a warm-up. */
enum status gpu_clock_call(const struct gpu_clock *clock, enum status (*enqueue)(void *context), void *context,
                           int calls, double *seconds);

/* Implements a program's main. Returns its exit status, 77 without a GPU, and prints "NAME: MESSAGE" on stderr. */
int gpu_clock_main(const char *name, enum status (*measure)(const struct gpu_clock *clock));
