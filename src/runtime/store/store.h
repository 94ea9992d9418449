/* The implementation of a tier: a table of functions. arena.c checks arguments.
 *
 * Files, in the order to read them:
 *   arena: a tier's memory (the host's, which ranks of a node may share, and a backend's); copies between tiers;
 *   store: this file;
 *   disk: the disk tier: its file, its requests, and the interface of the engines that execute them;
 *   disk_threads, disk_uring, disk_uring_absent: the engines. */
#pragma once

#include "runtime/store/arena.h"

struct store {
    const char *name;
    /* `arena` has its tier and bytes; sets base, mapped and state. On failure there is nothing to close. */
    enum status (*open)(struct arena *arena, const struct arena_settings *settings);
    enum status (*read)(const struct arena *from, int64_t offset, void *to, int64_t bytes, int channel);
    enum status (*write)(const struct arena *to, int64_t offset, const void *from, int64_t bytes, int channel);
    void (*close)(struct arena *arena);
};

extern const struct store disk_store;

/* How an open disk tier works, for reports. */
struct disk_description {
    const char *engine; /* "io_uring" or "threads" */
    bool direct;        /* past the page cache */
};
struct disk_description disk_store_describe(const struct arena *arena);
