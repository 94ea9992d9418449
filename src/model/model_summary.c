/* The description of a model as JSON. */
#include <string.h>

#include "model/model.h"

static enum status count_parameters(const struct model *model, int64_t *all, int64_t *matrix) {
    struct graph *graph;
    struct tensor *logits;
    TRY(model_build_graph(model, MODEL_LOGITS, DTYPE_F32, 1, 1, &graph, &logits));
    *all = model_parameter_count(graph);
    *matrix = model_matrix_parameter_count(graph);
    graph_free(graph);
    return STATUS_OK;
}

static const char *scaling_text(enum rope_scaling scaling) {
    switch (scaling) {
    case ROPE_SCALING_NONE: return "none";
    case ROPE_SCALING_LINEAR: return "linear";
    case ROPE_SCALING_LLAMA3: return "llama3";
    case ROPE_SCALING_YARN: return "yarn";
    case ROPE_SCALING_LONGROPE: return "longrope";
    }
    BUG("rope scaling %d", (int)scaling);
}

/* Files and bytes, and how many tensors have each dtype. */
static json_t *summarise_weights(const struct safetensors *weights) {
    json_t *dtypes = json_object();
    size_t bytes = 0;
    for (size_t i = 0; dtypes && i < weights->tensors.count; i++) {
        const struct safetensors_tensor *tensor = &weights->tensors.items[i];
        json_int_t before = json_integer_value(json_object_get(dtypes, tensor->dtype_name));
        if (json_object_set_new(dtypes, tensor->dtype_name, json_integer(before + 1)) != 0) {
            json_decref(dtypes);
            return NULL;
        }
        bytes += tensor->bytes;
    }
    return json_pack("{s:I, s:I, s:I, s:o}", "files", (json_int_t)weights->inputs.count, "tensors",
                     (json_int_t)weights->tensors.count, "bytes", (json_int_t)bytes, "dtypes", dtypes);
}

static int64_t windowed_layers(const struct model_config *config) {
    int64_t count = 0;
    for (int64_t layer = 0; layer < config->layers; layer++)
        count += config->windowed[layer];
    return count;
}

static json_t *summarise_config(const struct model_config *config) {
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:f, s:b, s:b, s:b, s:f}", "vocab_size",
        (json_int_t)config->vocab_size, "hidden", (json_int_t)config->hidden, "layers", (json_int_t)config->layers,
        "heads", (json_int_t)config->heads, "kv_heads", (json_int_t)config->kv_heads, "head_dim",
        (json_int_t)config->head_dim, "ffn", (json_int_t)config->ffn, "context", (json_int_t)config->context, "window",
        (json_int_t)config->window, "windowed_layers", (json_int_t)windowed_layers(config), "activation",
        activation_name(config->activation), "norm_epsilon", config->norm_epsilon, "tied", (int)config->tied,
        "attention_bias", (int)config->attention_bias, "mlp_bias", (int)config->mlp_bias, "dropout", config->dropout);
}

static json_t *summarise_rope(const struct rope_table_attributes *rope) {
    return json_pack("{s:f, s:s, s:f}", "theta", rope->theta, "scaling", scaling_text(rope->scaling), "factor",
                     rope->scaling == ROPE_SCALING_NONE ? 1.0 : rope->factor);
}

static bool set(json_t *object, const char *key, json_t *value) {
    return value && json_object_set_new(object, key, value) == 0;
}

static json_t *summarise_adapter(const struct model *model) {
    const struct adapter *adapter = &model->config.adapter;
    return json_pack("{s:I, s:f, s:o, s:o}", "rank", (json_int_t)adapter->rank, "alpha", adapter->alpha, "targets",
                     adapter_list_targets(adapter), "weights", summarise_weights(model->adapter_weights));
}

enum status model_summarise(const struct model *model, json_t **out) {
    int64_t all = 0, matrix = 0;
    TRY(count_parameters(model, &all, &matrix));
    json_t *summary =
        json_pack("{s:s, s:s, s:s?, s:I, s:I}", "kind", "model", "family", model->config.family->name, "folder",
                  model->folder, "parameters", (json_int_t)all, "matrix_parameters", (json_int_t)matrix);
    bool good = summary && set(summary, "config", summarise_config(&model->config)) &&
                (model->config.rope.head_dim == 0 || set(summary, "rope", summarise_rope(&model->config.rope))) &&
                (!model->weights || set(summary, "weights", summarise_weights(model->weights))) &&
                (model->config.adapter.rank == 0 || set(summary, "adapter", summarise_adapter(model)));
    if (!good) {
        json_decref(summary);
        return status_no_memory(0, "a summary");
    }
    *out = summary;
    return STATUS_OK;
}
