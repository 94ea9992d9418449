/* The arena's weights and optimizer state, from and to files. */
#include <string.h>
#include <xxhash.h>

#include "base/half.h"
#include "train/engine.h"

enum status engine_list_tensors(const struct engine *engine, enum tensor_kind kind, struct weight_target **out,
                                int *count) {
    const struct graph *graph = engine->setup->main->graph;
    struct weight_target *targets = mem_array(graph->tensors.count, sizeof *targets);
    if (!targets) return STATUS_FAILED;
    int found = 0;
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        if (tensor->kind != kind) continue;
        targets[found++] = (struct weight_target){tensor, runner_data(engine->main, tensor), tensor->shape.dtype};
    }
    *out = targets;
    *count = found;
    return STATUS_OK;
}

static bool outlasts_steps(const struct tensor *tensor) {
    return tensor->kind == TENSOR_PARAMETER || tensor->kind == TENSOR_STATE;
}

enum status engine_hash(const struct engine *engine, uint64_t *hash) {
    const struct graph *graph = engine->setup->main->graph;
    int64_t count = (int64_t)graph->tensors.count;
    uint64_t *hashes = mem_array(graph->tensors.count, sizeof *hashes);
    if (!hashes) return STATUS_FAILED;
#pragma omp parallel for schedule(dynamic, 1)
    for (int64_t i = 0; i < count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        if (outlasts_steps(tensor))
            hashes[i] = XXH3_64bits(runner_data(engine->main, tensor), (size_t)shape_bytes(&tensor->shape));
    }
    *hash = XXH3_64bits(hashes, graph->tensors.count * sizeof *hashes);
    mem_free(hashes);
    return STATUS_OK;
}

static bool is_master(const struct tensor *tensor) {
    return tensor->kind == TENSOR_STATE && strcmp(tensor->role, "master") == 0;
}

/* Parameters that have a master become its rounding. */
static void round_masters(const struct engine *engine) {
    const struct graph *graph = engine->setup->main->graph;
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        if (!is_master(tensor)) continue;
        const float *master = runner_data(engine->main, tensor);
        uint16_t *parameter = runner_data(engine->main, tensor->parameter);
        int64_t elements = shape_elements(&tensor->shape);
#pragma omp parallel for schedule(static)
        for (int64_t e = 0; e < elements; e++)
            parameter[e] = bf16_from_float(master[e]);
    }
}

enum status engine_load_weights(struct engine *engine) {
    const struct graph *graph = engine->setup->main->graph;
    struct weight_target *targets;
    int count;
    TRY(engine_list_tensors(engine, TENSOR_PARAMETER, &targets, &count));
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *master = graph->tensors.items[i];
        if (!is_master(master)) continue;
        for (int t = 0; t < count; t++)
            if (targets[t].tensor == master->parameter) {
                targets[t].data = runner_data(engine->main, master);
                targets[t].dtype = DTYPE_F32;
            }
    }
    enum status status = model_load_weights(engine->setup->model, targets, count);
    mem_free(targets);
    if (status == STATUS_OK) round_masters(engine);
    return status;
}

static enum status add_load(const struct safetensors *set, const char *path, const struct weight_target *target,
                            struct safetensors_load *out) {
    const struct safetensors_tensor *source = safetensors_find(set, target->tensor->name);
    if (!source) return status_set(STATUS_BAD_INPUT, "%s: %s is missing", path, target->tensor->name);
    if (source->dtype != SAFETENSORS_F32 || !safetensors_has_shape(source, &target->tensor->shape)) {
        char dims[SHAPE_TEXT], wanted[SHAPE_TEXT];
        return status_set(STATUS_BAD_INPUT, "%s: %s: is %s %s, must be %s", path, source->name, source->dtype_name,
                          safetensors_print_dims(source, dims), shape_print(&target->tensor->shape, wanted));
    }
    *out = (struct safetensors_load){set, source, DTYPE_F32, target->data};
    return STATUS_OK;
}

static enum status load_state(const struct safetensors *set, const char *path, const struct weight_target *targets,
                              size_t count) {
    struct safetensors_load *loads = mem_array(count, sizeof *loads);
    enum status status = loads ? STATUS_OK : STATUS_FAILED;
    for (size_t i = 0; i < count && status == STATUS_OK; i++)
        status = add_load(set, path, &targets[i], &loads[i]);
    if (status == STATUS_OK && set->tensors.count != count)
        status = status_set(STATUS_BAD_INPUT, "%s: holds %zu tensors, the optimizer has %zu", path, set->tensors.count,
                            count);
    if (status == STATUS_OK) status = safetensors_load(loads, count);
    mem_free(loads);
    return status;
}

enum status engine_load_state(struct engine *engine, const char *path) {
    struct safetensors *set;
    struct weight_target *targets = NULL;
    int count = 0;
    TRY(safetensors_open(path, &set));
    enum status status = engine_list_tensors(engine, TENSOR_STATE, &targets, &count);
    if (status == STATUS_OK) status = load_state(set, path, targets, (size_t)count);
    mem_free(targets);
    safetensors_close(set);
    if (status == STATUS_OK) round_masters(engine);
    return status;
}
