/* The description of a model, as text and as JSON. */
#include <string.h>

#include "base/size.h"
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

/* "124,439,808" */
static char *print_count(int64_t count, char text[32]) {
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%lld", (long long)count), used = 0;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0) text[used++] = ',';
        text[used++] = digits[i];
    }
    text[used] = '\0';
    return text;
}

static void print_weights(const struct safetensors *weights, FILE *out) {
    char size[SIZE_TEXT];
    int64_t bytes = 0, seen[64] = {0};
    for (size_t i = 0; i < weights->tensors.count; i++) {
        bytes += (int64_t)weights->tensors.items[i].bytes;
        seen[weights->tensors.items[i].dtype]++;
    }
    fprintf(out, "weights      %zu tensors in %zu file%s, %s:", weights->tensors.count, weights->inputs.count,
            weights->inputs.count == 1 ? "" : "s", size_print(bytes, size));
    for (size_t i = 0; i < weights->tensors.count; i++) {
        const struct safetensors_tensor *tensor = &weights->tensors.items[i];
        if (seen[tensor->dtype] > 0) fprintf(out, " %lld %s", (long long)seen[tensor->dtype], tensor->dtype_name);
        seen[tensor->dtype] = 0;
    }
    fputc('\n', out);
}

static void print_rope(const struct rope_table_attributes *rope, FILE *out) {
    fprintf(out, "positions    rotary, base %g", rope->theta);
    if (rope->scaling != ROPE_SCALING_NONE)
        fprintf(out, ", %s scaling by %g", scaling_text(rope->scaling), rope->factor);
    fputc('\n', out);
}

enum status model_print_summary(const struct model *model, FILE *out) {
    const struct model_config *config = &model->config;
    int64_t all = 0, matrix = 0;
    char count[32], matrix_count[32];
    TRY(count_parameters(model, &all, &matrix));
    fprintf(out, "model        %s%s%s\n", config->family->name, model->folder ? " in " : "",
            model->folder ? model->folder : "");
    fprintf(out, "parameters   %s (%s in matrix products)\n", print_count(all, count),
            print_count(matrix, matrix_count));
    fprintf(out, "layers       %lld, hidden %lld, feed-forward %lld (%s)\n", (long long)config->layers,
            (long long)config->hidden, (long long)config->ffn, activation_name(config->activation));
    if (config->experts > 0)
        fprintf(out, "experts      %lld in each layer, of which a token takes %lld\n", (long long)config->experts,
                (long long)config->experts_per_token);
    fprintf(out, "attention    %lld heads of %lld, %lld for keys and values\n", (long long)config->heads,
            (long long)config->head_dim, (long long)config->kv_heads);
    fprintf(out, "vocabulary   %lld, %s\n", (long long)config->vocab_size,
            config->tied ? "head tied to the embedding" : "separate head");
    fprintf(out, "context      %lld tokens\n", (long long)config->context);
    if (config->window > 0)
        fprintf(out, "window       %lld tokens, in %lld of %lld layers\n", (long long)config->window,
                (long long)windowed_layers(config), (long long)config->layers);
    if (config->rope.head_dim > 0) print_rope(&config->rope, out);
    if (model->weights) print_weights(model->weights, out);
    if (config->dropout > 0) fprintf(out, "dropout      up to %g in the file, not applied\n", config->dropout);
    return STATUS_OK;
}
