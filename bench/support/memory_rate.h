/* The machine's memory bandwidth, as operators that do little arithmetic meet it. */
#ifndef BALLAST_BENCH_MEMORY_RATE_H
#define BALLAST_BENCH_MEMORY_RATE_H

#include "store/arena.h"

struct memory_rate {
    struct arena arena; /* two arrays, each several times the size of the last cache */
};

enum status memory_rate_open(struct memory_rate *out);
void memory_rate_close(struct memory_rate *rate);
/* Bytes a second, by all of OpenMP's threads, of a += b in fp32: two read for one written, and none that op_cost does
 * not count, as when caches read what is about to be overwritten. The median of a few runs, about 0.1 s. */
double memory_rate_measure(const struct memory_rate *rate);

#endif
