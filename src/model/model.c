#include "model/model.h"

#include <limits.h>

#include "base/file.h"
#include "base/folder.h"
#include "base/json.h"
#include "base/terminal.h"
#include "model/config.h"
#include "model/stored_format.h"
#include "model/weights.h"

static const char hub_url[] = "https://huggingface.co/";
static const char name_letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";

bool model_folder_has(const char *folder, const char *name) {
    char path[PATH_MAX];
    return snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path && file_exists(path);
}

static bool is_model(const char *folder) {
    return model_folder_has(folder, "config.json") || model_folder_has(folder, adapter_config_name);
}

/* Whether the text is OWNER/NAME and no directory has the owner's name. */
static bool is_hub_name(const char *text) {
    size_t owner = strspn(text, name_letters), name = text[owner] == '/' ? strspn(text + owner + 1, name_letters) : 0;
    if (owner == 0 || name == 0 || text[owner + 1 + name] != '\0' || text[0] == '.') return false;
    char *folder = mem_format("%.*s", (int)owner, text);
    bool there = folder && file_exists(folder);
    mem_free(folder);
    return !there;
}

/* Presets have dimensions only. */
static enum status refuse_missing(const char *given) {
    const char *name = strncmp(given, hub_url, strlen(hub_url)) == 0 ? given + strlen(hub_url) : given;
    const struct model_preset *preset = model_preset_find(name);
    if (!preset && !is_hub_name(name)) return status_set(STATUS_BAD_INPUT, "%s: no such directory", given);
    status_set(STATUS_BAD_INPUT, "%s: no such directory%s", given,
               preset ? "; the preset of that name has no weights, which this needs"
                      : "; a model of the Hugging Face hub has to be downloaded first");
    const char *hub = preset ? preset->hub : name, *own = path_name(hub);
    return status_hint(STATUS_BAD_INPUT,
                       "download it first: hf download %s --local-dir %s (before huggingface_hub 1.0: huggingface-cli "
                       "download), then give %s",
                       hub, own, own);
}

static enum status refuse_file(const char *given) {
    TRY(foreign_weights_refuse_file(given));
    TRY(foreign_weights_refuse_name(given));
    status_set(STATUS_BAD_INPUT,
               "%s: is a file" HINT "a model is a directory with config.json; `ballast help presets` lists names",
               given);
    const char *name = path_name(given);
    if (!strstr(name, ".safetensors") && strcmp(name, "config.json") != 0) return STATUS_BAD_INPUT;
    int length = name > given + 1 ? (int)(name - given) - 1 : 1;
    return status_hint(STATUS_BAD_INPUT, "give its directory, %.*s", length, name > given ? given : ".");
}

/* The last of step-00000100, step-00000200, … which are sorted; NULL if there is none. */
static char *newest_checkpoint(const char *run_folder) {
    struct names names = {0};
    char *folder = path_join(run_folder, "checkpoints"), *newest = NULL;
    if (folder && file_is_folder(folder) && folder_list(folder, &names) == STATUS_OK)
        for (size_t i = names.count; i > 0 && !newest; i--)
            if (strncmp(names.items[i - 1], "step-", 5) == 0) newest = path_join(folder, names.items[i - 1]);
    names_free(&names);
    mem_free(folder);
    return newest;
}

static enum status refuse_unfinished(const char *run_folder) {
    char *newest = newest_checkpoint(run_folder), word[PATH_SHELL_BYTES];
    const char *run = path_for_shell(run_folder, word);
    status_set(STATUS_BAD_INPUT, "%s: is a run that has no model yet: it is written at the end", run_folder);
    if (newest)
        status_hint(STATUS_BAD_INPUT, "go on with: ballast resume %s; or give its newest checkpoint, %s", run, newest);
    else
        status_hint(STATUS_BAD_INPUT, "go on with: ballast resume %s", run);
    mem_free(newest);
    return STATUS_BAD_INPUT;
}

