/* Strict reading and writing of config.json: each family has one table of the keys that it knows.
 *
 * A key is either used (it fills a field of struct model_config), or must have the one value that Ballast's graph
 * stands for, or is in a list of keys that change nothing in training. Any other key is refused by name. */
#pragma once

#include <jansson.h>

#include "base/base.h"
#include "model/model.h"

enum config_use {
    CONFIG_INT,           /* int64_t field, within min..max */
    CONFIG_DOUBLE,        /* double field, within min..max */
    CONFIG_BOOL,          /* bool field */
    CONFIG_ACTIVATION,    /* enum activation field, by the names that transformers has */
    CONFIG_DROPOUT,       /* a probability: the largest goes to model_config.dropout */
    CONFIG_ARCHITECTURES, /* class names, each of which must be in the JSON array `text`; the first is written */
    CONFIG_FIXED,         /* must equal the JSON value `text`, or be null */
    CONFIG_IGNORED,       /* any value: it changes nothing in training */
    CONFIG_ELSEWHERE,     /* read by a function of its own */
};

struct config_key {
    const char *name;
    enum config_use use;
    bool required;
    size_t offset; /* of the field in struct model_config */
    double min, max;
    const char *text;
    const char *const *names; /* of CONFIG_IGNORED: several keys, NULL ends the list; `name` is "" */
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

/* Fills the fields that the table's keys name; others stay as they are. BAD_INPUT "FILE: KEY: ...". */
enum status config_read_keys(const char *file, const json_t *object, const struct config_key *keys,
                             struct model_config *config);
/* Adds to a message about quantised weights what to do. */
enum status config_hint_quantised(enum status status);
/* Fills kv_heads, head_dim and embedding_width where they are 0, and checks that the sizes make a model and that its
 * bytes can be counted. Messages name the table's keys. */
enum status config_complete(const char *file, const struct config_key *keys, struct model_config *config);
/* The object with this key too; NULL, and the object is dropped, when it is NULL or memory ran out. Takes over the
 * value; a NULL one is memory that ran out. */
json_t *config_put(json_t *object, const char *key, json_t *value);
/* A new object with model_type, all used keys, no special tokens (null), and dropout 0; NULL when out of memory. */
json_t *config_write_keys(const struct model_config *config, const struct config_key *keys);
/* The width of the MLP: what the config says or, in a new model that does not, by the family's rule. */
int64_t config_ffn(const struct model_config *config);
/* Keys that every family has besides its own. */
extern const struct config_key config_common_keys[];
/* Names of activations, and of rotary scalings, by index from 0; NULL after the last. */
const char *config_activation_name(int index);
const char *config_rope_type_name(int index);
/* Of any but ROPE_SCALING_NONE. */
const char *config_rope_scaling_name(enum rope_scaling scaling);

/* How a family's configs say which layers have windows. */
enum config_windows {
    CONFIG_WINDOWS_NONE,
    /* KEYS_WINDOW, "sliding_window": all layers; null: none. Where the key is missing, config->window stays. */
    CONFIG_WINDOWS_ALL,
    /* KEYS_LAYER_WINDOWS, as Qwen2 and Qwen3 have it: by layer_types or, where that is missing, in the layers from
     * max_window_layers on. */
    CONFIG_WINDOWS_FROM_LAYER,
    /* KEYS_LISTED_WINDOWS, as Gemma has it: by layer_types or, where that is missing, in all layers but every
     * `pattern`-th. */
    CONFIG_WINDOWS_LISTED,
    CONFIG_WINDOWS_REFUSED, /* "layer_types" alone, which must be full_attention in all layers */
};
#define KEYS_WINDOW                                                                                                    \
    { "sliding_window", CONFIG_ELSEWHERE, false, CONFIG_FIELD(window), 0, 0, NULL, NULL }
#define KEYS_LAYER_WINDOWS                                                                                             \
    KEY_ELSEWHERE("use_sliding_window"), KEYS_WINDOW, KEY_ELSEWHERE("max_window_layers"), KEY_ELSEWHERE("layer_types")
#define KEYS_LISTED_WINDOWS KEYS_WINDOW, KEY_ELSEWHERE("layer_types")

enum status config_read_windows(const char *file, const json_t *object, enum config_windows windows, int64_t pattern,
                                struct model_config *config);
/* Adds those keys, as config_put. */
json_t *config_write_windows(const struct model_config *config, enum config_windows windows, json_t *object);
/* "layer_types" alone; *listed: whether the config has it. Else config->windowed stays. */
enum status config_read_layer_types(const char *file, const json_t *object, struct model_config *config, bool *listed);
/* The keys of KEYS_LISTED_WINDOWS and "use_sliding_window", as config_put. */
json_t *config_write_layer_types(const struct model_config *config, json_t *object);
/* Where no layer has a window, there is none. */
void config_drop_unused_window(struct model_config *config);

/* rope_parameters (transformers 5), or rope_theta and rope_scaling (before). partial_rotary_factor is read where
 * rope->partial is not 0, else it must be 1. Then config_complete_rope. */
enum status config_read_rope(const char *file, const json_t *object, struct rope_table_attributes *rope);
/* "partial_rotary_factor" of the object, if it has one. */
enum status config_read_partial_rope(const char *file, const json_t *object, struct rope_table_attributes *rope);
/* Fills head_dim and what the scaling takes from the config where its setting is missing, and checks that they fit. */
enum status config_complete_rope(const char *file, struct model_config *config, struct rope_table_attributes *rope);
/* Where windowed layers have their own rotary positions, as in Gemma 3: rope_parameters by type of layer (transformers
 * 5), or rope_theta, rope_scaling and, of windowed layers, rope_local_base_freq (before). Theirs has no scaling. */
#define KEYS_LOCAL_ROPE KEY_ELSEWHERE("rope_local_base_freq")
enum status config_read_rope_by_type(const char *file, const json_t *object, struct rope_table_attributes *rope,
                                     struct rope_table_attributes *local);
/* Adds rope_theta and, with a scaling, rope_scaling, which all releases read; as config_put. */
json_t *config_write_rope(const struct rope_table_attributes *rope, json_t *object);
