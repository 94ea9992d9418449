/* Time of Rotor's solver in 500 slots, by length of the chain, beside the least that its innermost loop could take: as
 * many additions and minima over rows that stay in the cache, measured in the same run.
 *
 *     build/bench/rotor_speed */
#include <math.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/process.h"
#include "base/random.h"
#include "plan/rotor.h"

enum { SLOTS = 500, RUNS = 3, ROWS = 20000 };

/* Seconds for one slot of one choice. */
static double measure_least(void) {
    static double later[SLOTS], earlier[SLOTS], times[SLOTS];
    for (int m = 0; m < SLOTS; m++)
        times[m] = m, later[m] = earlier[m] = SLOTS - m;
    int64_t start = clock_now_ns();
    for (int row = 0; row < ROWS; row++) {
        for (int m = 0; m < SLOTS; m++) {
            double time = row + later[m] + earlier[m];
            times[m] = time < times[m] ? time : times[m];
        }
        __asm__ volatile("" ::: "memory");
    }
    return (double)(clock_now_ns() - start) * 1e-9 / ((double)ROWS * SLOTS);
}

/* Stages of one size class in turn; half of what keeping all takes fits. */
static enum status make_chain(int count, struct chain *out) {
    TRY(chain_create(count, out));
    int64_t least = SLOTS / count > 2 ? SLOTS / count : 2;
    for (int i = 0; i < count; i++) {
        uint64_t bits = random_u64(1, RANDOM_TEST, 0, (uint64_t)i);
        out->stages[i] = (struct chain_stage){.forward_time = (double)(1 + bits % 9),
                                              .backward_time = (double)(2 + bits % 17),
                                              .output = 1 + (int64_t)(bits >> 8 & 1),
                                              .saved = 2 * least + (int64_t)(bits >> 16 & 1),
                                              .backward_temporary = (int64_t)(bits >> 24 & 3)};
    }
    return STATUS_OK;
}

static enum status measure(int count, double least) {
    struct chain chain;
    TRY(make_chain(count, &chain));
    double best = INFINITY;
    enum status status = STATUS_OK;
    for (int run = 0; run < RUNS && status == STATUS_OK; run++) {
        struct recompute_schedule schedule = {0};
        struct recompute_cost cost;
        int64_t start = clock_now_ns();
        status = rotor_solve(&chain, SLOTS, &schedule, &cost);
        best = fmin(best, (double)(clock_now_ns() - start) * 1e-9);
        vec_free(&schedule);
    }
    chain_free(&chain);
    double choices = (double)count * count * count / 6 * SLOTS;
    if (status == STATUS_OK)
        printf("%4d stages, %d slots: %8.1f ms, %.2f of the loop's least\n", count, SLOTS, best * 1e3,
               best / (choices * least));
    return status;
}

int main(void) {
    if (process_begin() != STATUS_OK) return STATUS_FAILED;
    static const int counts[] = {12, 25, 50, 100, 200};
    double least = measure_least();
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        if (measure(counts[i], least) != STATUS_OK) {
            fprintf(stderr, "rotor_speed: %d stages: %s\n", counts[i], status_message());
            return 1;
        }
    return 0;
}