/* A downloaded model may be in a subdirectory: snapshots/REVISION in the cache of the hub's own library. */
static enum status refuse_folder(const char *given) {
    TRY(foreign_weights_refuse_folder(given));
    struct names names = {0};
    char *folder = path_join(given, "snapshots");
    status_set(STATUS_BAD_INPUT,
               "%s: is no model: it holds no config.json" HINT
               "name a Hugging Face model's directory, or a preset (`ballast help presets`)",
               given);
    if (folder && file_is_folder(folder) && folder_list(folder, &names) == STATUS_OK && names.count > 0)
        status_hint(STATUS_BAD_INPUT, "it is a download's cache; give %s/%s", folder, names.items[names.count - 1]);
    names_free(&names);
    mem_free(folder);
    return STATUS_BAD_INPUT;
}

static enum status find_run_model(const char *run_folder, char **out) {
    AUTO_FREE char *folder = path_join(run_folder, "model");
    enum status status = folder ? STATUS_OK : STATUS_FAILED;
    if (folder && !is_model(folder)) status = refuse_unfinished(run_folder);
    TRY(status);
    *out = TAKE(folder);
    return STATUS_OK;
}

enum status model_folder_find(const char *given, char **out) {
    if (!file_exists(given)) return refuse_missing(given);
    if (!file_is_folder(given)) return refuse_file(given);
    if (!is_model(given))
        return model_folder_has(given, "run.json") ? find_run_model(given, out) : refuse_folder(given);
    *out = mem_string(given);
    return *out ? STATUS_OK : STATUS_FAILED;
}

enum { CONFIG_LIMIT_BYTES = 16 << 20 };

const struct model_family *const model_families[] = {
#define FAMILY_ENTRY(name) &family_##name,
    MODEL_FAMILY_LIST(FAMILY_ENTRY)
#undef FAMILY_ENTRY
};
const int model_family_count = sizeof model_families / sizeof *model_families;

const struct model_family *const model_wrappers[] = {
#define FAMILY_ENTRY(name) &family_##name,
    MODEL_WRAPPER_LIST(FAMILY_ENTRY)
#undef FAMILY_ENTRY
};
const int model_wrapper_count = sizeof model_wrappers / sizeof *model_wrappers;

/* "gpt2, llama, …" */
#define LISTED_NAME(name) ", " #name
#define LISTED(list) (&(list(LISTED_NAME))[2])

enum status model_family_find(const char *file, const char *field, const char *name, const struct model_family **out) {
    for (int i = 0; i < model_family_count; i++) {
        if (strcmp(model_families[i]->name, name) != 0) continue;
        *out = model_families[i];
        return STATUS_OK;
    }
    status_set(STATUS_BAD_INPUT, "%s: %s: \"%.60s\" is not supported", file, field, name);
    return status_hint(STATUS_BAD_INPUT, "supported: %s; see `ballast help models`", LISTED(MODEL_FAMILY_LIST));
}

/* Says what a model with parts besides its text model would need to be. */
static enum status refuse_wrapper(const char *file, const char *type) {
    return status_set(STATUS_BAD_INPUT,
                      "%s: model_type: \"%.60s\" is not supported: it has other parts than its text model" HINT
                      "of such models, these are supported, whose text model trains: %s",
                      file, type, LISTED(MODEL_WRAPPER_LIST));
}

enum status model_family_of(const char *file, const json_t *config, const struct model_family **out) {
    const char *type = NULL;
    TRY(json_require(file, config, "model_type"));
    TRY(json_read_string(file, config, "model_type", &type));
    for (int i = 0; i < model_wrapper_count; i++) {
        if (strcmp(model_wrappers[i]->name, type) != 0) continue;
        *out = model_wrappers[i];
        return STATUS_OK;
    }
    enum status status = model_family_find(file, "model_type", type, out);
    bool wraps = json_object_get(config, "text_config") || json_object_get(config, "llm_config") ||
                 json_object_get(config, "vision_config");
    return status == STATUS_BAD_INPUT && wraps ? refuse_wrapper(file, type) : status;
}

/* Returns the model on success; frees it on failure. */
static enum status keep_model(enum status status, struct model *model, struct model **out) {
    if (status == STATUS_OK)
        *out = model;
    else
        model_free(model);
    return status;
}

enum status model_config_read(const char *file, const json_t *object, const struct model_family *family,
                              struct model_config *out) {
    *out = (struct model_config){.family = family};
    return family->read_config(file, object, out);
}

