/* The settings of rotary positions in config.json. */

#include "base/json.h"
#include "model/config.h"

/* The settings of each type, as in transformers' modeling_rope_utils: a bit for each type. */
enum { FOR_DEFAULT = 1, FOR_LINEAR = 2, FOR_LLAMA3 = 4, FOR_YARN = 8, FOR_LONGROPE = 16, FOR_ALL = 31 };

static const struct {
    const char *name;
    enum rope_scaling scaling;
    unsigned bit;
} types[] = {
    {"default", ROPE_SCALING_NONE, FOR_DEFAULT},       {"linear", ROPE_SCALING_LINEAR, FOR_LINEAR},
    {"llama3", ROPE_SCALING_LLAMA3, FOR_LLAMA3},       {"yarn", ROPE_SCALING_YARN, FOR_YARN},
    {"longrope", ROPE_SCALING_LONGROPE, FOR_LONGROPE}, {"su", ROPE_SCALING_LONGROPE, FOR_LONGROPE}, /* its first name */
};
enum { TYPES = sizeof types / sizeof *types };

static const struct setting {
    const char *name;
    unsigned types;
    bool required;
    bool is_int;   /* written as an integer, which transformers requires */
    size_t offset; /* in struct rope_table_attributes */
    double min, max;
} settings[] = {
#define ROPE_FIELD(field) offsetof(struct rope_table_attributes, field)
    {"rope_theta", FOR_ALL, false, false, ROPE_FIELD(theta), 1e-3, 1e18},
    {"factor", FOR_LINEAR | FOR_LLAMA3 | FOR_YARN, true, false, ROPE_FIELD(factor), 1, 1e9},
    {"factor", FOR_LONGROPE, false, false, ROPE_FIELD(factor), 1e-3, 1e9},
    {"low_freq_factor", FOR_LLAMA3, true, false, ROPE_FIELD(low_freq_factor), 1e-6, 1e9},
    {"high_freq_factor", FOR_LLAMA3, true, false, ROPE_FIELD(high_freq_factor), 1e-6, 1e9},
    {"original_max_position_embeddings", FOR_LLAMA3, true, true, ROPE_FIELD(original_context), 1, 1e12},
    {"original_max_position_embeddings", FOR_YARN | FOR_LONGROPE, false, true, ROPE_FIELD(original_context), 2, 1e12},
    {"attention_factor", FOR_YARN | FOR_LONGROPE, false, false, ROPE_FIELD(attention_factor), 1e-6, 1e6},
    {"beta_fast", FOR_YARN, false, false, ROPE_FIELD(beta_fast), 1e-6, 1e9},
    {"beta_slow", FOR_YARN, false, false, ROPE_FIELD(beta_slow), 1e-6, 1e9},
    {"mscale", FOR_YARN, false, false, ROPE_FIELD(mscale), 1e-6, 1e6},
    {"mscale_all_dim", FOR_YARN, false, false, ROPE_FIELD(mscale_all_dim), 1e-6, 1e6},
};
enum { SETTINGS = sizeof settings / sizeof *settings };
/* Settings that are not numbers. */
static const char truncate_name[] = "truncate", short_name[] = "short_factor", long_name[] = "long_factor",
                  partial_name[] = "partial_rotary_factor";

/* "rope_type" or, in older files, "type". If both are there they must be equal. */
static enum status read_type(const char *file, const json_t *object, int *out) {
    const char *newer = NULL, *older = NULL;
    TRY(json_read_string(file, object, "rope_type", &newer));
    TRY(json_read_string(file, object, "type", &older));
    if (newer && older && strcmp(newer, older) != 0)
        return status_set(STATUS_BAD_INPUT, "%s: rope_type and type: differ", file);
    const char *name = newer ? newer : older ? older : types[0].name;
    for (int i = 0; i < TYPES; i++) {
        if (strcmp(types[i].name, name) != 0) continue;
        *out = i;
        return STATUS_OK;
    }
    status_set(STATUS_BAD_INPUT, "%s: %s: \"%.60s\" is not supported", file, newer ? "rope_type" : "type", name);
    return status_hint(STATUS_BAD_INPUT, "supported: default, linear, llama3, yarn, longrope");
}

