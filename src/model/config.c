#include "model/config.h"

#include "base/json.h"
#include "base/terminal.h"
#include "model/stored_format.h"

/* Keys of every family that have no effect on training. */
const struct config_key config_common_keys[] = {
    KEY_ELSEWHERE("model_type"),
    KEY_ELSEWHERE("quantization_config"),
    /* origin and other uses of the file; auto_map: code of the model's own */
    KEYS_IGNORED("_name_or_path", "transformers_version", "transformers.js_config", "finetuning_task", "auto_map",
                 "unsloth_fixed", "unsloth_version", "task_specific_params", "problem_type", "id2label", "label2id",
                 "_num_labels", "num_labels"),
    /* dtype of the stored weights, which the files themselves give */
    KEYS_IGNORED("dtype", "torch_dtype", "use_bfloat16"),
    /* tokens: the tokenizer and generation decide on them */
    KEYS_IGNORED("bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "decoder_start_token_id",
                 "tokenizer_class", "prefix"),
    /* how transformers runs the model, and its outputs; chunk_size_feed_forward: the same result in pieces */
    KEYS_IGNORED("_attn_implementation", "_attn_implementation_autoset", "attn_implementation", "_flash_attn_2_enabled",
                 "gradient_checkpointing", "use_cache", "output_attentions", "output_hidden_states", "output_past",
                 "return_dict", "torchscript", "tf_legacy_loss", "chunk_size_feed_forward"),
    /* generation, which older releases kept here */
    KEYS_IGNORED("max_length", "min_length", "do_sample", "early_stopping", "num_beams", "num_beam_groups",
                 "diversity_penalty", "temperature", "top_k", "top_p", "typical_p", "repetition_penalty",
                 "length_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids",
                 "num_return_sequences", "output_scores", "return_dict_in_generate", "forced_bos_token_id",
                 "forced_eos_token_id", "remove_invalid_values", "exponential_decay_length_penalty", "suppress_tokens",
                 "begin_suppress_tokens"),
    /* settings that would make it another model */
    KEY_FIXED("is_decoder", "false"),
    KEY_FIXED("is_encoder_decoder", "false"),
    KEY_FIXED("add_cross_attention", "false"),
    KEY_FIXED("cross_attention_hidden_size", "null"),
    KEY_FIXED("tie_encoder_decoder", "false"),
    KEY_FIXED("pruned_heads", "{}"),
    {0},
};

json_t *config_put(json_t *object, const char *key, json_t *value) {
    if (object && json_object_set_new(object, key, value) == 0) return object;
    if (!object) json_decref(value);
    json_decref(object);
    return NULL;
}

/* Number `index` of all activation names, and its function. */
static const char *activation_at(int index, enum activation *function) {
    for (int f = 0; f < ACTIVATION_COUNT; f++)
        for (int i = 0; activation_hub_name((enum activation)f, i); i++) {
            *function = (enum activation)f;
            if (index-- == 0) return activation_hub_name((enum activation)f, i);
        }
    return NULL;
}

const char *config_activation_name(int index) {
    enum activation function;
    return activation_at(index, &function);
}

static const struct config_key *find_key(const struct config_key *keys, const char *name) {
    for (; keys->name; keys++) {
        const char *const one[] = {keys->name, NULL}, *const *own = keys->names ? keys->names : one;
        while (*own && strcmp(*own, name) != 0)
            own++;
        if (*own) return keys;
    }
    return NULL;
}

static enum status read_activation(const char *file, const json_t *object, const char *key, enum activation *out) {
    const char *name = NULL, *known;
    char names[256] = "";
    TRY(json_read_string(file, object, key, &name));
    if (!name) return STATUS_OK;
    enum activation function;
    for (int i = 0; (known = activation_at(i, &function)); i++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", known);
        if (strcmp(name, known) != 0) continue;
        *out = function;
        return STATUS_OK;
    }
    status_set(STATUS_BAD_INPUT, "%s: %s: \"%.60s\" is not supported", file, key, name);
    return status_hint(STATUS_BAD_INPUT, "supported: %s", names);
}