static enum status read_config(struct model *model, const char *file) {
    const struct model_family *family = NULL;
    TRY(model_family_of(file, model->config_json, &family));
    TRY(model_config_read(file, model->config_json, family, &model->config));
    model->prefix = family->prefix;
    model->base_is_stored = model->config.base_format != WEIGHT_PLAIN;
    if (!model->base_is_stored || family->expert_format != WEIGHT_PLAIN) return STATUS_OK;
    const json_t *quantised = json_object_get(model->config_json, "quantization_config");
    TRY(plain_layers_read(file, quantised, &model->plain_layers));
    model->config.plain_layers = model->plain_layers;
    return STATUS_OK;
}

static enum status open_into(struct model *model, const char *folder, bool outline) {
    bool weights = true; /* in an outline, only if all their files exist */
    model->folder = mem_string(folder);
    char *file = path_join(folder, "config.json");
    enum status status = STATUS_FAILED;
    if (model->folder && file) status = json_read_object(file, CONFIG_LIMIT_BYTES, &model->config_json);
    if (status == STATUS_OK) status = read_config(model, file);
    mem_free(file);
    TRY(status);
    if (outline) TRY(safetensors_folder_is_whole(folder, &weights));
    if (weights)
        TRY(weights_open(model, folder));
    else
        log_note("%s: its weights are not here; config.json is enough for this", folder);
    if (model->config.dropout > 0)
        log_warning("%s/config.json asks for dropout (up to %g), which is not applied", folder, model->config.dropout);
    return STATUS_OK;
}

/* Opens a model without adapters of its own. */
static enum status open_plain(const char *folder, bool outline, struct model **out) {
    struct model *model = mem_array(1, sizeof *model);
    if (!model) return STATUS_FAILED;
    return keep_model(open_into(model, folder, outline), model, out);
}

static enum status open_found(const char *given, bool outline, struct model **out) {
    AUTO_FREE char *folder = NULL;
    TRY(model_folder_find(given, &folder));
    enum status status = model_folder_has(folder, adapter_config_name) ? model_open_adapter(folder, NULL, out)
                                                                       : open_plain(folder, outline, out);
    return status == STATUS_BAD_INPUT
               ? status_hint_else(status, "`ballast help models` lists the settings of config.json")
               : status;
}

enum status model_open_base(const char *file, const char *given, struct model **out) {
    AUTO_FREE char *folder = NULL;
    TRY(model_folder_find(given, &folder));
    return model_folder_has(folder, adapter_config_name)
               ? status_set(STATUS_BAD_INPUT, "%s: the base model is an adapter itself: %s", file, folder)
               : open_plain(folder, false, out);
}

enum status model_open(const char *given, struct model **out) { return open_found(given, false, out); }

enum status model_open_preset(const struct model_preset *preset, struct model **out) {
    struct model *model = mem_array(1, sizeof *model);
    if (!model) return STATUS_FAILED;
    model->preset = preset;
    enum status status = model_preset_config(preset, &model->config_json);
    if (status == STATUS_OK) status = read_config(model, preset->name);
    return keep_model(status, model, out);
}

enum status model_open_outline(const char *name, struct model **out) {
    const struct model_preset *preset = model_preset_find(name);
    if (preset && file_exists(name))
        log_note("%s: the directory here is meant, not the preset of that name", name);
    else if (preset)
        return model_open_preset(preset, out);
    enum status status = open_found(name, true, out);
    if (status == STATUS_BAD_INPUT && !file_exists(name) && !status_hint_text()[0])
        return model_preset_hint(status_set(status, "%s: no directory and no preset has this name", name), name);
    return status;
}

bool model_family_has(const struct model_family *family, size_t field_offset) {
    for (const struct config_key *key = family->keys; key->name; key++)
        if (key->offset == field_offset) return true;
    return false;
}

enum status model_config_init(const char *arch, struct model_config *out) {
    struct model_config config = {0};
    TRY(model_family_find("new model", "arch", arch, &config.family));
    config.family->set_defaults(&config);
    *out = config;
    return STATUS_OK;
}