static int type_of(enum rope_scaling scaling) {
    int type = 0;
    while (types[type].scaling != scaling)
        type++;
    return type;
}

const char *config_rope_scaling_name(enum rope_scaling scaling) { return types[type_of(scaling)].name; }

const char *config_rope_type_name(int index) { return index < TYPES ? types[index].name : NULL; }

static const struct setting *find_setting(const char *name, unsigned type) {
    for (int i = 0; i < SETTINGS; i++)
        if (strcmp(settings[i].name, name) == 0 && (settings[i].types & type)) return &settings[i];
    return NULL;
}

static bool is_known(const char *name, unsigned type) {
    if (strcmp(name, "rope_type") == 0 || strcmp(name, "type") == 0 || strcmp(name, partial_name) == 0) return true;
    if (strcmp(name, truncate_name) == 0) return (type & FOR_YARN) != 0;
    if (strcmp(name, short_name) == 0 || strcmp(name, long_name) == 0) return (type & FOR_LONGROPE) != 0;
    return find_setting(name, type) != NULL;
}

static enum status check_names(const char *file, const json_t *object, int type) {
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, name, value) {
        if (is_known(name, types[type].bit) || json_is_null(value)) continue;
        if (strcmp(name, "finetuned") == 0 && (types[type].bit & FOR_YARN)) continue; /* YaRN's own note */
        return status_set(STATUS_BAD_INPUT, "%s: %.100s: unknown setting for rope_type %s", file, name,
                          types[type].name);
    }
    return STATUS_OK;
}

enum status config_read_partial_rope(const char *file, const json_t *object, struct rope_table_attributes *rope) {
    double partial = 1;
    TRY(json_read_double(file, object, partial_name, 1e-6, 1, &partial));
    if (!json_object_get(object, partial_name) || json_is_null(json_object_get(object, partial_name))) return STATUS_OK;
    if (rope->partial == 0 && partial != 1)
        return status_set(STATUS_BAD_INPUT, "%s: %s: only 1 is supported", file, partial_name);
    if (rope->partial != 0) rope->partial = partial;
    return STATUS_OK;
}

static enum status read_list(const char *file, const json_t *object, const char *name, int64_t *count, float *out) {
    const json_t *list = json_object_get(object, name);
    TRY(json_require(file, object, name));
    if (!json_is_array(list)) return status_set(STATUS_BAD_INPUT, "%s: %s: must be an array", file, name);
    if (json_array_size(list) > ROPE_FACTORS_MAX)
        return status_set(STATUS_BAD_INPUT, "%s: %s: %zu entries; at most %d are supported", file, name,
                          json_array_size(list), ROPE_FACTORS_MAX);
    *count = (int64_t)json_array_size(list);
    for (int64_t i = 0; i < *count; i++) {
        double value = json_number_value(json_array_get(list, (size_t)i)); /* 0: not a number */
        if (!(value >= 1e-6 && value <= 1e9))
            return status_set(STATUS_BAD_INPUT, "%s: %s: entry %lld must be a number above 0", file, name,
                              (long long)i);
        out[i] = (float)value;
    }
    return STATUS_OK;
}

static enum status read_lists(const char *file, const json_t *object, struct rope_table_attributes *rope) {
    int64_t other;
    TRY(read_list(file, object, short_name, &rope->factors, rope->short_factor));
    TRY(read_list(file, object, long_name, &other, rope->long_factor));
    if (rope->factors == other) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: %s: %lld entries, but %s has %lld", file, long_name, (long long)other,
                      short_name, (long long)rope->factors);
}

