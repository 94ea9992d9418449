#include <fcntl.h>
#include <unistd.h>

#include "base/base.h"
#include "base/file.h"
#include "base/half.h"
#include "session/engine.h"
#include "session/session.h"

/* The arenas' weights and optimizer state, from and to files. */

int engine_width(const struct engine *engine, enum tensor_kind kind) {
    const struct partition *partition = &engine->plan->chosen.policy.partition;
    BUG_IF(kind != TENSOR_PARAMETER && kind != TENSOR_STATE, "nobody keeps tensors of kind %d", (int)kind);
    return partition_width(kind == TENSOR_PARAMETER ? partition->parameters : partition->optimizer);
}

bool engine_is_cut(const struct engine *engine, enum tensor_kind kind) {
    const struct plan *plan = &engine->plan->chosen;
    return engine_width(engine, kind) > 1 || recipe_tensor_parallel(&plan->recipe) > 1 ||
           rank_place_pipeline_parallel(&plan->place) > 1;
}

static struct safetensors_run share_of(struct safetensors_run all, int64_t part, int64_t parts) {
    int64_t begin = all.elements * part / parts, end = all.elements * (part + 1) / parts;
    return (struct safetensors_run){all.first + begin, end - begin};
}

struct safetensors_run engine_share(const struct engine *engine, struct safetensors_run all) {
    const struct comm *comm = engine->plan->session->comm;
    return share_of(all, comm->rank, mesh_ranks(&comm->mesh));
}

/* The ranks at its place in other groups of `width` data ranks hold the same elements. For whole tensors, so do all
 * tensor-parallel ranks; else those with a copy of its part. */
struct safetensors_run engine_written_run(const struct engine *engine, const struct tensor *tensor) {
    const struct rank_place *place = &engine->plan->chosen.place;
    int width = engine_width(engine, tensor->kind), own = rank_place_data_rank(place) / width;
    int groups = rank_place_data(place) / width;
    int copies = tensor->part ? (int)tensor->part->copies : rank_place_tensor_parallel(place);
    int copy = tensor->part ? (int)tensor->part->copy : rank_place_tensor_rank(place);
    struct safetensors_run mine;
    (void)runner_local_shard(engine->main, tensor, &mine.first, &mine.elements);
    /* The stage that updates a shared tensor writes it. */
    if (stage_of_tensor(&engine->spans, tensor) != rank_place_stage(place)) mine.elements = 0;
    return share_of(mine, own * copies + copy, groups * copies);
}

/* This rank's part of `parameter` as stored in `stored_as`: the parameter or its master. */
static struct weight_target target_of(const struct engine *engine, const struct tensor *parameter,
                                      const struct tensor *stored_as) {
    struct weight_target target = {
        .tensor = parameter, .dtype = stored_as->shape.dtype, .store = &engine->state_store, .stored_as = stored_as};
    target.data = runner_local_shard(engine->main, stored_as, &target.first, &target.elements);
    return target;
}

enum status engine_list_tensors(const struct engine *engine, enum tensor_kind kind, uint64_t *hashes,
                                struct weight_target **out, int *count) {
    const struct graph *graph = engine_graph(engine);
    struct weight_target *targets = mem_array(graph->tensors.count, sizeof *targets);
    if (!targets) return STATUS_FAILED;
    int found = 0;
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        if (tensor->kind != kind) continue;
        targets[found] = target_of(engine, tensor, tensor);
        targets[found++].hash = hashes ? &hashes[tensor->id] : NULL;
    }
    *out = targets;
    *count = found;
    return STATUS_OK;
}

/* Removes targets of which this rank has nothing. */
static int drop_empty(struct weight_target *targets, int count) {
    int kept = 0;
    for (int i = 0; i < count; i++)
        if (targets[i].elements > 0) targets[kept++] = targets[i];
    return kept;
}

static bool has_role(const struct tensor *tensor, const char *role) {
    return tensor->kind == TENSOR_STATE && strcmp(tensor->role, role) == 0;
}

static bool is_master(const struct tensor *tensor) { return has_role(tensor, "master"); }

WIDE_VECTORS static void round_block(const float *restrict master, uint16_t *restrict parameter, int64_t elements) {
#pragma omp simd
    for (int64_t e = 0; e < elements; e++)
        parameter[e] = bf16_from_float(master[e]);
}

