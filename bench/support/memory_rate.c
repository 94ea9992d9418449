#include "support/memory_rate.h"

#include "base/clock.h"
#include "support/median.h"

enum { ARRAYS = 2, ELEMENTS = 64 << 20, RUNS = 5 };

enum status memory_rate_open(struct memory_rate *out) {
    return arena_open(TIER_DEVICE, (int64_t)ARRAYS * ELEMENTS * (int64_t)sizeof(float), NULL, &out->arena);
}

void memory_rate_close(struct memory_rate *rate) { arena_close(&rate->arena); }

double memory_rate_measure(const struct memory_rate *rate) {
    float *a = rate->arena.base;
    const float *b = a + ELEMENTS;
    double seconds[RUNS];
    for (int run = 0; run < RUNS; run++) {
        int64_t start = clock_now_ns();
#pragma omp parallel for simd schedule(static)
        for (int64_t i = 0; i < ELEMENTS; i++)
            a[i] += b[i];
        seconds[run] = (double)(clock_now_ns() - start) * 1e-9;
    }
    return 1.5 * (double)rate->arena.bytes / median(seconds, RUNS);
}
