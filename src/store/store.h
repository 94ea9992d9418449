/* What stands behind a tier: a table of functions. Arguments are checked by arena.c. */
#ifndef BALLAST_STORE_STORE_H
#define BALLAST_STORE_STORE_H

#include "store/arena.h"

struct store {
    const char *name;
    /* `arena` has its tier and bytes; sets base, mapped and state. On failure there is nothing to close. */
    enum status (*open)(struct arena *arena, const struct arena_settings *settings);
    enum status (*read)(const struct arena *from, int64_t offset, void *to, int64_t bytes, int channel);
    enum status (*write)(const struct arena *to, int64_t offset, const void *from, int64_t bytes, int channel);
    void (*close)(struct arena *arena);
};

extern const struct store memory_store, device_store;
extern const struct store disk_store;

#endif
