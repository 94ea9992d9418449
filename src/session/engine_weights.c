/* The arena's weights and optimizer state, from and to files. */
#include <string.h>
#include <xxhash.h>

#include "base/half.h"
#include "base/wide_vectors.h"
#include "session/engine.h"

/* `parameter` as it is kept in `home`: itself or its master. */
static struct weight_target target_of(const struct engine *engine, const struct tensor *parameter,
                                      const struct tensor *home) {
    return (struct weight_target){parameter, runner_data(engine->main, home), home->shape.dtype, &engine->homes, home,
                                  NULL};
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

static bool outlasts_steps(const struct tensor *tensor) {
    return tensor->kind == TENSOR_PARAMETER || tensor->kind == TENSOR_STATE;
}

/* The hash of bytes without an address, a piece at a time: the same as of all at once. */
static enum status hash_home(const struct engine *engine, const struct tensor *tensor, void *room, uint64_t *hash) {
    int64_t bytes = shape_bytes(&tensor->shape);
    XXH3_state_t *state = XXH3_createState();
    if (!state) return status_no_memory(0, "a hash");
    enum status status = STATUS_OK;
    XXH3_64bits_reset(state);
    for (int64_t at = 0; at < bytes && status == STATUS_OK; at += BYTE_STORE_PIECE) {
        int64_t count = bytes - at < BYTE_STORE_PIECE ? bytes - at : BYTE_STORE_PIECE;
        status = runner_read(engine->main, tensor, at, count, room);
        XXH3_64bits_update(state, room, (size_t)count);
    }
    *hash = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return status;
}

static bool is_unknown(const struct tensor *tensor, const bool *skip, const uint64_t *hashes) {
    return outlasts_steps(tensor) && hashes[tensor->id] == 0 && !(skip && skip[tensor->id]);
}

static enum status hash_homes(const struct engine *engine, const bool *skip, uint64_t *hashes) {
    const struct graph *graph = engine_graph(engine);
    void *room = mem_array(BYTE_STORE_PIECE, 1);
    enum status status = room ? STATUS_OK : STATUS_FAILED;
    for (size_t i = 0; i < graph->tensors.count && status == STATUS_OK; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        if (is_unknown(tensor, skip, hashes) && !runner_data(engine->main, tensor))
            status = hash_home(engine, tensor, room, &hashes[i]);
    }
    mem_free(room);
    return status;
}

enum status engine_hash_tensors(const struct engine *engine, const bool *skip, uint64_t *hashes) {
    const struct graph *graph = engine_graph(engine);
    int64_t count = (int64_t)graph->tensors.count;
#pragma omp parallel for schedule(dynamic, 1)
    for (int64_t i = 0; i < count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        const void *data = is_unknown(tensor, skip, hashes) ? runner_data(engine->main, tensor) : NULL;
        if (data) hashes[i] = XXH3_64bits(data, (size_t)shape_bytes(&tensor->shape));
    }
    return hash_homes(engine, skip, hashes);
}

enum status engine_hash(const struct engine *engine, const uint64_t *known, uint64_t *hash) {
    const struct graph *graph = engine_graph(engine);
    uint64_t *hashes = mem_array(graph->tensors.count, sizeof *hashes);
    if (!hashes) return STATUS_FAILED;
    if (known) memcpy(hashes, known, graph->tensors.count * sizeof *hashes);
    enum status status = engine_hash_tensors(engine, NULL, hashes);
    *hash = XXH3_64bits(hashes, graph->tensors.count * sizeof *hashes);
    mem_free(hashes);
    return status;
}

static bool is_master(const struct tensor *tensor) {
    return tensor->kind == TENSOR_STATE && strcmp(tensor->role, "master") == 0;
}

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

static enum status round_home(const struct engine *engine, const struct tensor *master, float *room) {
    enum { PIECE_ELEMENTS = BYTE_STORE_PIECE / 4 };
    uint16_t *rounded = (uint16_t *)(void *)(room + PIECE_ELEMENTS);
    int64_t elements = shape_elements(&master->shape);
    for (int64_t at = 0; at < elements; at += PIECE_ELEMENTS) {
        int64_t count = elements - at < PIECE_ELEMENTS ? elements - at : PIECE_ELEMENTS;
        TRY(runner_read(engine->main, master, 4 * at, 4 * count, room));
        round_piece(room, rounded, count);
        TRY(runner_write(engine->main, master->parameter, 2 * at, 2 * count, rounded));
    }
    return STATUS_OK;
}

/* Parameters that have a master become its rounding. */
static enum status round_masters(const struct engine *engine) {
    const struct graph *graph = engine_graph(engine);
    float *room = mem_array(2 * BYTE_STORE_PIECE, 1);
    enum status status = room ? STATUS_OK : STATUS_FAILED;
    for (size_t i = 0; i < graph->tensors.count && status == STATUS_OK; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        if (!is_master(tensor)) continue;
        const float *master = runner_data(engine->main, tensor);
        uint16_t *parameter = runner_data(engine->main, tensor->parameter);
        if (master && parameter)
            round_piece(master, parameter, shape_elements(&tensor->shape));
        else
            status = round_home(engine, tensor, room);
    }
    mem_free(room);
    return status;
}

/* All parameters, those with a master as the master: their roundings follow. */
static enum status list_sources(const struct engine *engine, struct weight_target **out, int *count) {
    const struct graph *graph = engine_graph(engine);
    TRY(engine_list_tensors(engine, TENSOR_PARAMETER, NULL, out, count));
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *master = graph->tensors.items[i];
        if (!is_master(master)) continue;
        for (int t = 0; t < *count; t++)
            if ((*out)[t].tensor == master->parameter) (*out)[t] = target_of(engine, master->parameter, master);
    }
    return STATUS_OK;
}

