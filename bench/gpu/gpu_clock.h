/* Seconds of work on a GPU by its own clock, for the benchmarks of bench/gpu. */
#pragma once

#include "backend/backend.h"

struct gpu_clock {
    void *stream, *begin, *end; /* of backend_cuda */
};

/* BAD_INPUT where there is no GPU. */
enum status gpu_clock_open(struct gpu_clock *out);
void gpu_clock_close(struct gpu_clock *clock);
/* Seconds of `calls` calls of `enqueue`, which puts work on the clock's stream, one after the other. */
enum status gpu_clock_time(const struct gpu_clock *clock, enum status (*enqueue)(void *context), void *context,
                           int calls, double *seconds);
/* Seconds of a call: the median of several such rows, after one that is not counted. */
enum status gpu_clock_call(const struct gpu_clock *clock, enum status (*enqueue)(void *context), void *context,
                           int calls, double *seconds);

/* A program's main: its status, and "NAME: MESSAGE" on stderr; 77 without a GPU. */
int gpu_clock_main(const char *name, enum status (*measure)(const struct gpu_clock *clock));
