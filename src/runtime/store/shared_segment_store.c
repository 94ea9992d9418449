/* Tiers in memory that the ranks of a node share: operations between them read it in place. */
#include "base/mem.h"
#include "base/size.h"
#include "runtime/store/store.h"

struct shared_memory {
    struct comm *comm;
    struct comm_shared_segment shared_segment;
};

static enum status take(struct arena *arena, struct shared_memory *shared) {
    char text[SIZE_TEXT];
    enum status status = comm_shared_segment_open(shared->comm, arena->bytes, &shared->shared_segment);
    if (status == STATUS_OK && !shared->shared_segment.shared) {
        comm_shared_segment_close(shared->comm, &shared->shared_segment);
        status = status_set(STATUS_FAILED, "the system gives the ranks of a node no common memory");
    }
    if (status == STATUS_OK) return STATUS_OK;
    status = status_prefix(status, "%s for the %s arena", size_print(arena->bytes, text), tier_name(arena->tier));
    return status_hint(status, "lower --device-memory and --host-memory, or close other programs");
}

static enum status open_shared_segment(struct arena *arena, const struct arena_settings *settings) {
    struct shared_memory *shared = mem_array(1, sizeof *shared);
    TRY(comm_agree(settings->shared_by, shared ? STATUS_OK : STATUS_FAILED));
    shared->comm = settings->shared_by;
    enum status status = take(arena, shared);
    if (status != STATUS_OK) {
        mem_free(shared);
        return status;
    }
    arena->base = shared->shared_segment.base;
    arena->mapped = true;
    arena->state = shared;
    return STATUS_OK;
}

static void close_shared_segment(struct arena *arena) {
    struct shared_memory *shared = arena->state;
    comm_shared_segment_close(shared->comm, &shared->shared_segment);
    mem_free(shared);
}

const struct store shared_segment_store = {.name = "window",
                                           .open = open_shared_segment,
                                           .read = store_read_memory,
                                           .write = store_write_memory,
                                           .close = close_shared_segment};