/* The object under rope_parameters or rope_scaling; `file` includes the key. */
static enum status read_scaling(const char *file, const json_t *object, struct rope_table_attributes *rope) {
    int type = 0;
    bool truncate = true;
    TRY(read_type(file, object, &type));
    TRY(check_names(file, object, type));
    TRY(config_read_partial_rope(file, object, rope));
    TRY(json_read_bool(file, object, truncate_name, &truncate));
    if (types[type].scaling == ROPE_SCALING_LONGROPE) TRY(read_lists(file, object, rope));
    rope->untruncated = !truncate;
    for (int i = 0; i < SETTINGS; i++) {
        const struct setting *setting = &settings[i];
        if (!(setting->types & types[type].bit)) continue;
        if (setting->required) TRY(json_require(file, object, setting->name));
        double *field = (double *)(void *)((char *)rope + setting->offset);
        TRY(json_read_double(file, object, setting->name, setting->min, setting->max, field));
    }
    rope->scaling = types[type].scaling;
    if (rope->scaling == ROPE_SCALING_LLAMA3 && rope->high_freq_factor <= rope->low_freq_factor)
        return status_set(STATUS_BAD_INPUT, "%s: high_freq_factor: must be above low_freq_factor (%g)", file,
                          rope->low_freq_factor);
    return STATUS_OK;
}

/* transformers treats an empty object as missing. */
static const json_t *given(const json_t *object, const char *key) {
    const json_t *value = json_present(object, key);
    return json_is_object(value) && json_object_size(value) == 0 ? NULL : value;
}

/* Files of transformers 5 that older releases also read have both. */
static enum status refuse_unequal(const char *file, const json_t *object) {
    const json_t *parameters = given(object, "rope_parameters"), *scaling = given(object, "rope_scaling");
    if (!parameters || !scaling || json_equal(parameters, scaling)) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: rope_parameters and rope_scaling: only one may be given where they differ",
                      file);
}

/* Reads the scaling at a place of the file. The place's name, for messages, is taken over. */
static enum status read_scaling_at(char *place, const json_t *found, struct rope_table_attributes *rope) {
    if (!place) return STATUS_FAILED;
    enum status status = json_is_object(found) ? read_scaling(place, found, rope)
                                               : status_set(STATUS_BAD_INPUT, "%s: must be an object", place);
    mem_free(place);
    return status;
}

enum status config_read_rope(const char *file, const json_t *object, struct rope_table_attributes *rope) {
    double outer = 0;
    TRY(json_read_double(file, object, "rope_theta", settings[0].min, settings[0].max, &outer));
    if (outer != 0) rope->theta = outer;
    const json_t *parameters = given(object, "rope_parameters"), *scaling = given(object, "rope_scaling");
    TRY(refuse_unequal(file, object));
    if (!parameters && !scaling) return STATUS_OK;
    const char *key = parameters ? "rope_parameters" : "rope_scaling";
    TRY(read_scaling_at(mem_format("%s: %s", file, key), parameters ? parameters : scaling, rope));
    if (outer != 0 && rope->theta != outer)
        return status_set(STATUS_BAD_INPUT, "%s: rope_theta: differs from the one in %s", file, key);
    return STATUS_OK;
}

/* rope_parameters[name], if it exists. */
static enum status read_type_of_layers(const char *file, const json_t *parameters, const char *name,
                                       struct rope_table_attributes *rope) {
    const json_t *found = json_present(parameters, name);
    return found ? read_scaling_at(mem_format("%s: rope_parameters: %s", file, name), found, rope) : STATUS_OK;
}

