#include "runtime/store/arena.h"

#include "runtime/store/store.h"

static const struct store *store_of(enum tier tier, const struct arena_settings *settings) {
    if (tier == TIER_DISK) return &disk_store;
    if (settings && settings->shared_by) return &shared_segment_store;
    return settings && settings->memory ? &device_store : &memory_store;
}

enum status arena_open(enum tier tier, int64_t bytes, const struct arena_settings *settings, struct arena *out) {
    BUG_IF(bytes < 0, "an arena of %lld bytes", (long long)bytes);
    struct arena arena = {.tier = tier, .bytes = bytes, .store = bytes > 0 ? store_of(tier, settings) : NULL};
    if (arena.store) TRY(arena.store->open(&arena, settings));
    *out = arena;
    return STATUS_OK;
}

void arena_close(struct arena *arena) {
    if (arena->store) arena->store->close(arena);
    *arena = (struct arena){0};
}

static void check_range(const struct arena *arena, int64_t offset, int64_t bytes) {
    BUG_IF(offset < 0 || bytes < 0 || offset > arena->bytes || bytes > arena->bytes - offset,
           "%lld bytes at %lld of the %s arena, which has %lld", (long long)bytes, (long long)offset,
           tier_name(arena->tier), (long long)arena->bytes);
}

enum status arena_read(const struct arena *from, int64_t offset, void *to, int64_t bytes, int channel) {
    check_range(from, offset, bytes);
    return bytes == 0 ? STATUS_OK : from->store->read(from, offset, to, bytes, channel);
}

enum status arena_write(const struct arena *to, int64_t offset, const void *from, int64_t bytes, int channel) {
    check_range(to, offset, bytes);
    return bytes == 0 ? STATUS_OK : to->store->write(to, offset, from, bytes, channel);
}
