/* Measures the machine's memory bandwidth, with the access patterns of memory-bound operators. */
#pragma once

#include "runtime/store/arena.h"

/* What a loop does with its arrays. A line that is overwritten is read into a cache first, which costs as much as any
 * other read and is in no count of operands (op_cost); only stores that go past the caches do without. So loops that
 * write what they do not read are measured both ways, and count by the faster one. */
enum memory_use {
    MEMORY_READS,  /* sum += a[i] */
    MEMORY_FILLS,  /* a[i] = 0 */
    MEMORY_COPIES, /* a[i] = b[i] + 1 */
    MEMORY_ADDS,   /* a[i] += b[i]: two read for one written, and none that op_cost does not count */
    MEMORY_USES
};

struct memory_rate {
    struct arena arena; /* two arrays, each several times the size of the last cache */
};

enum status memory_rate_open(struct memory_rate *out);
void memory_rate_close(struct memory_rate *rate);
/* Bytes of operands a second, by all of OpenMP's threads, in fp32. The median of a few runs, about 0.1 s. */
double memory_rate_measure(const struct memory_rate *rate, enum memory_use use);
/* "reads" and so on. */
const char *memory_use_name(enum memory_use use);
