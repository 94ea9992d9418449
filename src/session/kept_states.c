#include "session/kept_states.h"

/* A tensor's piece, its place here, and where it goes through. */
struct passage {
    const struct engine *engine;
    const struct arena *arena;
    void *room;
    bool in;
};

static int64_t whole_blocks(int64_t bytes) { return (bytes + DISK_ALIGNMENT - 1) / DISK_ALIGNMENT * DISK_ALIGNMENT; }

static bool is_kept(const struct tensor *tensor) {
    return tensor->kind == TENSOR_PARAMETER || tensor->kind == TENSOR_STATE;
}

int64_t kept_states_bytes(const struct session_plan *plan) {
    const struct graph *graph = programs_main(&plan->programs)->graph;
    int64_t bytes = 0;
    for (size_t t = 0; t < graph->tensors.count; t++)
        if (is_kept(graph->tensors.items[t])) bytes += whole_blocks(shape_bytes(&graph->tensors.items[t]->shape));
    return bytes;
}

static enum status pass_piece(const struct passage *passage, const struct tensor *tensor, int64_t offset, int64_t bytes,
                              int64_t at) {
    struct runner *runner = passage->engine->main;
    if (passage->in) {
        TRY(runner_read(runner, tensor, offset, bytes, passage->room));
        return arena_write(passage->arena, at, passage->room, whole_blocks(bytes), 0);
    }
    TRY(arena_read(passage->arena, at, passage->room, whole_blocks(bytes), 0));
    return runner_write(runner, tensor, offset, bytes, passage->room);
}

static bool has_home(const struct engine *engine, const struct tensor *tensor) {
    int64_t first, elements;
    (void)runner_home(engine->main, tensor, &first, &elements);
    return elements > 0;
}

/* The same tensors in the same order, whatever the policy. */
static enum status pass_all(const struct passage *passage) {
    const struct graph *graph = engine_graph(passage->engine);
    int64_t at = 0;
    for (size_t t = 0; t < graph->tensors.count; t++) {
        const struct tensor *tensor = graph->tensors.items[t];
        int64_t bytes = shape_bytes(&tensor->shape);
        if (!is_kept(tensor) || !has_home(passage->engine, tensor)) continue;
        for (int64_t offset = 0; offset < bytes; offset += BYTE_STORE_PIECE) {
            int64_t piece = bytes - offset < BYTE_STORE_PIECE ? bytes - offset : BYTE_STORE_PIECE;
            TRY(pass_piece(passage, tensor, offset, piece, at + offset));
        }
        at += whole_blocks(bytes);
    }
    return STATUS_OK;
}

static enum status pass(const struct engine *engine, const struct arena *arena, bool in) {
    struct passage passage = {engine, arena, mem_aligned(DISK_ALIGNMENT, BYTE_STORE_PIECE), in};
    enum status status = passage.room ? pass_all(&passage) : STATUS_FAILED;
    mem_free(passage.room);
    return status;
}

enum status kept_states_take(const struct engine *engine, enum tier tier, const char *folder, struct kept_states *out) {
    const struct machine *machine = &engine->plan->session->machine;
    const struct arena_settings settings = {
        .folder = folder, .channels = 1, .engine = machine->disk_engine, .buffered = machine->disk_buffered};
    *out = (struct kept_states){0};
    TRY(arena_open(tier, kept_states_bytes(engine->plan), &settings, &out->arena));
    return pass(engine, &out->arena, true);
}

enum status kept_states_give(const struct kept_states *kept, const struct engine *engine) {
    return pass(engine, &kept->arena, false);
}

void kept_states_free(struct kept_states *kept) {
    arena_close(&kept->arena);
    *kept = (struct kept_states){0};
}
