/* Options from a --config file: a JSON object with options by their keys, or a run's run.json (option_run.c). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/folder.h"
#include "base/json.h"
#include "base/log.h"
#include "base/nearest.h"
#include "cli/command.h"
#include "cli/option_alias.h"

enum { CONFIG_FILE_LIMIT_BYTES = 1 << 24 };

static enum status unknown_key(const char *path, const struct options *options, const char *key) {
    char keys[OPT_COUNT][64];
    struct nearest nearest = {.wanted = key};
    for (int i = 0; i < OPT_COUNT; i++)
        if (option_table[i]->commands & options->command->bit)
            nearest_consider(&nearest, option_key(option_table[i], keys[i]));
    enum status status = status_set(STATUS_BAD_INPUT, "%s: %s: unknown key", path, key);
    const struct option_alias *alias = option_alias_find(options->command, key);
    if (alias) return option_alias_hint(status, options->command, alias, true);
    if (nearest.best) return status_hint(status, "did you mean \"%s\"?", nearest.best);
    return status;
}

/* The value as text for the command line's parser, so that both have the same rules; NULL: it has the wrong type. */
static const char *value_text(const struct setting *option, const json_t *value, struct scratch *memory) {
    bool text_type = option->type == SETTING_TEXT || option->type == SETTING_TEXTS || option->type == SETTING_LANES ||
                     option->type == SETTING_DATE || option->type == SETTING_CHOICE;
    if (option->type == SETTING_FLAG) return json_is_boolean(value) ? (json_is_true(value) ? "true" : "false") : NULL;
    bool accepts_text = text_type || option->type == SETTING_SIZE || option->automatic;
    if (json_is_string(value) && accepts_text) return scratch_format(memory, "%s", json_string_value(value));
    if (json_is_integer(value) && !text_type)
        return scratch_format(memory, "%" PRId64, (int64_t)json_integer_value(value));
    if (json_is_real(value) && option->type == SETTING_FLOAT)
        return scratch_format(memory, "%.17g", json_real_value(value));
    return NULL;
}

static const char *type_rule(const struct setting *option) {
    switch (option->type) {
    case SETTING_FLAG: return "true or false";
    case SETTING_INT: return "a whole number";
    case SETTING_FLOAT: return "a number";
    case SETTING_SIZE: return "a string like \"8G\", or bytes";
    case SETTING_TEXTS: return "a string or a list of strings";
    case SETTING_TEXT:
    case SETTING_LANES:
    case SETTING_DATE:
    case SETTING_CHOICE: break;
    }
    return "a string";
}

static enum status set_value(const char *where, const struct setting *option, const json_t *json,
                             struct options *options, struct option_value *value) {
    if (option->type == SETTING_TEXTS && json_is_array(json)) {
        size_t i;
        json_t *item;
        json_array_foreach(json, i, item) TRY(set_value(where, option, item, options, value));
        return STATUS_OK;
    }
    const char *text = value_text(option, json, &options->memory);
    if (!text) return status_set(STATUS_BAD_INPUT, "%s: must be %s", where, type_rule(option));
    return option_value_set(option, where, text, value);
}

enum status options_set_json(const char *where, enum option_id id, const json_t *json, enum option_source source,
                             struct options *options) {
    struct option_value *value = &options->values[id];
    if (value->source == SOURCE_COMMAND_LINE) return STATUS_OK;
    TRY(set_value(where, option_table[id], json, options, value));
    value->source = source;
    return STATUS_OK;
}

static enum status read_key(const char *path, const char *key, const json_t *json, struct options *options) {
    enum option_id id = option_find_key(key);
    if (id == OPT_COUNT || id == OPT_config) return unknown_key(path, options, key);
    const struct setting *option = option_table[id];
    /* One file may serve several commands. */
    if (!(option->commands & options->command->bit)) {
        log_note("note: %s: %s: not used by `ballast %s`", path, key, options->command->name);
        return STATUS_OK;
    }
    const char *where = scratch_format(&options->memory, "%s: %s", path, key);
    return where ? options_set_json(where, id, json, SOURCE_CONFIG, options) : STATUS_FAILED;
}

/* Other trainers' formats. */
static enum status check_format(const char *path, const char *command_name) {
    bool yaml = path_ends(path, ".yaml") || path_ends(path, ".yml");
    if (!yaml && !path_ends(path, ".toml")) return STATUS_OK;
    enum status status =
        status_set(STATUS_BAD_INPUT, "--config: %s: is %s, and must be JSON", path, yaml ? "YAML" : "TOML");
    return status_hint(status,
                       "write it as {\"steps\": 1000, \"lr\": 3e-4}; `ballast %s --help` lists the options, "
                       "whose keys have _ for -",
                       command_name);
}

static enum status read_keys(const char *path, json_t *object, struct options *options) {
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) TRY(read_key(path, key, value, options));
    return STATUS_OK;
}

enum status options_read_object(const char *path, json_t *object, struct options *options) {
    return options_is_run(object) ? options_read_run(path, object, options) : read_keys(path, object, options);
}

enum status options_read_config(const char *path, struct options *options) {
    json_t *object;
    TRY(check_format(path, options->command->name));
    TRY(json_read_object(path, CONFIG_FILE_LIMIT_BYTES, &object));
    enum status status = options_read_object(path, object, options);
    json_decref(object);
    return status;
}