static bool has_pattern(const struct model_config *config) {
    bool any = false, all = true;
    for (int layer = 0; layer < MODEL_LAYERS_MAX; layer++) {
        any = any || config->windowed[layer];
        all = all && config->windowed[layer];
    }
    return any && !all;
}

void model_config_set_window(struct model_config *config, int64_t window) {
    bool stays = window > 0 && has_pattern(config);
    config->window = window;
    for (int layer = 0; layer < MODEL_LAYERS_MAX && !stays; layer++)
        config->windowed[layer] = window > 0;
}

/* Writes the config and reads it back, so that a new model passes the same checks as one from a file. */
static enum status create_into(struct model *model, const struct model_config *config) {
    static const char file[] = "new model";
    if (config->heads > 0 && config->hidden % config->heads != 0) {
        status_set(STATUS_BAD_INPUT, "%s: hidden: %lld is not a multiple of heads (%lld)", file,
                   (long long)config->hidden, (long long)config->heads);
        return status_hint(STATUS_BAD_INPUT, "transformers refuses such models, whatever the head size");
    }
    model->config_json = config->family->write_config(config);
    if (!model->config_json) return status_no_memory(0, "a config");
    TRY(model_config_read(file, model->config_json, config->family, &model->config));
    model->prefix = config->family->prefix;
    return STATUS_OK;
}

enum status model_create(const struct model_config *config, struct model **out) {
    struct model *model = mem_array(1, sizeof *model);
    if (!model) return STATUS_FAILED;
    return keep_model(create_into(model, config), model, out);
}

void model_free(struct model *model) {
    if (!model) return;
    safetensors_close(model->adapter_weights);
    safetensors_close(model->weights);
    plain_layers_free(model->plain_layers);
    mem_free(model->frozen);
    json_decref(model->config_json);
    json_decref(model->ends);
    mem_free(model->adapter_folder);
    mem_free(model->folder);
    mem_free(model);
}

/* The bytes of the widest activation must be countable: the operators' shapes rely on it. */
static enum status check_sizes(const struct model_config *config, int64_t sequences, int64_t length) {
    enum { BYTES_PER_VALUE = 8, PARTS = 3 };
    int64_t width = config->heads * config->head_dim * PARTS, gates = 2 * config->ffn, bytes;
    if (sequences < 1 || length < 1)
        return status_set(STATUS_BAD_INPUT, "a micro-batch of %lld sequences of %lld tokens: both must be at least 1",
                          (long long)sequences, (long long)length);
    if (length > config->context) {
        status_set(STATUS_BAD_INPUT, "a sequence length of %lld is more than the model's context of %lld tokens",
                   (long long)length, (long long)config->context);
        return status_hint(STATUS_BAD_INPUT, "set a sequence length of at most %lld", (long long)config->context);
    }
    if (gates > width) width = gates;
    if (config->embedding_width > width) width = config->embedding_width;
    if (config->vocab_size > width) width = config->vocab_size;
    if (__builtin_mul_overflow(sequences, length, &bytes) || __builtin_mul_overflow(bytes, width, &bytes) ||
        __builtin_mul_overflow(bytes, BYTES_PER_VALUE, &bytes))
        return status_set(STATUS_BAD_INPUT,
                          "a micro-batch of %lld sequences of %lld tokens: its bytes overflow 64 bits",
                          (long long)sequences, (long long)length);
    return STATUS_OK;
}

/* Takes over `graph`; NULL: out of memory. */
static enum status build_into(const struct model *model, enum model_purpose purpose, struct graph *graph,
                              struct graph **out, struct tensor **out_tensor) {
    if (!graph) return STATUS_FAILED;
    struct tensor *tensor = model->config.family->build(&model->config, model->prefix, purpose, graph);
    enum status status = graph_status(graph);
    if (status == STATUS_OK) status = adapter_freeze(model, graph);
    if (status != STATUS_OK) {
        graph_free(graph);
        return status;
    }
    *out = graph;
    *out_tensor = tensor;
    return STATUS_OK;
}

