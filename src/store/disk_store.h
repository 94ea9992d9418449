/* How an open disk tier works, for reports. */
#ifndef BALLAST_STORE_DISK_STORE_H
#define BALLAST_STORE_DISK_STORE_H

#include "store/arena.h"

struct disk_description {
    const char *engine; /* "io_uring" or "threads" */
    bool direct;        /* past the page cache */
};
struct disk_description disk_store_describe(const struct arena *arena);

#endif