static enum status read_by_type(const char *file, const json_t *parameters, struct rope_table_attributes *rope,
                                struct rope_table_attributes *local) {
    static const char global_name[] = "full_attention", local_name[] = "sliding_attention";
    const char *name;
    json_t *ignored;
    if (!json_is_object(parameters))
        return status_set(STATUS_BAD_INPUT, "%s: rope_parameters: must be an object", file);
    json_object_foreach((json_t *)(uintptr_t)parameters, name, ignored) {
        if (strcmp(name, global_name) == 0 || strcmp(name, local_name) == 0) continue;
        status_set(STATUS_BAD_INPUT, "%s: rope_parameters: %.60s: unknown setting", file, name);
        return status_hint(STATUS_BAD_INPUT, "supported: %s, %s, each with settings of its own", global_name,
                           local_name);
    }
    TRY(read_type_of_layers(file, parameters, global_name, rope));
    TRY(read_type_of_layers(file, parameters, local_name, local));
    if (local->scaling == ROPE_SCALING_NONE) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: rope_parameters: %s: rope_type: only default is supported", file,
                      local_name);
}

enum status config_read_rope_by_type(const char *file, const json_t *object, struct rope_table_attributes *rope,
                                     struct rope_table_attributes *local) {
    const json_t *parameters = given(object, "rope_parameters");
    double min = settings[0].min, max = settings[0].max;
    TRY(json_read_double(file, object, "rope_local_base_freq", min, max, &local->theta));
    if (!parameters) return config_read_rope(file, object, rope);
    TRY(refuse_unequal(file, object));
    TRY(json_read_double(file, object, "rope_theta", min, max, &rope->theta));
    return read_by_type(file, parameters, rope, local);
}

static json_t *list_value(const float *values, int64_t count) {
    json_t *list = json_array();
    int failed = !list;
    for (int64_t i = 0; i < count; i++)
        failed |= json_array_append_new(list, json_real((double)values[i]));
    return json_unless(failed, list);
}

/* Only for the given type; 0 means not given. */
static json_t *scaling_value(const struct rope_table_attributes *rope, int type) {
    json_t *scaling = config_put(json_object(), "rope_type", json_string(types[type].name));
    for (int i = 1; i < SETTINGS; i++) {
        double value = *(const double *)(const void *)((const char *)rope + settings[i].offset);
        if (!(settings[i].types & types[type].bit) || value == 0) continue;
        scaling = config_put(scaling, settings[i].name,
                             settings[i].is_int ? json_integer((json_int_t)value) : json_real(value));
    }
    if (rope->untruncated) scaling = config_put(scaling, truncate_name, json_false());
    if (rope->scaling != ROPE_SCALING_LONGROPE) return scaling;
    scaling = config_put(scaling, short_name, list_value(rope->short_factor, rope->factors));
    return config_put(scaling, long_name, list_value(rope->long_factor, rope->factors));
}

json_t *config_write_rope(const struct rope_table_attributes *rope, json_t *object) {
    object = config_put(object, "rope_theta", json_real(rope->theta));
    if (rope->partial != 0) object = config_put(object, partial_name, json_real(rope->partial));
    if (rope->scaling == ROPE_SCALING_NONE) return object;
    return config_put(object, "rope_scaling", scaling_value(rope, type_of(rope->scaling)));
}

enum status config_complete_rope(const char *file, struct model_config *config, struct rope_table_attributes *rope) {
    double rotated = (double)config->head_dim * (rope->partial > 0 ? rope->partial : 1);
    rope->head_dim = (int64_t)rotated;
    if (rope->head_dim < 2 || rope->head_dim % 2 != 0)
        return status_set(STATUS_BAD_INPUT,
                          "%s: %s: %lld of %lld features of a head would be rotated; only even "
                          "numbers are supported",
                          file, partial_name, (long long)rope->head_dim, (long long)config->head_dim);
    if (rope->scaling != ROPE_SCALING_YARN && rope->scaling != ROPE_SCALING_LONGROPE) return STATUS_OK;
    if (rope->original_context == 0) rope->original_context = (double)config->context;
    if (rope->scaling == ROPE_SCALING_YARN) return STATUS_OK;
    if (rope->factor == 0) rope->factor = (double)config->context / rope->original_context;
    if (rope->factors == rope->head_dim / 2) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: %s: %lld entries, but %lld pairs of features are rotated", file,
                      short_name, (long long)rope->factors, (long long)(rope->head_dim / 2));
}