enum status model_build_graph(const struct model *model, enum model_purpose purpose, enum dtype dtype,
                              int64_t micro_batch_sequences, int64_t sequence_length, struct graph **out,
                              struct tensor **out_tensor) {
    TRY(check_sizes(&model->config, micro_batch_sequences, sequence_length));
    return build_into(model, purpose, graph_create(dtype, micro_batch_sequences, sequence_length), out, out_tensor);
}

enum status model_build_small_graph(const struct model *model, struct graph **out) {
    struct tensor *logits;
    return model_build_graph(model, MODEL_LOGITS, DTYPE_F32, 1, 1, out, &logits);
}

enum status model_build_decode_graph(const struct model *model, enum dtype dtype, const struct decode_shape *shape,
                                     struct graph **out, struct tensor **out_logits) {
    TRY(check_sizes(&model->config, 1, shape->positions));
    TRY(check_sizes(&model->config, shape->sequences, shape->tokens));
    if (shape->tokens > shape->positions)
        return status_set(STATUS_BAD_INPUT, "%lld tokens at a time do not go into caches of %lld",
                          (long long)shape->tokens, (long long)shape->positions);
    if (shape->texts < 1 || shape->texts > INT32_MAX / shape->positions)
        return status_set(STATUS_BAD_INPUT, "caches of %lld texts of %lld tokens: too many rows",
                          (long long)shape->texts, (long long)shape->positions);
    struct graph *graph = graph_create(dtype, shape->sequences, shape->tokens);
    if (graph) graph->cache_texts = shape->texts;
    if (graph) graph->cache_positions = shape->positions;
    return build_into(model, MODEL_DECODE, graph, out, out_logits);
}

static int64_t count_parameters(const struct graph *graph, bool trained) {
    int64_t count = 0;
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        bool counts = tensor->kind == TENSOR_PARAMETER && !tensor->base && (tensor->trainable || !trained);
        if (counts) count += shape_elements(tensor_values(tensor));
    }
    return count;
}

int64_t model_parameter_count(const struct graph *graph) { return count_parameters(graph, false); }
int64_t model_trained_count(const struct graph *graph) { return count_parameters(graph, true); }

/* Whether the node multiplies activations by its second input, a weight. */
static bool is_matrix_product(const struct node *node) {
    enum op_work work = node->op->work;
    bool product =
        work == OP_WORK_PRODUCT || work == OP_WORK_LOGITS || work == OP_WORK_LOSS || work == OP_WORK_LOSS_GRAD;
    return product && node->in[1]->kind == TENSOR_PARAMETER;
}

static int64_t first_use(const struct graph *graph, const struct tensor *weight) {
    for (size_t i = 0; i < graph->nodes.count; i++)
        if (is_matrix_product(graph->nodes.items[i]) && graph->nodes.items[i]->in[1] == weight) return (int64_t)i;
    return -1;
}

/* Counts the experts of one token: the first ones represent all. */
static int64_t count_experts(const struct graph *graph, bool trained) {
    int64_t count = 0, tokens = graph->micro_batch_sequences * graph->sequence_length;
    for (size_t i = 0; i < graph->nodes.count; i++) {
        const struct node *node = graph->nodes.items[i];
        if (node->op->work != OP_WORK_EXPERT) continue;
        /* the attributes of both operators begin with these */
        const struct expert_attributes *attributes = NODE_ATTRIBUTES(node, expert_attributes);
        int matrices = node->op == &op_expert_glu ? 2 : 3;
        for (int k = 2; k < 2 + matrices && attributes->expert < attributes->slots / tokens; k++)
            if (node->in[k]->trainable || !trained) count += shape_elements(tensor_values(node->in[k]));
    }
    return count;
}

static int64_t count_matrices(const struct graph *graph, bool trained) {
    int64_t count = 0;
    for (size_t i = 0; i < graph->nodes.count; i++) {
        const struct node *node = graph->nodes.items[i];
        if (is_matrix_product(node) && first_use(graph, node->in[1]) == (int64_t)i &&
            (node->in[1]->trainable || !trained))
            count += shape_elements(tensor_values(node->in[1]));
    }
    return count + count_experts(graph, trained);
}

int64_t model_matrix_parameter_count(const struct graph *graph) { return count_matrices(graph, false); }
int64_t model_trained_matrix_count(const struct graph *graph) { return count_matrices(graph, true); }