static enum status parse_text(const struct config_key *key, json_t **out) {
    *out = json_loads(key->text, JSON_DECODE_ANY, NULL);
    return *out ? STATUS_OK : status_no_memory(strlen(key->text), "a JSON value");
}

static enum status check_fixed(const char *file, const json_t *object, const struct config_key *key) {
    const json_t *found = json_present(object, key->name);
    json_t *wanted;
    if (!found) return STATUS_OK;
    TRY(parse_text(key, &wanted));
    /* 1 and 1.0 are the same. */
    bool equal = json_is_number(found) && json_is_number(wanted) ? json_number_value(found) == json_number_value(wanted)
                                                                 : json_equal(found, wanted);
    json_decref(wanted);
    if (equal) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: %s: only %s is supported", file, key->name, key->text);
}

static enum status check_architectures(const char *file, const json_t *object, const struct config_key *key) {
    const json_t *found = json_object_get(object, key->name);
    json_auto_t *known = NULL;
    if (json_is_null(found)) return STATUS_OK;
    if (!json_is_array(found)) return status_set(STATUS_BAD_INPUT, "%s: %s: must be an array", file, key->name);
    TRY(parse_text(key, &known));
    for (size_t i = 0; i < json_array_size(found); i++) {
        const json_t *item = json_array_get(found, i);
        const char *name = json_is_string(item) ? json_string_value(item) : "(not a string)";
        bool holds = false;
        for (size_t k = 0; k < json_array_size(known); k++)
            holds |= json_equal(json_array_get(known, k), item);
        if (!holds)
            TRY(status_set(STATUS_BAD_INPUT, "%s: %s: \"%.60s\" is not one of %s", file, key->name, name, key->text));
    }
    return STATUS_OK;
}

static enum status read_key(const char *file, const json_t *object, const struct config_key *key,
                            struct model_config *config) {
    void *field = (char *)config + key->offset;
    double before = config->dropout;
    switch (key->use) {
    case CONFIG_INT: return json_read_int(file, object, key->name, (int64_t)key->min, (int64_t)key->max, field);
    case CONFIG_DOUBLE: return json_read_double(file, object, key->name, key->min, key->max, field);
    case CONFIG_BOOL: return json_read_bool(file, object, key->name, field);
    case CONFIG_ACTIVATION: return read_activation(file, object, key->name, field);
    case CONFIG_DROPOUT: /* the largest of several */
        TRY(json_read_double(file, object, key->name, key->min, key->max, &config->dropout));
        if (before > config->dropout) config->dropout = before;
        return STATUS_OK;
    case CONFIG_ARCHITECTURES: return check_architectures(file, object, key);
    case CONFIG_FIXED: return check_fixed(file, object, key);
    case CONFIG_IGNORED:
    case CONFIG_ELSEWHERE: return STATUS_OK;
    }
    BUG("config key %s", key->name);
}

/* {"quant_method": "bitsandbytes", "load_in_4bit": true, ...}, as many kinds of quantizers write it. */
static enum status read_quantisation(const char *file, const json_t *object, struct model_config *out) {
    struct stored_format stored = {WEIGHT_PLAIN, 0};
    const json_t *found = json_present(object, "quantization_config");
    if (json_present(object, "compression_config"))
        return config_hint_quantised(
            status_set(STATUS_BAD_INPUT, "%s: compression_config: the weights are quantised", file));
    if (!found) return STATUS_OK;
    TRY(out->family->expert_format != WEIGHT_PLAIN ? stored_format_read_experts(file, found, &stored)
                                                   : stored_format_read_config(file, found, &stored));
    out->base_format = stored.format;
    out->base_block = stored.block;
    return STATUS_OK;
}

enum status config_hint_quantised(enum status status) {
    return status_hint(status, "get the model that they were made from, in F32, BF16 or F16; of quantised ones, "
                               "bitsandbytes' nf4 and int8 and compressed-tensors' mxfp4 and integers are read, as "
                               "the base of adapters");
}

/* Whether the value of an unknown setting has no effect: null, an empty list or object, all features of a head rotated,
 * full attention in all layers. An empty list of layer types is an error in transformers. */