static void round_piece(const float *master, uint16_t *parameter, int64_t elements) {
    enum { BLOCK = 1 << 16 };
#pragma omp parallel for schedule(static)
    for (int64_t e = 0; e < elements; e += BLOCK)
        round_block(master + e, parameter + e, elements - e < BLOCK ? elements - e : BLOCK);
}

static enum status round_master(const struct engine *engine, const struct weight_target *master, float *buffer) {
    enum { PIECE_ELEMENTS = BYTE_STORE_PIECE / 4 };
    uint16_t *rounded = (uint16_t *)(void *)(buffer + PIECE_ELEMENTS);
    int64_t end = master->first + master->elements;
    for (int64_t at = master->first; at < end; at += PIECE_ELEMENTS) {
        int64_t count = end - at < PIECE_ELEMENTS ? end - at : PIECE_ELEMENTS;
        TRY(runner_read(engine->main, master->stored_as, 4 * at, 4 * count, buffer));
        round_piece(buffer, rounded, count);
        TRY(runner_write(engine->main, master->tensor, 2 * at, 2 * count, rounded));
    }
    return STATUS_OK;
}

/* Whether this rank has the same run of a parameter and of its master. Under a partition it may have more of the
 * parameter. */
static bool covers(const struct weight_target *parameter, const struct weight_target *master) {
    return parameter->first == master->first && parameter->elements == master->elements;
}

/* Rounds parameters from their masters. */
static enum status round_masters(const struct engine *engine) {
    const struct graph *graph = engine_graph(engine);
    AUTO_FREE float *buffer = mem_array(2 * BYTE_STORE_PIECE, 1);
    if (!buffer) return STATUS_FAILED;
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        if (!is_master(tensor)) continue;
        struct weight_target master = target_of(engine, tensor->parameter, tensor);
        struct weight_target parameter = target_of(engine, tensor->parameter, tensor->parameter);
        if (!covers(&parameter, &master)) continue;
        if (master.data && parameter.data)
            round_piece(master.data, parameter.data, master.elements);
        else
            TRY(round_master(engine, &master, buffer));
    }
    return STATUS_OK;
}

/* ---- masters in two halves ---- */

WIDE_VECTORS static void split_block(const float *restrict values, int64_t count, uint16_t *restrict upper,
                                     uint16_t *restrict lower) {
#pragma omp simd
    for (int64_t e = 0; e < count; e++)
        float_split(values[e], &upper[e], &lower[e]);
}

struct halves {
    struct runner *runner;
    uint16_t upper[BYTE_STORE_PIECE / 4], lower[BYTE_STORE_PIECE / 4];
};

/* Writes fp32 values of a parameter, identified by the tensor of its masters' lower halves, of which this rank may have
 * fewer. */
static enum status write_halves(void *payload, const void *key, int64_t offset, int64_t bytes, const void *from) {
    struct halves *halves = payload;
    const struct tensor *low = key;
    int64_t begin = offset / 4, end = begin + bytes / 4, first, elements;
    split_block(from, end - begin, halves->upper, halves->lower);
    TRY(runner_write(halves->runner, low->parameter, 2 * begin, 2 * (end - begin), halves->upper));
    (void)runner_local_shard(halves->runner, low, &first, &elements);
    int64_t low_begin = begin > first ? begin : first, low_end = end < first + elements ? end : first + elements;
    if (low_begin >= low_end) return STATUS_OK;
    return runner_write(halves->runner, low, 2 * low_begin, 2 * (low_end - low_begin),
                        halves->lower + (low_begin - begin));
}

/* Reads parameters with split masters in fp32, through the store. */
static void split_sources(const struct engine *engine, const struct byte_store *store, struct weight_target *targets,
                          int count) {
    const struct graph *graph = engine_graph(engine);
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *low = graph->tensors.items[i];
        if (!has_role(low, "master_low")) continue;
        for (int t = 0; t < count; t++) {
            struct weight_target *target = &targets[t];
            if (target->tensor != low->parameter) continue;
            target->dtype = DTYPE_F32;
            target->data = NULL;
            target->store = store;
            target->stored_as = low;
        }
    }
}

/* ---- all ---- */

