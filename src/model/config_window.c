/* The settings of sliding windows in config.json. */
#include <string.h>

#include "base/json.h"
#include "model/model_config.h"

static const char full[] = "full_attention", sliding[] = "sliding_attention";

/* transformers wants a number there also where no layer has a window. */
enum { UNUSED_WINDOW = 4096 };

/* null: no window; missing: *window stays. */
static enum status read_size(const char *file, const json_t *object, int64_t *window) {
    if (json_is_null(json_object_get(object, "sliding_window"))) *window = 0;
    return json_read_int(file, object, "sliding_window", 1, (int64_t)CONFIG_CONTEXT_MAX, window);
}

enum status config_read_window(const char *file, const json_t *object, struct model_config *config) {
    TRY(read_size(file, object, &config->window));
    for (int64_t layer = 0; layer < config->layers; layer++)
        config->windowed[layer] = config->window > 0;
    return STATUS_OK;
}

static enum status read_type(const char *file, const json_t *item, struct model_config *config, int64_t layer) {
    const char *name = json_is_string(item) ? json_string_value(item) : "(not a string)";
    config->windowed[layer] = strcmp(name, sliding) == 0;
    if (!config->windowed[layer] && strcmp(name, full) != 0) {
        status_set(STATUS_BAD_INPUT, "%s: layer_types: \"%.60s\" is not supported", file, name);
        return status_hint(STATUS_BAD_INPUT, "supported: %s, %s", full, sliding);
    }
    if (config->windowed[layer] && config->window == 0)
        return status_set(STATUS_BAD_INPUT, "%s: layer_types: layer %lld is %s, but no sliding_window is in use", file,
                          (long long)layer, sliding);
    return STATUS_OK;
}

static enum status read_types(const char *file, const json_t *types, struct model_config *config) {
    if (!json_is_array(types)) return status_set(STATUS_BAD_INPUT, "%s: layer_types: must be an array", file);
    if ((int64_t)json_array_size(types) != config->layers)
        return status_set(STATUS_BAD_INPUT, "%s: layer_types: %zu entries for %lld layers", file,
                          json_array_size(types), (long long)config->layers);
    for (int64_t layer = 0; layer < config->layers; layer++)
        TRY(read_type(file, json_array_get(types, (size_t)layer), config, layer));
    return STATUS_OK;
}

enum status config_read_layer_types(const char *file, const json_t *object, struct model_config *config, bool *listed) {
    const json_t *types = json_object_get(object, "layer_types");
    *listed = types && !json_is_null(types);
    return *listed ? read_types(file, types, config) : STATUS_OK;
}

enum status config_read_listed_windows(const char *file, const json_t *object, struct model_config *config,
                                       int64_t pattern) {
    bool listed, any = false;
    TRY(read_size(file, object, &config->window));
    TRY(config_read_layer_types(file, object, config, &listed));
    for (int64_t layer = 0; layer < config->layers; layer++) {
        if (!listed) config->windowed[layer] = config->window > 0 && (layer + 1) % pattern != 0;
        any = any || config->windowed[layer];
    }
    if (!any) config->window = 0;
    return STATUS_OK;
}

static int64_t first_windowed(const struct model_config *config) {
    int64_t layer = 0;
    while (layer < config->layers && !config->windowed[layer])
        layer++;
    return layer;
}

enum status config_read_layer_windows(const char *file, const json_t *object, struct model_config *config) {
    bool used = false;
    int64_t first = 28; /* this and the window are what transformers assumes where the keys are missing */
    config->window = 4096;
    TRY(json_read_bool(file, object, "use_sliding_window", &used));
    TRY(read_size(file, object, &config->window));
    TRY(json_read_int(file, object, "max_window_layers", 0, (int64_t)CONFIG_CONTEXT_MAX, &first));
    if (!used) config->window = 0;
    bool listed;
    TRY(config_read_layer_types(file, object, config, &listed));
    for (int64_t layer = 0; !listed && layer < config->layers; layer++)
        config->windowed[layer] = config->window > 0 && layer >= first;
    if (first_windowed(config) == config->layers) config->window = 0;
    return STATUS_OK;
}

static json_t *window_value(const struct model_config *config) {
    return config->window > 0 ? json_integer(config->window) : json_null();
}

json_t *config_write_window(const struct model_config *config, json_t *object) {
    if (object && json_object_set_new(object, "sliding_window", window_value(config)) == 0) return object;
    json_decref(object);
    return NULL;
}

static json_t *types_value(const struct model_config *config) {
    json_t *types = json_array();
    for (int64_t layer = 0; types && layer < config->layers; layer++) {
        if (json_array_append_new(types, json_string(config->windowed[layer] ? sliding : full)) == 0) continue;
        json_decref(types);
        return NULL;
    }
    return types;
}

/* Releases of transformers before 4.53 read max_window_layers, later ones layer_types. */
json_t *config_write_layer_windows(const struct model_config *config, json_t *object) {
    object = config_write_layer_types(config, object);
    if (object && json_object_set_new(object, "max_window_layers", json_integer(first_windowed(config))) == 0)
        return object;
    json_decref(object);
    return NULL;
}

json_t *config_write_layer_types(const struct model_config *config, json_t *object) {
    object = config_write_listed_windows(config, object);
    if (object && json_object_set_new(object, "use_sliding_window", json_boolean(config->window > 0)) == 0)
        return config_write_window(config, object);
    json_decref(object);
    return NULL;
}

json_t *config_write_listed_windows(const struct model_config *config, json_t *object) {
    json_t *size = json_integer(config->window > 0 ? config->window : UNUSED_WINDOW);
    bool good = object && json_object_set(object, "sliding_window", size) == 0 &&
                json_object_set_new(object, "layer_types", types_value(config)) == 0;
    json_decref(size);
    if (good) return object;
    json_decref(object);
    return NULL;
}
