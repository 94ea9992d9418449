#include "cli/commands/command.h"

#include "base/file.h"
#include "base/json.h"
#include "base/terminal.h"
#include "cli/new_output.h"
#include "model/stored_format.h"
#include "session/options.h"
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

/* Lists the unquantized parameters. Their values are generated while they are written. */
static enum status list_plain(const struct graph *graph, const struct byte_store *store, struct parameters *out) {
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        if (tensor->kind != TENSOR_PARAMETER) continue;
        out->elements += shape_elements(tensor_values(tensor));
        if (tensor->code.format == WEIGHT_PLAIN) TRY(add(out, tensor, store, NULL));
    }
    return STATUS_OK;
}

/* Lists the quantized parameters, each of which is stored as several tensors. */
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

/* Without this file, transformers uses the family's own tokenizer class, which splits text differently. */
static enum status write_tokenizer_config(const char *folder, int64_t context) {
    json_auto_t *object =
        json_pack("{s:s, s:s, s:s, s:I, s:b}", "tokenizer_class", "PreTrainedTokenizerFast", "bos_token", end_of_text,
                  "eos_token", end_of_text, "model_max_length", (json_int_t)context, "clean_up_tokenization_spaces", 0);
    AUTO_FREE char *path = path_join(folder, "tokenizer_config.json");
    return object && path ? json_write(path, object) : status_no_memory(0, "a tokenizer's settings");
}

static enum status write_tokenizer(const char *text_path, const struct model_config *config, const char *folder) {
    AUTO(file_input_close) struct file_input text = {0};
    const char *specials[] = {end_of_text};
    TRY(file_input_open(text_path, &text));
    AUTO_FREE char *path = path_join(folder, "tokenizer.json");
    if (!path) return STATUS_FAILED;
    if (text.bytes == 0) return status_set(STATUS_BAD_INPUT, "%s: is empty", text_path);
    enum status status = tokenizer_train_file(&text, config->vocab_size, specials, 1, path);
    if (status == STATUS_BAD_INPUT) status_prefix(status, "%s", text_path);
    TRY(status);
    return write_tokenizer_config(folder, config->context);
}

/* tokenizer_train gives the special token the id 0. */
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
    AUTO_FREE char *path = path_join(model->folder, "tokenizer.json");
    if (!path) return STATUS_FAILED;
    if (file_exists(path))
        TRY(status_set(STATUS_BAD_INPUT, "%s: the new model gets this tokenizer, and cannot have another", path));
    return STATUS_OK;
}

static enum status open_like(const struct new_model *wanted, struct model **out) {
    AUTO(model_release) struct model *model = NULL;
    TRY(model_open_outline(wanted->like, &model));
    TRY(check_like(wanted, model));
    *out = TAKE(model);
    return STATUS_OK;
}

enum status new_model_write(const struct new_model *wanted, const char *folder, int64_t *parameters) {
    struct writing writing = {.wanted = wanted, .parameters = parameters};
    TRY(new_folder_check(folder));
    TRY(wanted->like ? open_like(wanted, &writing.model) : model_create(&wanted->config, &writing.model));
    enum status status = new_folder_write(folder, write_folder, &writing);
    model_free(writing.model);
    return status;
}

/* Refuses an option for a field that the family's config lacks. */
static enum status check_field(const struct options *options, enum option_id id, const struct model_family *family,
                               size_t field_offset) {
    if (!options_given(options, id) || model_family_has(family, field_offset)) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT,
                      "--%s: %s models have no such setting" HINT
                      "leave out --%s; `ballast help models` says which families have it",
                      option_table[id]->name, family->name, option_table[id]->name);
}

/* Refuses formats whose markup the tokenizer would learn as text. */
static enum status check_text_path(const char *path) {
    const char *dot = path ? strrchr(path, '.') : NULL;
    if (!dot || (strcmp(dot, ".jsonl") != 0 && strcmp(dot, ".json") != 0 && strcmp(dot, ".bin") != 0)) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "--tokenizer-data: %s: must be plain text" HINT "give a .txt file", path);
}

static enum status read_config(const struct options *options, struct model_config *out) {
    TRY(model_config_init(options_text(options, OPT_arch), out));
    TRY(check_field(options, OPT_kv_heads, out->family, offsetof(struct model_config, kv_heads)));
    TRY(check_field(options, OPT_head_dim, out->family, offsetof(struct model_config, head_dim)));
    TRY(check_field(options, OPT_window, out->family, offsetof(struct model_config, window)));
    out->hidden = options_int(options, OPT_hidden);
    out->layers = options_int(options, OPT_layers);
    out->heads = options_int(options, OPT_heads);
    out->kv_heads = options_int(options, OPT_kv_heads);
    out->head_dim = options_int(options, OPT_head_dim);
    out->ffn = options_int(options, OPT_ffn);
    out->vocab_size = options_int(options, OPT_vocab);
    out->context = options_int(options, OPT_context);
    if (options_given(options, OPT_window)) model_config_set_window(out, options_int(options, OPT_window));
    out->tied = out->tied || options_flag(options, OPT_tied);
    return STATUS_OK;
}

static enum status run(const struct options *options) {
    const char *folder = options->arguments.items[0];
    int64_t parameters = 0;
    struct new_model wanted = {.tokenizer_text = options_text(options, OPT_tokenizer_data),
                               .like = options_text(options, OPT_like),
                               .seed = (uint64_t)options_int(options, OPT_seed)};
    const char *dtype = options_text(options, OPT_dtype), *format = options_text(options, OPT_quantize_base);
    wanted.dtype = dtype ? dtype_find(dtype) : DTYPE_F32;
    if (format) wanted.base_format = weight_format_find(format);
    TRY(check_text_path(wanted.tokenizer_text));
    if (!wanted.like) TRY(read_config(options, &wanted.config));
    TRY(new_model_write(&wanted, folder, &parameters));
    log_note("%s: a %s%s%s with %" PRId64 " parameters%s", folder, wanted.like ? "model like " : "",
             wanted.like ? wanted.like : options_text(options, OPT_arch), wanted.like ? "" : " model", parameters,
             wanted.tokenizer_text ? " and its tokenizer" : "");
    return STATUS_OK;
}

const struct command command_init = {
    .bit = COMMAND_INIT,
    .name = "init",
    .arguments = "MODEL_DIR (--like MODEL | --arch FAMILY --hidden N --layers N --heads N --vocab N --context N)",
    .min = 1,
    .max = 1,
    .summary = "create a model with random weights",
    .details = "Writes a Hugging Face directory: config.json, model.safetensors and, with --tokenizer-data, a "
               "tokenizer trained on that text. MODEL_DIR must be new or empty.",
    .notes = "The weights have the data type --dtype, and matrices the format of --quantize-base. The tokenizer's "
             "special token is <|endoftext|>.",
    .example = "ballast init tiny --arch llama --hidden 256 --layers 4 --heads 4 --vocab 8192 --context 512 "
               "--tokenizer-data book.txt",
    .run = run,
};
