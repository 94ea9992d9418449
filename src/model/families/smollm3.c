/* SmolLM3 (Bakouch et al., 2025): Llama in which every fourth layer has no rotary positions, as transformers'
 * SmolLM3ForCausalLM computes it. */
#include "base/json.h"
#include "model/families/builder.h"

static const char no_rope_layers[] = "no_rope_layers";

static const struct config_key keys[] = {
    KEY_ARCHITECTURES("[\"SmolLM3ForCausalLM\", \"SmolLM3Model\"]"),
    DECODER_KEYS,
    DECODER_KEY_KV_HEADS_REQUIRED,
    KEY_ELSEWHERE("use_sliding_window"),
    KEYS_WINDOW,
    KEY_ELSEWHERE("layer_types"),
    KEY_ELSEWHERE(no_rope_layers),
    KEY_ELSEWHERE("no_rope_layer_interval"),
    KEY_BOOL("attention_bias", attention_bias),
    KEY_BOOL("mlp_bias", mlp_bias),
    KEYS_IGNORED("max_window_layers", "pretraining_tp"), /* in the authors' files; their class does not read them */
    {0},
};

static void set_assumed(struct model_config *config) {
    decoder_set_defaults(config);
    config->rope.theta = 2e6;
    config->tied = true;
}

static void skip_rope_every(struct model_config *config, int64_t interval) {
    for (int64_t layer = 0; layer < MODEL_LAYERS_MAX; layer++)
        config->without_rope[layer] = (layer + 1) % interval == 0;
}

enum { INTERVAL = 4 };

static void set_defaults(struct model_config *config) {
    set_assumed(config);
    skip_rope_every(config, INTERVAL);
}

/* The list has priority over the interval. */
static enum status read_rope_layers(const char *file, const json_t *object, struct model_config *config) {
    int64_t interval = INTERVAL;
    TRY(json_read_int(file, object, "no_rope_layer_interval", 1, (int64_t)CONFIG_CONTEXT_MAX, &interval));
    skip_rope_every(config, interval);
    const json_t *list = json_present(object, no_rope_layers);
    if (!list) return STATUS_OK;
    if (!json_is_array(list)) return status_set(STATUS_BAD_INPUT, "%s: %s: must be an array", file, no_rope_layers);
    if ((int64_t)json_array_size(list) < config->layers)
        return status_set(STATUS_BAD_INPUT, "%s: %s: %zu entries for %lld layers", file, no_rope_layers,
                          json_array_size(list), (long long)config->layers);
    for (int64_t layer = 0; layer < config->layers; layer++) {
        const json_t *item = json_array_get(list, (size_t)layer);
        json_int_t value = json_is_integer(item) ? json_integer_value(item) : -1;
        if (value != 0 && value != 1)
            return status_set(STATUS_BAD_INPUT, "%s: %s: the entry of layer %lld must be 0 or 1", file, no_rope_layers,
                              (long long)layer);
        config->without_rope[layer] = value == 0;
    }
    return STATUS_OK;
}

static enum status read_config(const char *file, const json_t *object, struct model_config *config) {
    bool used = false, listed;
    TRY(decoder_read_config(file, object, config));
    TRY(read_rope_layers(file, object, config));
    TRY(json_read_bool(file, object, "use_sliding_window", &used));
    TRY(config_read_windows(file, object, CONFIG_WINDOWS_ALL, 0, config));
    if (!used) config->window = 0;
    TRY(config_read_layer_types(file, object, config, &listed));
    /* Without a list, the windowed layers are those without positions. */
    for (int64_t layer = 0; !listed && layer < config->layers; layer++)
        config->windowed[layer] = config->window > 0 && config->without_rope[layer];
    config_drop_unused_window(config);
    return STATUS_OK;
}

static json_t *write_config(const struct model_config *config) {
    json_t *list = json_array();
    int failed = !list;
    for (int64_t layer = 0; layer < config->layers && layer < MODEL_LAYERS_MAX; layer++)
        failed |= json_array_append_new(list, json_integer(!config->without_rope[layer]));
    json_t *object = config_write_layer_types(config, decoder_write_config(config));
    return config_put(object, no_rope_layers, json_unless(failed, list));
}

const struct model_family family_smollm3 = {
    .name = "smollm3",
    .models = "SmolLM3",
    .ffn = {43, 8, 256}, /* 11008 at a hidden size of 2048 */
    .keys = keys,
    DECODER_FAMILY_BUT_CONFIG,
    .set_defaults = set_defaults,
    .set_assumed = set_assumed,
    .read_config = read_config,
    .write_config = write_config,
};
