#include "cli/new_model.h"

#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "data/tokenizer.h"

static const char end_of_text[] = "<|endoftext|>";

static enum status refuse_occupied(const char *folder) {
    struct names names = {0};
    if (!file_exists(folder)) return STATUS_OK;
    if (!file_is_folder(folder)) return status_set(STATUS_BAD_INPUT, "%s: exists and is no folder", folder);
    TRY(folder_list(folder, &names));
    size_t count = names.count;
    names_free(&names);
    if (count == 0) return STATUS_OK;
    enum status status = status_set(STATUS_BAD_INPUT, "%s: already holds something else; nothing was written", folder);
    return status_hint(status, "give a folder that does not exist or is empty");
}

struct parameters {
    struct weight_target *targets;
    int count;
    int64_t elements;
};

static void parameters_free(struct parameters *parameters) {
    for (int i = 0; parameters->targets && i < parameters->count; i++)
        mem_free(parameters->targets[i].data);
    mem_free(parameters->targets);
}

static enum status parameters_make(const struct graph *graph, struct parameters *out) {
    out->targets = mem_array(graph->tensors.count, sizeof *out->targets);
    if (!out->targets) return STATUS_FAILED;
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        if (tensor->kind != TENSOR_PARAMETER) continue;
        void *data = mem_array((size_t)shape_elements(&tensor->shape), sizeof(float));
        if (!data) return STATUS_FAILED;
        out->targets[out->count++] = (struct weight_target){.tensor = tensor, .data = data, .dtype = DTYPE_F32};
        out->elements += shape_elements(&tensor->shape);
    }
    return STATUS_OK;
}

static enum status write_weights(const struct model *model, uint64_t seed, const char *folder, int64_t *elements) {
    struct graph *graph;
    struct tensor *logits;
    struct parameters parameters = {0};
    TRY(model_build_graph(model, MODEL_LOGITS, DTYPE_F32, 1, 1, &graph, &logits));
    enum status status = parameters_make(graph, &parameters);
    if (status == STATUS_OK) {
        model_initialise_weights(model, seed, parameters.targets, parameters.count);
        status = model_write(model, folder, parameters.targets, parameters.count);
        *elements = parameters.elements;
    }
    parameters_free(&parameters);
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
    struct file_map text;
    const char *specials[] = {end_of_text};
    TRY(file_map_open(text_path, &text));
    char *path = path_join(folder, "tokenizer.json");
    enum status status = path ? STATUS_OK : STATUS_FAILED;
    if (path && text.bytes == 0) status = status_set(STATUS_BAD_INPUT, "%s: is empty", text_path);
    if (status == STATUS_OK) {
        status = tokenizer_train((const char *)text.data, text.bytes, config->vocab_size, specials, 1, path);
        if (status == STATUS_BAD_INPUT) status_prefix(status, "%s", text_path);
    }
    mem_free(path);
    file_map_close(&text);
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
    TRY(folder_create(folder));
    TRY(write_weights(model, wanted->seed, folder, parameters));
    if (wanted->tokenizer_text) TRY(write_tokenizer(wanted->tokenizer_text, &model->config, folder));
    return STATUS_OK;
}

static char *without_slashes(const char *path) {
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    return mem_format("%.*s", (int)length, path);
}

enum status new_model_write(const struct new_model *wanted, const char *folder, int64_t *parameters) {
    struct model *model = NULL;
    TRY(refuse_occupied(folder));
    TRY(model_create(&wanted->config, &model));
    char *path = without_slashes(folder);
    char *beside = path ? mem_format("%s.new-%d", path, (int)getpid()) : NULL;
    enum status status = beside ? write_into(wanted, model, beside, parameters) : STATUS_FAILED;
    if (status == STATUS_OK) status = folder_publish(beside, path);
    model_free(model);
    if (status != STATUS_OK && beside) {
        /* The message to keep is that of the failure. */
        char *message = mem_string(status_message()), *hint = mem_string(status_hint_text());
        (void)folder_remove(beside);
        if (message) status_set(status, "%s", message);
        if (message && hint && hint[0]) status_hint(status, "%s", hint);
        mem_free(message);
        mem_free(hint);
    }
    mem_free(beside);
    mem_free(path);
    return status;
}
