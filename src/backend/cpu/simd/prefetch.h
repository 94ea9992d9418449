/* Memory that is prefetched ahead of its use, a share at a time. */
#ifndef BALLAST_BACKEND_CPU_SIMD_PREFETCH_H
#define BALLAST_BACKEND_CPU_SIMD_PREFETCH_H

#include "backend/cpu/simd/simd.h"

enum { PREFETCH_LINE = 64 };

/* Bytes that will be read soon: some of their lines of the cache are asked for in each turn of a loop. */
struct prefetch {
    const char *line;
    int64_t at, bytes, stride, lines; /* within the line that is next; of each line */
    int64_t share;                    /* of a turn */
};

INLINE struct prefetch prefetch_of(const void *from, int64_t lines, int64_t bytes, int64_t stride, int64_t turns) {
    int64_t all = lines * ((bytes + PREFETCH_LINE - 1) / PREFETCH_LINE);
    return (struct prefetch){from, 0, bytes, stride, lines, (all + turns - 1) / turns};
}

INLINE void prefetch_lines(struct prefetch *from, int64_t count) {
    for (; count > 0 && from->lines > 0; count--) {
        __builtin_prefetch(from->line + from->at, 1, 2);
        from->at += PREFETCH_LINE;
        if (from->at < from->bytes) continue;
        from->at = 0, from->line += from->stride, from->lines--;
    }
}

#endif
