/* The settings as parts of a JSON schema, from which scripts/formats.py makes those of recipes and run.json. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "cli/command.h"
#include "session/train_options.h"

static json_t *names_to_json(const char *names) {
    json_t *array = json_array();
    for (const char *name = names; name; name = strchr(name, '|') ? strchr(name, '|') + 1 : NULL)
        (void)json_array_append_new(array, json_stringn(name, strcspn(name, "|")));
    return array;
}

static void describe_float(const struct setting *setting, json_t *out) {
    (void)json_object_set_new(out, setting->above ? "exclusiveMinimum" : "minimum", json_real(setting->float_min));
    (void)json_object_set_new(out, "maximum", json_real(setting->float_max));
}

static void describe_int(const struct setting *setting, json_t *out) {
    (void)json_object_set_new(out, "minimum", json_integer(setting->min));
    (void)json_object_set_new(out, "maximum", json_integer(setting->max));
}

static json_t *description(const struct setting *setting, bool null) {
    const struct setting *other = setting->only_with ? &setting_table[setting->only_with - 1] : NULL;
    char name[SETTING_PRINT_BYTES] = "";
    if (other) setting_choice_name(other, setting->only_value, name);
    const char *absent = !setting->later ? "" : ". Absent in files of earlier versions";
    const char *fallback = setting->later && setting->fallback ? setting->fallback : "";
    return json_sprintf("%s%s%s%s%s%s%s%s%s", setting->help, null ? "; null: not given" : "",
                        other ? "; present only with " : "", other ? other->key : "", other ? " " : "", name, absent,
                        fallback[0] ? ": " : "", fallback);
}

/* A setting's schema; `null`: one that was not given may be null. */
static json_t *describe(const struct setting *setting, bool null) {
    static const char *const types[] = {
        [SETTING_FLAG] = "boolean", [SETTING_INT] = "integer",  [SETTING_FLOAT] = "number",
        [SETTING_SIZE] = "integer", [SETTING_TEXT] = "string",  [SETTING_TEXTS] = "string",
        [SETTING_DATE] = "integer", [SETTING_LANES] = "string", [SETTING_CHOICE] = "string"};
    const char *type = setting->flag_in_files ? "boolean" : types[setting->type];
    json_t *out = json_object();
    (void)json_object_set_new(out, "type", null ? json_pack("[s, s]", type, "null") : json_string(type));
    if (setting->type == SETTING_FLOAT) describe_float(setting, out);
    if (setting->type == SETTING_INT || setting->type == SETTING_DATE) describe_int(setting, out);
    if (setting->type == SETTING_CHOICE && !setting->flag_in_files)
        (void)json_object_set_new(
            out, "enum", names_to_json(setting->names_in_files && setting->names ? setting->names : setting->choices));
    (void)json_object_set_new(out, "description", description(setting, null));
    return out;
}

/* Those that the struct has and `without` has not. */
static json_t *describe_all(const struct settings_holder *holder, const struct settings_holder *without) {
    json_t *properties = json_object(), *required = json_array();
    for (enum setting_id id = 0; id < SETTING_COUNT; id++) {
        const struct setting *setting = &setting_table[id];
        if (!settings_have(holder, id) || (without && settings_have(without, id))) continue;
        bool number = setting->type == SETTING_INT || setting->type == SETTING_FLOAT || setting->type == SETTING_DATE;
        bool null = without && number && !setting->fallback;
        (void)json_object_set_new(properties, setting->key, describe(setting, null));
        if (!setting->later && !setting->only_with) (void)json_array_append_new(required, json_string(setting->key));
    }
    return json_pack("{s:o, s:o}", "properties", properties, "required", required);
}

enum status help_print_schemas(void) {
    json_t *recipe = describe_all(&recipe_settings, NULL), *options = describe_all(&train_settings, &recipe_settings);
    return cli_print_json(json_pack("{s:o, s:o}", "recipe", recipe, "options", options));
}