/* Lists all parameters, by their master if there is one: the parameter is then rounded from it. If this rank has more
 * of a parameter than of its master, lists both: the values read for the parameter are rounded, too. */
static enum status list_sources(const struct engine *engine, const struct byte_store *halves,
                                struct weight_target **out, int *count) {
    const struct graph *graph = engine_graph(engine);
    TRY(engine_list_tensors(engine, TENSOR_PARAMETER, NULL, out, count));
    split_sources(engine, halves, *out, *count);
    int parameters = *count;
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        if (!is_master(tensor)) continue;
        struct weight_target master = target_of(engine, tensor->parameter, tensor);
        for (int t = 0; t < parameters; t++) {
            if ((*out)[t].tensor != tensor->parameter) continue;
            bool same = covers(&(*out)[t], &master);
            (*out)[same ? t : (*count)++] = master;
        }
    }
    *count = drop_empty(*out, *count);
    return STATUS_OK;
}

/* Reads weights from the model's files, or initializes them if `seed` is given. */
static enum status make_weights(struct engine *engine, const uint64_t *seed) {
    AUTO_FREE struct halves *halves = mem_array(1, sizeof *halves);
    if (!halves) return STATUS_FAILED;
    halves->runner = engine->main;
    const struct byte_store store = {.write = write_halves, .payload = halves};
    AUTO_FREE struct weight_target *targets = NULL;
    int count;
    TRY(list_sources(engine, &store, &targets, &count));
    TRY(seed ? model_initialise_weights(engine_model(engine), *seed, targets, count)
             : model_load_weights(engine_model(engine), targets, count));
    return round_masters(engine);
}

enum status engine_load_weights(struct engine *engine) { return make_weights(engine, NULL); }

enum status engine_open_loaded(const struct session_plan *plan, struct engine *out) {
    struct comm *comm = plan->session->comm;
    TRY(comm_agree(comm, session_plan_check_memory(plan)));
    TRY(comm_agree(comm, engine_open(plan, out)));
    return comm_agree(comm, engine_load_weights(out));
}

enum status engine_initialise_weights(struct engine *engine, uint64_t seed) { return make_weights(engine, &seed); }

static enum status add_load(const struct safetensors *set, const char *path, const struct weight_target *target,
                            struct safetensors_loads *out) {
    const struct safetensors_tensor *source = safetensors_find(set, target->tensor->name);
    if (!source) return status_set(STATUS_BAD_INPUT, "%s: %s is missing", path, target->tensor->name);
    struct shape whole = tensor_whole_shape(target->tensor);
    static const enum safetensors_dtype dtypes[] = {[DTYPE_F32] = SAFETENSORS_F32,
                                                    [DTYPE_BF16] = SAFETENSORS_BF16,
                                                    [DTYPE_U8] = SAFETENSORS_U8,
                                                    [DTYPE_U16] = SAFETENSORS_U16};
    if (source->dtype != dtypes[target->dtype] || !safetensors_has_shape(source, &whole)) {
        char dims[SHAPE_TEXT], wanted[SHAPE_TEXT];
        return status_set(STATUS_BAD_INPUT, "%s: %s: is %s %s, must be %s", path, source->name, source->dtype_name,
                          safetensors_print_dims(source, dims), shape_print(&whole, wanted));
    }
    const struct safetensors_load load = {.set = set,
                                          .tensor = source,
                                          .first = (size_t)target->first,
                                          .elements = (size_t)target->elements,
                                          .dtype = target->dtype,
                                          .out = target->data,
                                          .store = target->store,
                                          .key = target->stored_as};
    return safetensors_add_part(&load, target->tensor, out);
}

static enum status load_state(const struct safetensors *set, const char *path, const struct weight_target *targets,
                              size_t count) {
    AUTO_VEC struct safetensors_loads loads = {0};
    for (size_t i = 0; i < count; i++)
        TRY(add_load(set, path, &targets[i], &loads));
    if (set->tensors.count != count)
        return status_set(STATUS_BAD_INPUT, "%s: holds %zu tensors, the optimizer has %zu", path, set->tensors.count,
                          count);
    return safetensors_load(loads.items, loads.count);
}

