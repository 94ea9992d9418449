#include "session/states.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/file.h"
#include "session/machine.h"

static struct comm *comm_of(const struct engine *engine) { return engine->plan->session->comm; }

static bool is_kept(const struct tensor *tensor) {
    return tensor->kind == TENSOR_PARAMETER || tensor->kind == TENSOR_STATE;
}

/* Bytes of a tensor that this rank has. */
struct range {
    int64_t first, bytes;
};

static struct range shard_of(const struct engine *engine, const struct tensor *tensor) {
    int64_t first, elements, element = dtype_bytes(tensor->shape.dtype);
    (void)runner_local_shard(engine->main, tensor, &first, &elements);
    return (struct range){first * element, elements * element};
}

/* ---- of all ranks in one file: each writes a part, and reads what another plan gives it ---- */

/* Ranks that share tensors, and stages, have other tensors, each set of which has a part of the file: `bytes` long, as
 * the longest is. Data ranks of one set have elements of the same tensors. */
static enum status find_part(const struct engine *engine, int64_t *begin) {
    const struct rank_place *place = &engine->plan->chosen.place;
    const struct graph *graph = engine_graph(engine);
    int64_t bytes = 0;
    for (size_t t = 0; t < graph->tensors.count; t++)
        if (is_kept(graph->tensors.items[t])) bytes -= shape_bytes(&graph->tensors.items[t]->shape);
    TRY(rank_budget_min(comm_of(engine), &bytes));
    *begin = -bytes * (rank_place_stage(place) * rank_place_tensor_parallel(place) + rank_place_tensor_rank(place));
    return STATUS_OK;
}

/* Of those that have the same elements each has a part to write. */
static struct range written_of(const struct engine *engine, const struct tensor *tensor) {
    const struct rank_place *place = &engine->plan->chosen.place;
    int64_t element = dtype_bytes(tensor->shape.dtype), width = engine_width(engine, tensor->kind);
    int64_t own = rank_place_data_rank(place) / width, groups = rank_place_data(place) / width;
    struct range shard = shard_of(engine, tensor);
    int64_t elements = shard.bytes / element, begin = elements * own / groups, end = elements * (own + 1) / groups;
    return (struct range){shard.first + begin * element, (end - begin) * element};
}

/* The file, written or read, and what pieces go through. */
struct file_passage {
    const struct engine *engine;
    struct file_writer *writer; /* NULL: it is read */
    struct file_input *input;
    void *buffer;
};

static enum status pass_file_range(const struct file_passage *passage, const struct tensor *tensor, int64_t at) {
    struct runner *runner = passage->engine->main;
    struct range range = passage->writer ? written_of(passage->engine, tensor) : shard_of(passage->engine, tensor);
    if (passage->writer && range.bytes > 0) file_writer_seek(passage->writer, (uint64_t)(at + range.first));
    for (int64_t done = 0; done < range.bytes; done += BYTE_STORE_PIECE) {
        int64_t piece = range.bytes - done < BYTE_STORE_PIECE ? range.bytes - done : BYTE_STORE_PIECE;
        int64_t from = range.first + done;
        if (passage->writer) {
            TRY(runner_read(runner, tensor, from, piece, passage->buffer));
            file_writer_write(passage->writer, passage->buffer, (size_t)piece);
        } else {
            TRY(file_input_read(passage->input, (size_t)(at + from), (size_t)piece, passage->buffer));
            TRY(runner_write(runner, tensor, from, piece, passage->buffer));
        }
    }
    return STATUS_OK;
}

static enum status pass_file(struct file_passage *passage, int64_t at) {
    const struct graph *graph = engine_graph(passage->engine);
    enum status status = STATUS_OK;
    passage->buffer = mem_aligned(DISK_ALIGNMENT, BYTE_STORE_PIECE);
    if (!passage->buffer) return STATUS_FAILED;
    for (size_t t = 0; t < graph->tensors.count && status == STATUS_OK; t++) {
        const struct tensor *tensor = graph->tensors.items[t];
        if (!is_kept(tensor)) continue;
        status = pass_file_range(passage, tensor, at);
        at += shape_bytes(&tensor->shape);
    }
    mem_free(passage->buffer);
    return status;
}

/* So that gigabytes of it do not stay in memory, which may be what is short. */
static void leave_cache(int descriptor) { (void)posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED); }

static enum status write_part(const struct engine *engine, const char *path, int64_t begin) {
    struct file_writer writer;
    struct file_passage passage = {.engine = engine, .writer = &writer};
    TRY(file_writer_open_part(path, 0, &writer));
    enum status status = pass_file(&passage, begin), closed = file_writer_close(&writer);
    int written = open(path, O_RDONLY | O_CLOEXEC);
    if (written >= 0) leave_cache(written), close(written);
    return status == STATUS_OK ? closed : status;
}

/* A name that a later start removes, should this process not come to it. */
static enum status find_name(struct comm *comm, const char *folder, char **path) {
    char *near = comm->rank == 0 ? path_join(folder, "states") : NULL;
    *path = near ? path_beside(near, file_temporary_prefix) : NULL;
    mem_free(near);
    TRY(comm_agree(comm, *path || comm->rank > 0 ? STATUS_OK : STATUS_FAILED));
    return comm_share_text(comm, path);
}

/* Once all ranks have read. By rank 0; nothing on others. */
static void states_file_remove(const struct comm *comm, const char *path) {
    if (comm->rank == 0 && path) (void)unlink(path);
}

/* Collective, as is reading: between two steps, after engine_settle. *path is the file's, for mem_free, or NULL; on
 * failure, which all ranks share, the file is gone. */
static enum status states_file_write(const struct engine *engine, const char *folder, char **path) {
    struct comm *comm = comm_of(engine);
    int64_t begin;
    *path = NULL;
    TRY(find_part(engine, &begin));
    enum status status = find_name(comm, folder, path);
    if (status == STATUS_OK) status = comm_agree(comm, write_part(engine, *path, begin));
    if (status == STATUS_OK) return STATUS_OK;
    states_file_remove(comm, *path);
    mem_free(*path);
    *path = NULL;
    return status;
}

/* Into an engine of the same recipe. */
static enum status states_file_read(const struct engine *engine, const char *path) {
    struct file_input input;
    struct file_passage passage = {.engine = engine, .input = &input};
    int64_t begin;
    TRY(find_part(engine, &begin));
    TRY(comm_agree(comm_of(engine), file_input_open(path, &input)));
    enum status status = pass_file(&passage, begin);
    leave_cache(input.descriptor);
    file_input_close(&input);
    return comm_agree(comm_of(engine), status);
}

/* ---- in memory, or in a file of this rank ---- */

/* A tensor's piece, its place here, and where it goes through. */
struct passage {
    const struct engine *engine;
    const struct arena *arena;
    void *buffer;
    bool in;
};

static int64_t whole_blocks(int64_t bytes) { return (bytes + DISK_ALIGNMENT - 1) / DISK_ALIGNMENT * DISK_ALIGNMENT; }

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
            TRY(pass_piece(passage, tensor, shard.first + done, piece, at + done));
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
