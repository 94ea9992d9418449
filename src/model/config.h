/* Strict reading and writing of config.json: each family has one table of its known keys.
 *
 * A known key is used (it fills a field of struct model_config), or must have the value that Ballast's graph
 * implements, or has no effect on training. Any other key is BAD_INPUT by name. */
#pragma once

#include <jansson.h>

#include "base/base.h"
#include "model/model.h"

enum config_use {
    CONFIG_INT,           /* int64_t field, within min..max */
    CONFIG_DOUBLE,        /* double field, within min..max */
    CONFIG_BOOL,          /* bool field */
    CONFIG_ACTIVATION,    /* enum activation field, by transformers' names */
    CONFIG_DROPOUT,       /* a probability: the largest goes to model_config.dropout */
    CONFIG_ARCHITECTURES, /* class names, each of which must be in the JSON array `text`; the first is written */
    CONFIG_FIXED,         /* must equal the JSON value `text`, or be null */
    CONFIG_IGNORED,       /* any value: it has no effect on training */
    CONFIG_ELSEWHERE,     /* read by a separate function */
};

struct config_key {
    const char *name;
    enum config_use use;
    bool required;
    size_t offset; /* of the field in struct model_config */
    double min, max;
    const char *text;
    const char *const *names; /* CONFIG_IGNORED: several keys, NULL ends the list; `name` is "" */
};

/* Rows of a table, which ends with a zeroed one. */
#define CONFIG_FIELD(field) offsetof(struct model_config, field)
#define KEY_SIZE(name, field, max)                                                                                     \
    { name, CONFIG_INT, true, CONFIG_FIELD(field), 1, max, NULL, NULL }

#define KEY_OPTIONAL_SIZE(name, field, max)                                                                            \
    { name, CONFIG_INT, false, CONFIG_FIELD(field), 1, max, NULL, NULL }

#define KEY_DOUBLE(name, field, min, max)                                                                              \
    { name, CONFIG_DOUBLE, false, CONFIG_FIELD(field), min, max, NULL, NULL }

#define KEY_BOOL(name, field)                                                                                          \
    { name, CONFIG_BOOL, false, CONFIG_FIELD(field), 0, 0, NULL, NULL }

#define KEY_ACTIVATION(name, field)                                                                                    \
    { name, CONFIG_ACTIVATION, false, CONFIG_FIELD(field), 0, 0, NULL, NULL }

#define KEY_DROPOUT(name)                                                                                              \
    { name, CONFIG_DROPOUT, false, CONFIG_FIELD(dropout), 0, 1, NULL, NULL }

#define KEY_ARCHITECTURES(text)                                                                                        \
    { "architectures", CONFIG_ARCHITECTURES, false, 0, 0, 0, text, NULL }

#define KEY_FIXED(name, text)                                                                                          \
    { name, CONFIG_FIXED, false, 0, 0, 0, text, NULL }

#define KEYS_IGNORED(...)                                                                                              \
    {                                                                                                                  \
        "", CONFIG_IGNORED, .names = (const char *const[]) { __VA_ARGS__, NULL }                                       \
    }

#define KEY_ELSEWHERE(name)                                                                                            \
    { name, CONFIG_ELSEWHERE, false, 0, 0, 0, NULL, NULL }

/* Upper limits, far above any model's, that keep products of two sizes within 64 bits. */
#define CONFIG_VOCAB_MAX 0x1p27
#define CONFIG_CONTEXT_MAX 0x1p30
#define CONFIG_WIDTH_MAX 0x1p24
#define CONFIG_HEADS_MAX 0x1p16
#define CONFIG_LAYERS_MAX MODEL_LAYERS_MAX

/* Fills the fields of the table's keys; other fields do not change. BAD_INPUT "FILE: KEY: ...". */
enum status config_read_keys(const char *file, const json_t *object, const struct config_key *keys,
                             struct model_config *config);
/* Adds a hint to a message about quantized weights. */
enum status config_hint_quantised(enum status status);
/* Fills kv_heads, head_dim and embedding_width if they are 0. Checks that the sizes make a model and that its bytes can
 * be counted. Messages name the table's keys. */
enum status config_complete(const char *file, const struct config_key *keys, struct model_config *config);
/* Returns the object with this key added. NULL if the object is NULL or memory ran out; the object is then dropped.
 * Takes over the value; NULL means that memory ran out. */