enum status engine_load_state(struct engine *engine, const char *path) {
    struct safetensors *set;
    AUTO_FREE struct weight_target *targets = NULL;
    int count = 0;
    TRY(engine_list_tensors(engine, TENSOR_STATE, NULL, &targets, &count));
    TRY(safetensors_open(path, &set));
    enum status status = load_state(set, path, targets, (size_t)count);
    safetensors_close(set);
    return status == STATUS_OK ? round_masters(engine) : status;
}

/* Bytes of a tensor that this rank holds. */
struct range {
    int64_t first, bytes;
};

static struct range shard_of(const struct engine *engine, const struct tensor *tensor) {
    int64_t first, elements, element = dtype_bytes(tensor->shape.dtype);
    (void)runner_local_shard(engine->main, tensor, &first, &elements);
    return (struct range){first * element, elements * element};
}

/* ---- all ranks in one file: each writes a part, and reads the parts of another plan ---- */

/* Each set of tensor-parallel ranks and stages has its own tensors and its own part of the file. All parts have the
 * length `bytes` of the longest. Data ranks of one set have elements of the same tensors. */
static enum status find_part(const struct engine *engine, int64_t *begin) {
    const struct rank_place *place = &engine->plan->chosen.place;
    const struct graph *graph = engine_graph(engine);
    int64_t bytes = 0;
    for (size_t t = 0; t < graph->tensors.count; t++)
        if (engine_keeps(graph->tensors.items[t])) bytes -= shape_bytes(&graph->tensors.items[t]->shape);
    TRY(rank_budget_min(engine_comm(engine), &bytes));
    *begin = -bytes * (rank_place_stage(place) * rank_place_tensor_parallel(place) + rank_place_tensor_rank(place));
    return STATUS_OK;
}

/* Each of the ranks that hold the same elements writes a part of them. */
static struct range written_of(const struct engine *engine, const struct tensor *tensor) {
    const struct rank_place *place = &engine->plan->chosen.place;
    int width = engine_width(engine, tensor->kind);
    int64_t element = dtype_bytes(tensor->shape.dtype);
    struct safetensors_run mine;
    (void)runner_local_shard(engine->main, tensor, &mine.first, &mine.elements);
    mine = share_of(mine, rank_place_data_rank(place) / width, rank_place_data(place) / width);
    return (struct range){mine.first * element, mine.elements * element};
}

/* Where states are stored in transit: an arena of this rank, or a file of all ranks. */
struct passage {
    const struct engine *engine;
    bool in;
    const struct arena *arena;
    struct file_writer *writer;
    struct file_input *input;
    void *buffer;
};

static int64_t whole_blocks(int64_t bytes) { return (bytes + DISK_ALIGNMENT - 1) / DISK_ALIGNMENT * DISK_ALIGNMENT; }

static enum status pass_piece(const struct passage *passage, const struct tensor *tensor, int64_t offset, int64_t bytes,
                              int64_t at) {
    struct runner *runner = passage->engine->main;
    void *buffer = passage->buffer;
    if (passage->in) TRY(runner_read(runner, tensor, offset, bytes, buffer));
    if (passage->in && passage->arena) return arena_write(passage->arena, at, buffer, whole_blocks(bytes), 0);
    if (passage->in) {
        file_writer_write(passage->writer, buffer, (size_t)bytes);
        return STATUS_OK;
    }
    TRY(passage->arena ? arena_read(passage->arena, at, buffer, whole_blocks(bytes), 0)
                       : file_input_read(passage->input, (size_t)at, (size_t)bytes, buffer));
    return runner_write(runner, tensor, offset, bytes, buffer);
}

/* The same tensors in the same order, whatever the policy. The file has space for all bytes of each. */
static enum status pass_all(const struct passage *passage, int64_t at) {
    const struct graph *graph = engine_graph(passage->engine);
    for (size_t t = 0; t < graph->tensors.count; t++) {
        const struct tensor *tensor = graph->tensors.items[t];
        if (!engine_keeps(tensor)) continue;
        struct range range = passage->writer ? written_of(passage->engine, tensor) : shard_of(passage->engine, tensor);
        int64_t begin = passage->arena ? at : at + range.first;
        if (passage->writer && range.bytes > 0) file_writer_seek(passage->writer, (uint64_t)begin);
        for (int64_t done = 0; done < range.bytes; done += BYTE_STORE_PIECE) {
            int64_t piece = range.bytes - done < BYTE_STORE_PIECE ? range.bytes - done : BYTE_STORE_PIECE;
            TRY(pass_piece(passage, tensor, range.first + done, piece, begin + done));
        }
        at += passage->arena ? whole_blocks(range.bytes) : shape_bytes(&tensor->shape);
    }
    return STATUS_OK;
}

