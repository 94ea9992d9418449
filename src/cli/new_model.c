#include "cli/new_model.h"

#include "base/file.h"
#include "base/json.h"
#include "cli/new_output.h"
#include "tokenizer/tokenizer.h"

static const char end_of_text[] = "<|endoftext|>";

/* The parameters' values are drawn while they are written. */
static enum status list_parameters(const struct graph *graph, const struct byte_store *values,
                                   struct weight_target **out, int *count, int64_t *elements) {
    *out = mem_array(graph->tensors.count, sizeof **out);
    if (!*out) return STATUS_FAILED;
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        if (tensor->kind != TENSOR_PARAMETER) continue;
        struct weight_target *target = &(*out)[(*count)++];
        *target = weight_whole(tensor, DTYPE_F32, NULL);
        target->store = values;
        target->home = tensor;
        *elements += target->elements;
    }
    return STATUS_OK;
}

static enum status write_weights(const struct model *model, uint64_t seed, const char *folder, int64_t *elements) {
    struct graph *graph;
    struct tensor *logits;
    struct initial_weights weights = {model, seed};
    const struct byte_store values = model_initial_store(&weights);
    struct weight_target *targets = NULL;
    int count = 0;
    *elements = 0;
    TRY(model_build_graph(model, MODEL_LOGITS, DTYPE_F32, 1, 1, &graph, &logits));
    enum status status = list_parameters(graph, &values, &targets, &count, elements);
    if (status == STATUS_OK) status = model_write(model, folder, targets, count, NULL);
    mem_free(targets);
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

static enum status write_into(const struct new_model *wanted, struct model *model, const char *folder,
                              int64_t *parameters) {
    if (wanted->tokenizer_text) TRY(set_end_of_text(model));
    TRY(write_weights(model, wanted->seed, folder, parameters));
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

enum status new_model_write(const struct new_model *wanted, const char *folder, int64_t *parameters) {
    struct writing writing = {.wanted = wanted, .parameters = parameters};
    TRY(new_folder_check(folder));
    TRY(model_create(&wanted->config, &writing.model));
    enum status status = new_folder_write(folder, write_folder, &writing);
    model_free(writing.model);
    return status;
}