static bool is_neutral(const char *name, const json_t *value) {
    bool layers = strcmp(name, "layer_types") == 0;
    bool empty = (json_is_object(value) && json_object_size(value) == 0) ||
                 (json_is_array(value) && json_array_size(value) == 0 && !layers);
    if (json_is_null(value) || empty) return true;
    if (strcmp(name, "partial_rotary_factor") == 0) return json_is_number(value) && json_number_value(value) == 1;
    if (!layers || json_array_size(value) == 0) return false;
    for (size_t i = 0; i < json_array_size(value); i++) {
        const char *type = json_string_value(json_array_get(value, i));
        if (!type || strcmp(type, "full_attention") != 0) return false;
    }
    return true;
}

enum status config_read_keys(const char *file, const json_t *object, const struct config_key *keys,
                             struct model_config *config) {
    TRY(read_quantisation(file, object, config));
    for (const struct config_key *key = keys; key->name; key++)
        if (key->required) TRY(json_require(file, object, key->name));
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, name, value) {
        const struct config_key *key = find_key(keys, name);
        if (!key) key = find_key(config_common_keys, name);
        if (!key && is_neutral(name, value)) {
            log_note("%s: %.100s: unknown setting for a model of type %s, which changes nothing as it is", file, name,
                     config->family->name);
            continue;
        }
        if (!key) {
            status_set(STATUS_BAD_INPUT, "%s: %.100s: unknown setting for a model of type %s", file, name,
                       config->family->name);
            return status_hint(STATUS_BAD_INPUT, "it may change what the model computes, so it is not ignored; if it "
                                                 "does not, remove it from the file");
        }
        TRY(read_key(file, object, key, config));
    }
    return STATUS_OK;
}

/* The key that fills a field, for messages. */
static const char *key_of(const struct config_key *keys, size_t offset, const char *otherwise) {
    for (; keys->name; keys++)
        if (keys->use == CONFIG_INT && keys->offset == offset) return keys->name;
    return otherwise;
}

#define KEY_OF(field) key_of(keys, CONFIG_FIELD(field), #field)

/* Bytes of all parameters, their gradients and fp32 optimizer state, with a margin, must fit 63 bits. */
static bool bytes_countable(const struct model_config *config) {
    enum { BYTES_PER_PARAMETER = 64, MATRICES = 8 };
    int64_t width = config->heads * config->head_dim, layer, total, ends;
    int64_t tokens = config->vocab_size + config->context + config->hidden;
    int64_t mlp = config->ffn > config->expert_ffn ? config->ffn : config->expert_ffn;
    if (mlp > width) width = mlp;
    width = (width + config->shared_ffn) * (config->experts > 0 ? config->experts : 1);
    return !__builtin_mul_overflow(width, config->hidden * MATRICES, &layer) &&
           !__builtin_mul_overflow(layer, config->layers, &layer) &&
           !__builtin_mul_overflow(tokens, (config->hidden + config->embedding_width) * 2, &ends) &&
           !__builtin_add_overflow(layer, ends, &total) && !__builtin_mul_overflow(total, BYTES_PER_PARAMETER, &total);
}

enum status config_complete(const char *file, const struct config_key *keys, struct model_config *config) {
    if (config->kv_heads == 0) config->kv_heads = config->heads;
    if (config->heads % config->kv_heads != 0)
        return status_set(STATUS_BAD_INPUT, "%s: %s: %lld does not divide %s (%lld)" HINT "change one of the two", file,
                          KEY_OF(kv_heads), (long long)config->kv_heads, KEY_OF(heads), (long long)config->heads);
    if (config->head_dim == 0) {
        if (config->hidden % config->heads != 0)
            return status_set(STATUS_BAD_INPUT, "%s: %s: %lld does not divide %s (%lld)" HINT "change one of the two",
                              file, KEY_OF(heads), (long long)config->heads, KEY_OF(hidden), (long long)config->hidden);
        config->head_dim = config->hidden / config->heads;
    }
    if (config->embedding_width == 0) config->embedding_width = config->hidden;
    if (!bytes_countable(config))
        return status_set(STATUS_BAD_INPUT, "%s: %s, %s, %s: so large together that the model's bytes overflow 64 bits",
                          file, KEY_OF(hidden), KEY_OF(ffn), KEY_OF(layers));
    return STATUS_OK;
}