static enum status pass(struct passage passage, int64_t at) {
    passage.buffer = mem_aligned(DISK_ALIGNMENT, BYTE_STORE_PIECE);
    enum status status = passage.buffer ? pass_all(&passage, at) : STATUS_FAILED;
    mem_free(passage.buffer);
    return status;
}

/* Drops gigabytes of the file from the page cache, since memory may be scarce. */
static void leave_cache(int descriptor) { (void)posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED); }

static enum status write_part(const struct engine *engine, const char *path, int64_t begin) {
    struct file_writer writer;
    TRY(file_writer_open_part(path, 0, &writer));
    enum status status = pass((struct passage){.engine = engine, .in = true, .writer = &writer}, begin);
    enum status closed = file_writer_close(&writer);
    int written = open(path, O_RDONLY | O_CLOEXEC);
    if (written >= 0) leave_cache(written), close(written);
    return status == STATUS_OK ? closed : status;
}

/* A name that a later start removes if this process does not. */
static enum status find_name(struct comm *comm, const char *folder, char **path) {
    char *near = comm->rank == 0 ? path_join(folder, "states") : NULL;
    *path = near ? path_beside(near, file_temporary_prefix) : NULL;
    mem_free(near);
    TRY(comm_agree(comm, *path || comm->rank > 0 ? STATUS_OK : STATUS_FAILED));
    return comm_share_text(comm, path);
}

/* ---- in memory, in a file of this rank, or in one of all ranks ---- */

int64_t kept_states_bytes(const struct engine *engine) {
    const struct graph *graph = engine_graph(engine);
    int64_t bytes = 0;
    for (size_t t = 0; t < graph->tensors.count; t++)
        if (engine_keeps(graph->tensors.items[t]))
            bytes += whole_blocks(shard_of(engine, graph->tensors.items[t]).bytes);
    return bytes;
}

enum status kept_states_take(const struct engine *engine, enum tier tier, const char *folder, struct kept_states *out) {
    const struct machine *machine = &engine->plan->session->machine;
    const struct arena_settings settings = {
        .folder = folder, .channels = 1, .engine = machine->disk_engine, .buffered = machine->disk_buffered};
    *out = (struct kept_states){0};
    enum status status = arena_open(tier, kept_states_bytes(engine), &settings, &out->arena);
    if (status == STATUS_OK) status = pass((struct passage){.engine = engine, .in = true, .arena = &out->arena}, 0);
    return comm_agree(engine->plan->session->comm, status);
}

enum status kept_states_take_together(const struct engine *engine, const char *folder, struct kept_states *out) {
    struct comm *comm = engine_comm(engine);
    int64_t begin;
    *out = (struct kept_states){.comm = comm};
    TRY(find_part(engine, &begin));
    TRY(find_name(comm, folder, &out->path));
    return comm_agree(comm, write_part(engine, out->path, begin));
}

/* From the file of all ranks. */
static enum status read_part(const struct engine *engine, const char *path) {
    struct file_input input;
    int64_t begin;
    TRY(find_part(engine, &begin));
    TRY(comm_agree(engine_comm(engine), file_input_open(path, &input)));
    enum status status = pass((struct passage){.engine = engine, .input = &input}, begin);
    leave_cache(input.descriptor);
    file_input_close(&input);
    return comm_agree(engine_comm(engine), status);
}

enum status kept_states_give(const struct kept_states *kept, const struct engine *engine) {
    if (kept->path) return read_part(engine, kept->path);
    const struct passage out = {.engine = engine, .arena = &kept->arena};
    return comm_agree(engine_comm(engine), pass(out, 0));
}

void kept_states_free(struct kept_states *kept) {
    if (kept->path && kept->comm->rank == 0) (void)unlink(kept->path);
    mem_free(kept->path);
    arena_close(&kept->arena);
    *kept = (struct kept_states){0};
}
