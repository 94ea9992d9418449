#include "session/kept_states.h"

#include "base/mem.h"
#include "session/states_file.h"

/* A tensor's piece, its place here, and where it goes through. */
struct passage {
    const struct engine *engine;
    const struct arena *arena;
    void *buffer;
    bool in;
};

static int64_t whole_blocks(int64_t bytes) { return (bytes + DISK_ALIGNMENT - 1) / DISK_ALIGNMENT * DISK_ALIGNMENT; }

static bool is_kept(const struct tensor *tensor) {
    return tensor->kind == TENSOR_PARAMETER || tensor->kind == TENSOR_STATE;
}

/* Bytes of it that this rank has. */
struct range {
    int64_t offset, bytes;
};

static struct range shard_of(const struct engine *engine, const struct tensor *tensor) {
    int64_t first, elements, element = dtype_bytes(tensor->shape.dtype);
    (void)runner_local_shard(engine->main, tensor, &first, &elements);
    return (struct range){first * element, elements * element};
}

int64_t kept_states_bytes(const struct engine *engine) {
    const struct graph *graph = engine_graph(engine);
    int64_t bytes = 0;
    for (size_t t = 0; t < graph->tensors.count; t++)
        if (is_kept(graph->tensors.items[t])) bytes += whole_blocks(shard_of(engine, graph->tensors.items[t]).bytes);
    return bytes;
}

static enum status pass_piece(const struct passage *passage, const struct tensor *tensor, int64_t offset, int64_t bytes,
                              int64_t at) {
    struct runner *runner = passage->engine->main;
    if (passage->in) {
        TRY(runner_read(runner, tensor, offset, bytes, passage->buffer));
        return arena_write(passage->arena, at, passage->buffer, whole_blocks(bytes), 0);
    }
    TRY(arena_read(passage->arena, at, passage->buffer, whole_blocks(bytes), 0));
    return runner_write(runner, tensor, offset, bytes, passage->buffer);
}

/* The same tensors in the same order, whatever the policy. */
static enum status pass_all(const struct passage *passage) {
    const struct graph *graph = engine_graph(passage->engine);
    int64_t at = 0;
    for (size_t t = 0; t < graph->tensors.count; t++) {
        const struct tensor *tensor = graph->tensors.items[t];
        if (!is_kept(tensor)) continue;
        struct range shard = shard_of(passage->engine, tensor);
        for (int64_t done = 0; done < shard.bytes; done += BYTE_STORE_PIECE) {
            int64_t piece = shard.bytes - done < BYTE_STORE_PIECE ? shard.bytes - done : BYTE_STORE_PIECE;
            TRY(pass_piece(passage, tensor, shard.offset + done, piece, at + done));
        }
        at += whole_blocks(shard.bytes);
    }
    return STATUS_OK;
}

static enum status pass(const struct engine *engine, const struct arena *arena, bool in) {
    struct passage passage = {engine, arena, mem_aligned(DISK_ALIGNMENT, BYTE_STORE_PIECE), in};
    enum status status = passage.buffer ? pass_all(&passage) : STATUS_FAILED;
    mem_free(passage.buffer);
    return status;
}

enum status kept_states_take(const struct engine *engine, enum tier tier, const char *folder, struct kept_states *out) {
    const struct machine *machine = &engine->plan->session->machine;
    const struct arena_settings settings = {
        .folder = folder, .channels = 1, .engine = machine->disk_engine, .buffered = machine->disk_buffered};
    *out = (struct kept_states){0};
    enum status status = arena_open(tier, kept_states_bytes(engine), &settings, &out->arena);
    if (status == STATUS_OK) status = pass(engine, &out->arena, true);
    return comm_agree(engine->plan->session->comm, status);
}

enum status kept_states_take_together(const struct engine *engine, const char *folder, struct kept_states *out) {
    *out = (struct kept_states){.comm = engine->plan->session->comm};
    return states_file_write(engine, folder, &out->path);
}

enum status kept_states_give(const struct kept_states *kept, const struct engine *engine) {
    if (kept->path) return states_file_read(engine, kept->path);
    return comm_agree(engine->plan->session->comm, pass(engine, &kept->arena, false));
}

void kept_states_free(struct kept_states *kept) {
    if (kept->path) states_file_remove(kept->comm, kept->path);
    mem_free(kept->path);
    arena_close(&kept->arena);
    *kept = (struct kept_states){0};
}