enum status engine_load_weights(struct engine *engine) {
    struct weight_target *targets;
    int count;
    TRY(list_sources(engine, &targets, &count));
    enum status status = model_load_weights(engine_model(engine), targets, count);
    mem_free(targets);
    return status == STATUS_OK ? round_masters(engine) : status;
}

/* Values of a tensor without an address go through a buffer. */
static enum status initialise_home(const struct engine *engine, const struct weight_target *target, uint64_t seed) {
    const struct tensor *home = target->home;
    int64_t bytes = shape_bytes(&home->shape);
    struct weight_target own = {.tensor = target->tensor, .data = mem_array((size_t)bytes, 1), .dtype = target->dtype};
    if (!own.data) return STATUS_FAILED;
    model_initialise_weights(engine_model(engine), seed, &own, 1);
    enum status status = runner_write(engine->main, home, 0, bytes, own.data);
    mem_free(own.data);
    return status;
}

enum status engine_initialise_weights(struct engine *engine, uint64_t seed) {
    struct weight_target *targets;
    int count;
    TRY(list_sources(engine, &targets, &count));
    enum status status = STATUS_OK;
    for (int i = 0; i < count && status == STATUS_OK; i++)
        if (targets[i].data)
            model_initialise_weights(engine_model(engine), seed, &targets[i], 1);
        else
            status = initialise_home(engine, &targets[i], seed);
    mem_free(targets);
    return status == STATUS_OK ? round_masters(engine) : status;
}

static enum status add_load(const struct safetensors *set, const char *path, const struct weight_target *target,
                            struct safetensors_load *out) {
    const struct safetensors_tensor *source = safetensors_find(set, target->tensor->name);
    if (!source) return status_set(STATUS_BAD_INPUT, "%s: %s is missing", path, target->tensor->name);
    enum safetensors_dtype dtype = target->dtype == DTYPE_BF16 ? SAFETENSORS_BF16 : SAFETENSORS_F32;
    if (source->dtype != dtype || !safetensors_has_shape(source, &target->tensor->shape)) {
        char dims[SHAPE_TEXT], wanted[SHAPE_TEXT];
        return status_set(STATUS_BAD_INPUT, "%s: %s: is %s %s, must be %s", path, source->name, source->dtype_name,
                          safetensors_print_dims(source, dims), shape_print(&target->tensor->shape, wanted));
    }
    *out = (struct safetensors_load){set, source, target->dtype, target->data, target->store, target->home};
    return STATUS_OK;
}

static enum status load_state(const struct safetensors *set, const char *path, const struct weight_target *targets,
                              size_t count) {
    struct safetensors_load *loads = mem_array(count, sizeof *loads);
    enum status status = STATUS_FAILED;
    if (!loads) return status;
    for (size_t i = 0; i < count; i++)
        TRY_GOTO(status, add_load(set, path, &targets[i], &loads[i]), done);
    status = set->tensors.count == count ? safetensors_load(loads, count)
                                         : status_set(STATUS_BAD_INPUT, "%s: holds %zu tensors, the optimizer has %zu",
                                                      path, set->tensors.count, count);
done:
    mem_free(loads);
    return status;
}

enum status engine_load_state(struct engine *engine, const char *path) {
    struct safetensors *set;
    struct weight_target *targets = NULL;
    int count = 0;
    TRY(safetensors_open(path, &set));
    enum status status;
    TRY_GOTO(status, engine_list_tensors(engine, TENSOR_STATE, NULL, &targets, &count), done);
    status = load_state(set, path, targets, (size_t)count);
done:
    mem_free(targets);
    safetensors_close(set);
    return status == STATUS_OK ? round_masters(engine) : status;
}
