/* Writes an adapter's folder. */
#include "base/json.h"
#include "model/model_adapter.h"

static bool has_kn(const struct graph *graph) {
    for (size_t i = 0; i < graph->nodes.count; i++) {
        const struct node *node = graph->nodes.items[i];
        if (node->op == &op_linear && NODE_ATTRIBUTES(node, linear_attributes)->weight_is_kn) return true;
    }
    return false;
}

static enum status write_config(const struct model *model, const char *path, struct manifest *manifest) {
    struct graph *graph;
    struct file_sums *sums;
    TRY(manifest_add(manifest, path, &sums));
    TRY(adapter_small_graph(model, &graph));
    json_t *targets = adapter_list_targets(&model->config.adapter), *object = NULL;
    if (targets)
        object =
            adapter_write_config(&model->config.adapter, model->folder ? model->folder : "", targets, has_kn(graph));
    graph_free(graph);
    enum status status =
        object ? json_write_summed(path, object, sums) : status_set(STATUS_FAILED, "%s: no memory", path);
    json_decref(object);
    return status;
}

static enum status write_weights(const char *path, const struct weight_target *sources, int count,
                                 struct manifest *manifest) {
    struct file_sums *sums;
    TRY(manifest_add(manifest, path, &sums));
    struct safetensors_item *items = mem_array((size_t)count, sizeof *items);
    if (!items) return STATUS_FAILED;
    size_t used = 0;
    for (int i = 0; i < count; i++) {
        if (!adapter_owns(sources[i].tensor->name)) continue;
        items[used] = (struct safetensors_item){.name = sources[i].tensor->name,
                                                .shape = sources[i].tensor->shape,
                                                .data = sources[i].data,
                                                .store = sources[i].store,
                                                .key = sources[i].home,
                                                .hash = sources[i].hash};
        items[used++].shape.dtype = sources[i].dtype;
    }
    enum status status = safetensors_write(path, items, used, sums);
    mem_free(items);
    return status;
}

enum status adapter_write(const struct model *model, const char *config_path, const char *weights_path,
                          const struct weight_target *sources, int count, struct manifest *manifest) {
    TRY(write_config(model, config_path, manifest));
    return write_weights(weights_path, sources, count, manifest);
}
