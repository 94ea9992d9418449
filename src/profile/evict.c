#include "profile/evict.h"

enum { LINE_BYTES = 64 /* or more, of which the rest is written to again */ };

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

bool evict_possible(void) {
    enum { LEAF = 7, CLFLUSHOPT = 23 };
    unsigned a, b = 0, c, d;
    return __get_cpuid_count(LEAF, 0, &a, &b, &c, &d) && b >> CLFLUSHOPT & 1;
}

__attribute__((target("clflushopt"))) static void evict_lines(const char *at, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i += LINE_BYTES)
        _mm_clflushopt((void *)(uintptr_t)(at + i));
    _mm_clflushopt((void *)(uintptr_t)(at + bytes - 1));
    _mm_mfence();
}
#elif defined(__aarch64__)
bool evict_possible(void) { return true; }

static void evict_lines(const char *at, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i += LINE_BYTES)
        __asm__ volatile("dc civac, %0" ::"r"(at + i) : "memory");
    __asm__ volatile("dc civac, %0\n\tdsb ish" ::"r"(at + bytes - 1) : "memory");
}
#else
bool evict_possible(void) { return false; }
static void evict_lines(const char *at, int64_t bytes) { (void)at, (void)bytes; }
#endif

/* Threads take parts: one alone evicts a few GB a second. */
void evict(const void *from, int64_t bytes) {
    enum { PART_BYTES = 1 << 20 };
    const char *at = from;
    if (bytes <= 0 || !evict_possible()) return;
#pragma omp parallel for schedule(static)
    for (int64_t first = 0; first < bytes; first += PART_BYTES)
        evict_lines(at + first, bytes - first < PART_BYTES ? bytes - first : PART_BYTES);
}