static json_t *written_value(const struct model_config *config, const struct config_key *key) {
    const void *field = (const char *)config + key->offset;
    switch (key->use) {
    case CONFIG_INT: return json_integer(*(const int64_t *)field);
    case CONFIG_DOUBLE: return json_real(*(const double *)field);
    case CONFIG_BOOL: return json_boolean(*(const bool *)field);
    case CONFIG_DROPOUT: return json_real(0);
    case CONFIG_ACTIVATION: return json_string(activation_hub_name(*(const enum activation *)field, 0));
    case CONFIG_ARCHITECTURES: {
        json_t *known = json_loads(key->text, 0, NULL);
        json_t *first = known ? json_pack("[O]", json_array_get(known, 0)) : NULL;
        json_decref(known);
        return first;
    }
    case CONFIG_FIXED:
    case CONFIG_IGNORED:
    case CONFIG_ELSEWHERE: break;
    }
    BUG("config key %s is not written", key->name);
}

int64_t config_ffn(const struct model_config *config) {
    const struct model_ffn *rule = &config->family->ffn;
    if (config->ffn != 0) return config->ffn;
    if (config->hidden > (int64_t)CONFIG_WIDTH_MAX) return config->hidden; /* rejected later; must not overflow here */
    return (rule->numerator * config->hidden / rule->denominator + rule->multiple - 1) / rule->multiple *
           rule->multiple;
}

json_t *config_write_keys(const struct model_config *config, const struct config_key *keys) {
    /* Special tokens belong to the tokenizer. Without these keys, transformers assumes the authors' own. */
    json_t *object = json_pack("{s:s, s:n, s:n, s:n}", "model_type", config->family->name, "bos_token_id",
                               "eos_token_id", "pad_token_id");
    for (const struct config_key *key = keys; object && key->name; key++) {
        if (key->use >= CONFIG_FIXED) continue; /* keys that may be omitted */
        object = config_put(object, key->name, written_value(config, key));
    }
    return object;
}

/* The settings of sliding windows in config.json. */

static const char full[] = "full_attention", sliding[] = "sliding_attention";

/* transformers requires a number even if no layer has a window. */
enum { UNUSED_WINDOW = 4096 };

/* null: no window; missing: *window does not change. */
static enum status read_size(const char *file, const json_t *object, int64_t *window) {
    if (json_is_null(json_object_get(object, "sliding_window"))) *window = 0;
    return json_read_int(file, object, "sliding_window", 1, (int64_t)CONFIG_CONTEXT_MAX, window);
}

static enum status read_window(const char *file, const json_t *object, struct model_config *config) {
    TRY(read_size(file, object, &config->window));
    for (int64_t layer = 0; layer < config->layers; layer++)
        config->windowed[layer] = config->window > 0;
    return STATUS_OK;
}

enum status config_read_layer_types(const char *file, const json_t *object, struct model_config *config, bool *listed) {
    const json_t *types = json_present(object, "layer_types");
    *listed = types != NULL;
    if (!types) return STATUS_OK;
    if (!json_is_array(types)) return status_set(STATUS_BAD_INPUT, "%s: layer_types: must be an array", file);
    if ((int64_t)json_array_size(types) != config->layers)
        return status_set(STATUS_BAD_INPUT, "%s: layer_types: %zu entries for %lld layers", file,
                          json_array_size(types), (long long)config->layers);
    for (int64_t layer = 0; layer < config->layers; layer++) {
        const char *name = json_string_value(json_array_get(types, (size_t)layer));
        config->windowed[layer] = name && strcmp(name, sliding) == 0;
        if (!name || (!config->windowed[layer] && strcmp(name, full) != 0))
            return status_set(STATUS_BAD_INPUT, "%s: layer_types: \"%.60s\" is not supported" HINT "supported: %s, %s",
                              file, name ? name : "(not a string)", full, sliding);
        if (config->windowed[layer] && config->window == 0)
            return status_set(STATUS_BAD_INPUT, "%s: layer_types: layer %lld is %s, but no sliding_window is in use",
                              file, (long long)layer, sliding);
    }
    return STATUS_OK;
}

