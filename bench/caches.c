/* What the caches hold: rates of reading and storing a range again and again, by its size, and once it was taken out of
 * the caches (profile/evict.h). A virtual machine's share of the last cache is less than the processor says.
 *
 *     build/bench/caches [MOST_MB]
 *
 * Of 1 MB, 2 MB, … up to MOST_MB (1024), with all threads, in GB/s. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/process.h"
#include "profile/evict.h"
#include "store/arena.h"

enum { PART_BYTES = 1 << 20, MOST_MB = 1 << 14, AT_LEAST_MB = 256 /* in a measurement */ };

/* The sum of one word a line: all lines are read. */
static int64_t read_all(const char *from, int64_t bytes) {
    enum { LINE_BYTES = 64 };
    int64_t sum = 0;
#pragma omp parallel for schedule(static) reduction(+ : sum)
    for (int64_t i = 0; i < bytes; i += LINE_BYTES)
        sum += from[i];
    return sum;
}

static int64_t store_all(char *to, int64_t bytes) {
#pragma omp parallel for schedule(static)
    for (int64_t first = 0; first < bytes; first += PART_BYTES)
        memset(to + first, 1, PART_BYTES);
    return to[0];
}

static volatile int64_t used; /* so that no read is left out */

static double rate(char *at, int64_t bytes, bool stores, bool evicted) {
    int64_t ns = 0, moved = 0;
    while (moved < (int64_t)AT_LEAST_MB << 20) {
        if (evicted) evict(at, bytes);
        int64_t begin = clock_now_ns();
        used = stores ? store_all(at, bytes) : read_all(at, bytes);
        ns += clock_now_ns() - begin;
        moved += bytes;
    }
    return (double)moved / (double)ns;
}

static enum status run(int64_t most_mb) {
    struct arena arena;
    TRY(arena_open(TIER_DEVICE, most_mb << 20, NULL, &arena));
    printf("%8s %8s %8s %8s %8s   GB/s%s\n", "MB", "stores", "evicted", "reads", "evicted",
           evict_possible() ? "" : "; this processor cannot evict");
    for (int64_t mb = 1; mb <= most_mb; mb *= 2) {
        double rates[4];
        for (int i = 0; i < 4; i++) {
            (void)rate(arena.base, mb << 20, i < 2, i % 2);
            rates[i] = rate(arena.base, mb << 20, i < 2, i % 2);
        }
        printf("%8lld %8.1f %8.1f %8.1f %8.1f\n", (long long)mb, rates[0], rates[1], rates[2], rates[3]);
        fflush(stdout);
    }
    arena_close(&arena);
    return STATUS_OK;
}

int main(int count, char **words) {
    if (process_begin() != STATUS_OK) return STATUS_FAILED;
    int64_t most_mb = count > 1 ? atoll(words[1]) : 1024;
    enum status status = most_mb >= 1 && most_mb <= MOST_MB
                             ? run(most_mb)
                             : status_set(STATUS_BAD_INPUT, "MOST_MB: from 1 to %d", MOST_MB);
    if (status != STATUS_OK) fprintf(stderr, "%s: %s\n", words[0], status_message());
    return (int)status;
}