json_t *config_put(json_t *object, const char *key, json_t *value);
/* A new object with model_type, all used keys, no special tokens (null), and dropout 0. NULL if out of memory. */
json_t *config_write_keys(const struct model_config *config, const struct config_key *keys);
/* The width of the MLP: the config's, or for a new model without one, by the family's rule. */
int64_t config_ffn(const struct model_config *config);
/* Keys of every family, in addition to its own. */
extern const struct config_key config_common_keys[];
/* Names of activations, and of rotary scalings, by index from 0; NULL after the last. */
const char *config_activation_name(int index);
const char *config_rope_type_name(int index);
/* Any scaling except ROPE_SCALING_NONE. */
const char *config_rope_scaling_name(enum rope_scaling scaling);

/* How a family's configs define which layers have windows. */
enum config_windows {
    CONFIG_WINDOWS_NONE,
    /* KEYS_WINDOW, "sliding_window": all layers; null: none. If the key is missing, config->window does not change. */
    CONFIG_WINDOWS_ALL,
    /* KEYS_LAYER_WINDOWS, as in Qwen2 and Qwen3: by layer_types or, if that is missing, in the layers from
     * max_window_layers on. */
    CONFIG_WINDOWS_FROM_LAYER,
    /* KEYS_LISTED_WINDOWS, as in Gemma: by layer_types or, if that is missing, in all layers except every
     * `pattern`-th. */
    CONFIG_WINDOWS_LISTED,
    CONFIG_WINDOWS_REFUSED, /* only "layer_types", which must be full_attention in all layers */
};
#define KEYS_WINDOW                                                                                                    \
    { "sliding_window", CONFIG_ELSEWHERE, false, CONFIG_FIELD(window), 0, 0, NULL, NULL }
#define KEYS_LAYER_WINDOWS                                                                                             \
    KEY_ELSEWHERE("use_sliding_window"), KEYS_WINDOW, KEY_ELSEWHERE("max_window_layers"), KEY_ELSEWHERE("layer_types")
#define KEYS_LISTED_WINDOWS KEYS_WINDOW, KEY_ELSEWHERE("layer_types")

enum status config_read_windows(const char *file, const json_t *object, enum config_windows windows, int64_t pattern,
                                struct model_config *config);
/* Adds those keys, like config_put. */
json_t *config_write_windows(const struct model_config *config, enum config_windows windows, json_t *object);
/* Only "layer_types"; *listed: whether the config has it. If not, config->windowed does not change. */
enum status config_read_layer_types(const char *file, const json_t *object, struct model_config *config, bool *listed);
/* The keys of KEYS_LISTED_WINDOWS and "use_sliding_window", like config_put. */
json_t *config_write_layer_types(const struct model_config *config, json_t *object);
/* Removes the window if no layer has one. */
void config_drop_unused_window(struct model_config *config);

/* Reads rope_parameters (transformers 5), or rope_theta and rope_scaling (before). Reads partial_rotary_factor if
 * rope->partial is not 0; otherwise it must be 1. Then calls config_complete_rope. */
enum status config_read_rope(const char *file, const json_t *object, struct rope_table_attributes *rope);
/* "partial_rotary_factor" of the object, if it has one. */
enum status config_read_partial_rope(const char *file, const json_t *object, struct rope_table_attributes *rope);
/* Fills head_dim and missing settings of the scaling from the config, and checks that they fit. */
enum status config_complete_rope(const char *file, struct model_config *config, struct rope_table_attributes *rope);
/* For families whose windowed layers have separate rotary positions without scaling, as in Gemma 3. The keys are
 * rope_parameters by type of layer (transformers 5), or rope_theta, rope_scaling and, for windowed layers,
 * rope_local_base_freq (before). */
#define KEYS_LOCAL_ROPE KEY_ELSEWHERE("rope_local_base_freq")
enum status config_read_rope_by_type(const char *file, const json_t *object, struct rope_table_attributes *rope,
                                     struct rope_table_attributes *local);
/* Adds rope_theta and, with a scaling, rope_scaling, which all releases read. Like config_put. */
json_t *config_write_rope(const struct rope_table_attributes *rope, json_t *object);
