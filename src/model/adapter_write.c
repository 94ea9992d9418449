/* Writes an adapter's settings. */
#include "base/json.h"
#include "model/model_adapter.h"

static bool has_kn(const struct graph *graph) {
    for (size_t i = 0; i < graph->nodes.count; i++) {
        const struct node *node = graph->nodes.items[i];
        if (node->op == &op_linear && NODE_ATTRIBUTES(node, linear_attributes)->weight_is_kn) return true;
    }
    return false;
}

enum status adapter_write_settings(const struct model *model, const char *path, struct manifest *manifest) {
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
