/* Time for metrics and measurement. */
#pragma once

#include <time.h>

#include "base/base.h"

static inline int64_t clock_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The beginning of today in UTC, in seconds since 1970. */
static inline int64_t clock_today_s(void) {
    enum { DAY_S = 24 * 60 * 60 };
    int64_t now_s = (int64_t)time(NULL);
    return now_s > 0 ? now_s / DAY_S * DAY_S : 0;
}
