#include "cli/new_model.h"

#include "base/file.h"
#include "base/json.h"
#include "cli/new_output.h"
#include "model/stored_format.h"
#include "text/tokenizer/tokenizer.h"

static const char end_of_text[] = "<|endoftext|>";

struct parameters {
    VEC(struct weight_target) list;
    int64_t elements;
};

static enum status add(struct parameters *out, const struct tensor *tensor, const struct byte_store *store,
                       const char *group) {
    struct weight_target target = weight_whole(tensor, tensor->shape.dtype, NULL);
    target.store = store;
    target.group = group;
    target.stored_as = tensor;
    return vec_push(&out->list, target);
}

/* The parameters' values are drawn while they are written. */
static enum status list_plain(const struct graph *graph, const struct byte_store *store, struct parameters *out) {
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        if (tensor->kind != TENSOR_PARAMETER) continue;
        out->elements += shape_elements(tensor_values(tensor));
        if (tensor->code.format == WEIGHT_PLAIN) TRY(add(out, tensor, store, NULL));
    }
    return STATUS_OK;
}

/* Those in fewer bits lie in several tensors each. */
static enum status list_quantized(struct graph *graph, struct stored_writer *writer, const struct byte_store *store,
                                  struct parameters *out) {
    size_t parameters = graph->tensors.count;
    for (size_t i = 0; i < parameters; i++)
        if (graph->tensors.items[i]->code.format != WEIGHT_PLAIN)
            TRY(stored_writer_add(writer, graph, graph->tensors.items[i]));
    for (size_t i = 0; i < writer->parts.count; i++)
        TRY(add(out, writer->parts.items[i].tensor, store, writer->parts.items[i].group));
    return STATUS_OK;
}

static enum status write_weights(const struct new_model *wanted, const struct model *model, const char *folder,
                                 int64_t *elements) {
    struct graph *graph;
    struct tensor *logits;
    struct initial_weights weights = {model, wanted->seed};
    struct stored_writer writer = {.make = model_draw_quantized, .payload = &weights};
    const struct byte_store plain = model_initial_store(&weights), quantized = stored_writer_store(&writer);
    struct parameters found = {.elements = 0};
    TRY(model_build_graph(model, MODEL_LOGITS, wanted->dtype, 1, 1, &graph, &logits));
    enum status status = list_plain(graph, &plain, &found);
    if (status == STATUS_OK) status = list_quantized(graph, &writer, &quantized, &found);
    if (status == STATUS_OK) status = model_write(model, folder, found.list.items, (int)found.list.count, NULL);
    *elements = found.elements;
    vec_free(&found.list);
    stored_writer_close(&writer);
    graph_free(graph);
    return status;
}

/* transformers takes the family's own tokenizer class, which splits otherwise, unless this file names another. */
static enum status write_tokenizer_config(const char *folder, int64_t context) {
    json_t *object =
        json_pack("{s:s, s:s, s:s, s:I, s:b}", "tokenizer_class", "PreTrainedTokenizerFast", "bos_token", end_of_text,
                  "eos_token", end_of_text, "model_max_length", (json_int_t)context, "clean_up_tokenization_spaces", 0);
    char *path = path_join(folder, "tokenizer_config.json");
    enum status status = object && path ? json_write(path, object) : status_no_memory(0, "a tokenizer's settings");
    json_decref(object);
    mem_free(path);
    return status;
}

static enum status write_tokenizer(const char *text_path, const struct model_config *config, const char *folder) {
    struct file_input text;
    const char *specials[] = {end_of_text};
    TRY(file_input_open(text_path, &text));
    char *path = path_join(folder, "tokenizer.json");
    enum status status = path ? STATUS_OK : STATUS_FAILED;
    if (path && text.bytes == 0) status = status_set(STATUS_BAD_INPUT, "%s: is empty", text_path);
    if (status == STATUS_OK) {
        status = tokenizer_train_file(&text, config->vocab_size, specials, 1, path);
        if (status == STATUS_BAD_INPUT) status_prefix(status, "%s", text_path);
    }
    mem_free(path);
    file_input_close(&text);
    TRY(status);
    return write_tokenizer_config(folder, config->context);
}

/* The special token comes first in a tokenizer that tokenizer_train makes. */
static enum status set_end_of_text(struct model *model) {
    bool good = json_object_set_new(model->config_json, "bos_token_id", json_integer(0)) == 0 &&
                json_object_set_new(model->config_json, "eos_token_id", json_integer(0)) == 0;
    return good ? STATUS_OK : status_no_memory(0, "a config");
}

static enum status set_base_format(struct model *model, enum weight_format format) {
    model->config.base_format = format;
    model->config.base_block = 0;
    model->config.plain_layers = NULL;
    if (format == WEIGHT_PLAIN) {
        json_object_del(model->config_json, "quantization_config");
        return STATUS_OK;
    }
    enum weight_format own = model->config.family->expert_format;
    if (own != WEIGHT_PLAIN && own != format)
        return status_set(STATUS_BAD_INPUT, "quantize-base: %s has experts in %s, not in %s",
                          model->config.family->name, weight_format_name(own), weight_format_name(format));
    json_t *config = stored_format_write_config(format, own != WEIGHT_PLAIN);
    bool good = config && json_object_set_new(model->config_json, "quantization_config", config) == 0;
    return good ? STATUS_OK : status_no_memory(0, "a config");
}

static enum status write_into(const struct new_model *wanted, struct model *model, const char *folder,
                              int64_t *parameters) {
    if (wanted->tokenizer_text) TRY(set_end_of_text(model));
    TRY(set_base_format(model, wanted->base_format));
    TRY(write_weights(wanted, model, folder, parameters));
    if (wanted->tokenizer_text) TRY(write_tokenizer(wanted->tokenizer_text, &model->config, folder));
    return STATUS_OK;
}

struct writing {
    const struct new_model *wanted;
    struct model *model;
    int64_t *parameters;
};

static enum status write_folder(void *payload, const char *folder) {
    struct writing *writing = payload;
    return write_into(writing->wanted, writing->model, folder, writing->parameters);
}

static enum status check_like(const struct new_model *wanted, const struct model *model) {
    if (model->config.adapter.rank > 0)
        return status_set(STATUS_BAD_INPUT, "%s: holds an adapter; name the model that it belongs to", wanted->like);
    if (!wanted->tokenizer_text || !model->folder) return STATUS_OK;
    char *path = path_join(model->folder, "tokenizer.json");
    if (!path) return STATUS_FAILED;
    enum status status = STATUS_OK;
    if (file_exists(path))
        status = status_set(STATUS_BAD_INPUT, "%s: the new model gets this tokenizer, and cannot have another", path);
    mem_free(path);
    return status;
}

static enum status open_like(const struct new_model *wanted, struct model **out) {
    struct model *model;
    TRY(model_open_outline(wanted->like, &model));
    enum status status = check_like(wanted, model);
    if (status == STATUS_OK)
        *out = model;
    else
        model_free(model);
    return status;
}

enum status new_model_write(const struct new_model *wanted, const char *folder, int64_t *parameters) {
    struct writing writing = {.wanted = wanted, .parameters = parameters};
    TRY(new_folder_check(folder));
    TRY(wanted->like ? open_like(wanted, &writing.model) : model_create(&wanted->config, &writing.model));
    enum status status = new_folder_write(folder, write_folder, &writing);
    model_free(writing.model);
    return status;
}
