#include "support/memory_rate.h"

#include <string.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "base/clock.h"
#include "support/median.h"

enum { ARRAYS = 2, ELEMENTS = 64 << 20, PART = 1 << 18, RUNS = 5 };

typedef void part_loop(float *a, const float *b, int64_t count);

enum status memory_rate_open(struct memory_rate *out) {
    return arena_open(TIER_DEVICE, (int64_t)ARRAYS * ELEMENTS * (int64_t)sizeof(float), NULL, &out->arena);
}

void memory_rate_close(struct memory_rate *rate) { arena_close(&rate->arena); }

static volatile float used; /* so that no read is left out */

static void read_part(float *a, const float *b, int64_t count) {
    (void)b;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < count; i++)
        sum += a[i];
    used = sum;
}

static void add_part(float *a, const float *b, int64_t count) {
#pragma omp simd
    for (int64_t i = 0; i < count; i++)
        a[i] += b[i];
}

static void fill_part(float *a, const float *b, int64_t count) {
    (void)b;
    memset(a, 0, (size_t)count * sizeof *a);
}

static void copy_part(float *a, const float *b, int64_t count) {
#pragma omp simd
    for (int64_t i = 0; i < count; i++)
        a[i] = b[i] + 1;
}

/* The same by stores that go past the caches, where the compiler has them. */
#if defined(__x86_64__)
static void fill_past(float *a, const float *b, int64_t count) {
    (void)b;
    for (int64_t i = 0; i < count; i += 4)
        _mm_stream_ps(a + i, _mm_setzero_ps());
    _mm_sfence();
}

static void copy_past(float *a, const float *b, int64_t count) {
    for (int64_t i = 0; i < count; i += 4)
        _mm_stream_ps(a + i, _mm_add_ps(_mm_load_ps(b + i), _mm_set1_ps(1)));
    _mm_sfence();
}
#else
static part_loop *const fill_past = NULL, *const copy_past = NULL;
#endif

static double seconds_of(const struct memory_rate *rate, part_loop *loop) {
    float *a = rate->arena.base;
    const float *b = a + ELEMENTS;
    double seconds[RUNS];
    for (int run = 0; run < RUNS; run++) {
        int64_t start = clock_now_ns();
#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < ELEMENTS; i += PART)
            loop(a + i, b + i, PART);
        seconds[run] = (double)(clock_now_ns() - start) * 1e-9;
    }
    return median(seconds, RUNS);
}

double memory_rate_measure(const struct memory_rate *rate, enum memory_use use) {
    const struct {
        int counted; /* arrays that are read or written */
        part_loop *plain, *past;
    } loops[MEMORY_USES] = {
        [MEMORY_READS] = {1, read_part, NULL},
        [MEMORY_FILLS] = {1, fill_part, fill_past},
        [MEMORY_COPIES] = {2, copy_part, copy_past},
        [MEMORY_ADDS] = {3, add_part, NULL},
    };
    double seconds = seconds_of(rate, loops[use].plain);
    double past = loops[use].past ? seconds_of(rate, loops[use].past) : seconds;
    return (double)loops[use].counted * ELEMENTS * (double)sizeof(float) / (past < seconds ? past : seconds);
}

const char *memory_use_name(enum memory_use use) {
    static const char *const names[MEMORY_USES] = {"reads", "fills", "copies", "adds"};
    return names[use];
}