static int64_t first_windowed(const struct model_config *config) {
    int64_t layer = 0;
    while (layer < config->layers && !config->windowed[layer])
        layer++;
    return layer;
}

void config_drop_unused_window(struct model_config *config) {
    if (first_windowed(config) == config->layers) config->window = 0;
}

static enum status read_listed_windows(const char *file, const json_t *object, int64_t pattern,
                                       struct model_config *config) {
    bool listed;
    TRY(read_size(file, object, &config->window));
    TRY(config_read_layer_types(file, object, config, &listed));
    for (int64_t layer = 0; !listed && layer < config->layers; layer++)
        config->windowed[layer] = config->window > 0 && (layer + 1) % pattern != 0;
    config_drop_unused_window(config);
    return STATUS_OK;
}

static enum status read_layer_windows(const char *file, const json_t *object, struct model_config *config) {
    bool used = false, listed;
    int64_t first = 28; /* this and the window are transformers' defaults for missing keys */
    config->window = 4096;
    TRY(json_read_bool(file, object, "use_sliding_window", &used));
    TRY(read_size(file, object, &config->window));
    TRY(json_read_int(file, object, "max_window_layers", 0, (int64_t)CONFIG_CONTEXT_MAX, &first));
    if (!used) config->window = 0;
    TRY(config_read_layer_types(file, object, config, &listed));
    for (int64_t layer = 0; !listed && layer < config->layers; layer++)
        config->windowed[layer] = config->window > 0 && layer >= first;
    config_drop_unused_window(config);
    return STATUS_OK;
}

static enum status refuse_windows(const char *file, const json_t *object, struct model_config *config) {
    bool listed;
    TRY(config_read_layer_types(file, object, config, &listed));
    if (first_windowed(config) == config->layers) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: layer_types: must be full_attention in all layers", file);
}

enum status config_read_windows(const char *file, const json_t *object, enum config_windows windows, int64_t pattern,
                                struct model_config *config) {
    switch (windows) {
    case CONFIG_WINDOWS_NONE: return STATUS_OK;
    case CONFIG_WINDOWS_ALL: return read_window(file, object, config);
    case CONFIG_WINDOWS_FROM_LAYER: return read_layer_windows(file, object, config);
    case CONFIG_WINDOWS_LISTED: return read_listed_windows(file, object, pattern, config);
    case CONFIG_WINDOWS_REFUSED: return refuse_windows(file, object, config);
    }
    BUG("windows %d", (int)windows);
}

static json_t *types_value(const struct model_config *config) {
    json_t *types = json_array();
    int failed = !types;
    for (int64_t layer = 0; layer < config->layers; layer++)
        failed |= json_array_append_new(types, json_string(config->windowed[layer] ? sliding : full));
    return json_unless(failed, types);
}

static json_t *write_listed_windows(const struct model_config *config, json_t *object) {
    json_t *size = json_integer(config->window > 0 ? config->window : UNUSED_WINDOW);
    return config_put(config_put(object, "sliding_window", size), "layer_types", types_value(config));
}

static json_t *write_window(const struct model_config *config, json_t *object) {
    return config_put(object, "sliding_window", config->window > 0 ? json_integer(config->window) : json_null());
}

json_t *config_write_layer_types(const struct model_config *config, json_t *object) {
    object = config_put(write_listed_windows(config, object), "use_sliding_window", json_boolean(config->window > 0));
    return write_window(config, object);
}

json_t *config_write_windows(const struct model_config *config, enum config_windows windows, json_t *object) {
    switch (windows) {
    case CONFIG_WINDOWS_ALL: return write_window(config, object);
    case CONFIG_WINDOWS_FROM_LAYER: /* transformers before 4.53 reads max_window_layers, later releases read the list */
        return config_put(config_write_layer_types(config, object), "max_window_layers",
                          json_integer(first_windowed(config)));
    case CONFIG_WINDOWS_LISTED: return write_listed_windows(config, object);
    case CONFIG_WINDOWS_NONE:
    case CONFIG_WINDOWS_REFUSED: break;
    }
    return object;
}
