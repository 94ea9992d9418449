#include "cli/options.h"

#include "base/folder.h"
#include "base/json.h"
#include "base/terminal.h"
#include "base/text.h"
#include "cli/commands/command.h"
#include "model/model.h"

#define OWN_LIST(X)                                                                                                    \
    OPTION_LIST_INIT(X)                                                                                                \
    OPTION_LIST_RANKS(X) OPTION_LIST_PLAN(X) OPTION_LIST_RUN(X) OPTION_LIST_TEXT(X) OPTION_LIST_COMMON(X)
#define OWN_ROW(id, file_key, option, ...)                                                                             \
    static const struct setting own_##id = {.field = #id, .key = (file_key), .name = (option), __VA_ARGS__};
OWN_LIST(OWN_ROW)

const struct setting *const option_table[OPT_COUNT] = {
#define SETTING_ENTRY(id, ...) [OPT_##id] = &setting_table[SETTING_##id],
    SETTING_LIST(SETTING_ENTRY)
#define OWN_ENTRY(id, ...) [OPT_##id] = &own_##id,
        OWN_LIST(OWN_ENTRY)};

const char *const command_names[COMMAND_COUNT] = {
#define COMMAND_NAME(id, name) #name,
    COMMAND_LIST(COMMAND_NAME)};

const char *option_argument(const struct setting *option) {
    static const char *const of_types[] = {
        [SETTING_FLAG] = "", [SETTING_INT] = "N", [SETTING_FLOAT] = "X", [SETTING_SIZE] = "SIZE"};
    if (option->argument) return option->argument;
    return option->type == SETTING_CHOICE ? option->choices : of_types[option->type];
}

char *option_key(const struct setting *option, char key[64]) {
    snprintf(key, 64, "%s", option->config_key ? option->config_key : option->name);
    for (char *at = key; *at; at++)
        if (*at == '-') *at = '_';
    return key;
}

enum option_id option_find(unsigned mask, const char *name) {
    enum option_id other = OPT_COUNT;
    for (int i = 0; i < OPT_COUNT; i++) {
        if (strcmp(option_table[i]->name, name) != 0 || option_table[i]->commands == 0) continue;
        if (option_table[i]->commands & mask) return (enum option_id)i;
        other = (enum option_id)i;
    }
    return other;
}

enum option_id option_find_key(const char *key) {
    char own[64];
    for (int i = 0; i < OPT_COUNT; i++)
        if (option_table[i]->commands != 0 && strcmp(option_key(option_table[i], own), key) == 0)
            return (enum option_id)i;
    return OPT_COUNT;
}

char *option_print_commands(const struct setting *option, char list[OPTION_COMMANDS_BYTES]) {
    size_t used = 0;
    list[0] = '\0';
    for (int i = 0; i < COMMAND_COUNT && used < OPTION_COMMANDS_BYTES; i++)
        if (option->commands & (1u << i))
            used +=
                (size_t)snprintf(list + used, OPTION_COMMANDS_BYTES - used, "%s%s", used ? ", " : "", command_names[i]);
    return list;
}

/* Parses the command line of a subcommand. */

enum status option_value_set(const struct setting *option, const char *where, const char *text,
                             struct option_value *value) {
    TRY(setting_parse(option, where, text, &value->value));
    return option->type == SETTING_TEXTS ? vec_push(&value->texts, text) : STATUS_OK;
}

struct arguments {
    char **items;
    int count, next;
};

static bool serves(const struct options *options, const struct setting *option) {
    return (option->commands & options->command->bit) != 0;
}

static enum status unknown_option(const struct options *options, const char *name) {
    struct nearest nearest = {.wanted = name};
    for (int i = 0; i < OPT_COUNT; i++)
        if (serves(options, option_table[i])) nearest_consider(&nearest, option_table[i]->name);
    enum status status = status_set(STATUS_BAD_INPUT, "--%s: unknown option", name);
    const struct option_alias *alias = option_alias_find(options->command, name);
    if (alias) return option_alias_hint(status, options->command, alias, false);
    if (nearest.best) return status_hint(status, "did you mean --%s?", nearest.best);
    return status_hint(status, "`ballast %s --help-all` lists all", options->command->name);
}

/* Refuses an option of another command. Another trainer may use its name for an option of this command. */
static enum status foreign_option(const struct options *options, const struct setting *option) {
    char list[OPTION_COMMANDS_BYTES];
    const struct option_alias *alias = option_alias_find(options->command, option->name);
    enum status status = status_set(STATUS_BAD_INPUT, "--%s: not an option of `ballast %s`, but of %s", option->name,
                                    options->command->name, option_print_commands(option, list));
    if (alias) return option_alias_hint(status, options->command, alias, false);
    return status_hint(status, "leave out --%s; `ballast %s --help-all` lists all", option->name,
                       options->command->name);
}

/* Whether the next argument is the option's value. */
static bool follows(const struct setting *option, const struct arguments *arguments) {
    const char *next = arguments->next < arguments->count ? arguments->items[arguments->next] : "--";
    return option->bare ? setting_has_choice(option, next) : strncmp(next, "--", 2) != 0;
}

static enum status set_from_arguments(struct options *options, enum option_id id, const char *attached,
                                      struct arguments *arguments) {
    const struct setting *option = option_table[id];
    struct option_value *value = &options->values[id];
    char where[80];
    snprintf(where, sizeof where, "--%s", option->name);
    if (!serves(options, option)) return foreign_option(options, option);
    const char *text = attached;
    if (!text && option->type == SETTING_FLAG) text = "true";
    if (!text && follows(option, arguments)) text = arguments->items[arguments->next++];
    if (!text) text = option->bare;
    if (!text) {
        bool more = arguments->next < arguments->count;
        return status_set(STATUS_BAD_INPUT, "%s: needs a value (%s)" HINT "write %s%s%s", where,
                          option_argument(option), where, more ? "=" : " ",
                          more ? "VALUE for a value that begins with --" : option_argument(option));
    }
    if (value->source == SOURCE_COMMAND_LINE && option->type != SETTING_TEXTS)
        return status_set(STATUS_BAD_INPUT, "%s: given twice" HINT "leave out one of them", where);
    TRY(option_value_set(option, where, text, value));
    value->source = SOURCE_COMMAND_LINE;
    return STATUS_OK;
}

static enum status read_long(struct options *options, const char *argument, struct arguments *arguments) {
    char name[64];
    const char *equals = strchr(argument, '=');
    size_t length = equals ? (size_t)(equals - argument) : strlen(argument);
    if (length >= sizeof name) return status_set(STATUS_BAD_INPUT, "--%s: unknown option", argument);
    snprintf(name, sizeof name, "%.*s", (int)length, argument);
    options->help_all = strcmp(name, "help-all") == 0 && !equals;
    options->help = options->help_all || (strcmp(name, "help") == 0 && !equals);
    if (options->help) return STATUS_OK;
    enum option_id id = option_find(options->command->bit, name);
    if (id == OPT_COUNT) return unknown_option(options, name);
    return set_from_arguments(options, id, equals ? equals + 1 : NULL, arguments);
}

static enum status read_short(struct options *options, const char *argument, struct arguments *arguments) {
    if (strcmp(argument, "h") == 0) {
        options->help = true;
        return STATUS_OK;
    }
    for (int i = 0; i < OPT_COUNT; i++)
        if (option_table[i]->letter == argument[0] && serves(options, option_table[i]))
            return set_from_arguments(options, (enum option_id)i, argument[1] ? argument + 1 : NULL, arguments);
    enum status status = status_set(STATUS_BAD_INPUT, "-%s: unknown option", argument);
    return status_hint(status, "`ballast %s --help-all` lists all", options->command->name);
}

static enum status empty_argument(const struct options *options) {
    const struct command *command = options->command;
    status_set(STATUS_BAD_INPUT, "ballast %s: argument %zu is empty", command->name, options->arguments.count + 1);
    return status_hint(STATUS_BAD_INPUT, "usage: ballast %s %s [options]; is a shell variable unset?", command->name,
                       command->arguments);
}

static enum status read_arguments(struct options *options, struct arguments *arguments) {
    bool only_arguments = false;
    while (arguments->next < arguments->count && !options->help) {
        const char *argument = arguments->items[arguments->next++];
        if (argument[0] == '\0') return empty_argument(options);
        if (only_arguments || argument[0] != '-' || argument[1] == '\0')
            TRY(vec_push(&options->arguments, argument));
        else if (strcmp(argument, "--") == 0)
            only_arguments = true;
        else if (argument[1] == '-')
            TRY(read_long(options, argument + 2, arguments));
        else
            TRY(read_short(options, argument + 1, arguments));
    }
    return STATUS_OK;
}

/* If two options exclude each other, the one on the command line wins over the config file's. */
static enum status exclude_others(struct options *options) {
    for (int i = 0; i < OPT_COUNT; i++) {
        const char *excludes = option_table[i]->excludes;
        struct option_value *value = &options->values[i];
        if (!excludes || value->source == SOURCE_NONE) continue;
        struct option_value *other = &options->values[option_find(options->command->bit, excludes)];
        if (other->source == value->source)
            return status_set(STATUS_BAD_INPUT,
                              "--%s and --%s: only one of them can be given" HINT "leave out --%s or --%s",
                              option_table[i]->name, excludes, option_table[i]->name, excludes);
        *(other->source < value->source ? other : value) = (struct option_value){0};
    }
    return STATUS_OK;
}

static bool is_replaced(const struct options *options, const struct setting *option) {
    return option->excludes &&
           options->values[option_find(options->command->bit, option->excludes)].source != SOURCE_NONE;
}

static enum status missing(const struct options *options, const struct setting *option) {
    const struct command *command = options->command;
    char letter[8] = "";
    if (option->letter) snprintf(letter, sizeof letter, " (-%c)", option->letter);
    return status_set(STATUS_BAD_INPUT, "ballast %s: --%s%s %s is missing" HINT "for example: %s", command->name,
                      option->name, letter, option_argument(option), command->example);
}

static enum status fill_defaults(struct options *options) {
    for (int i = 0; i < OPT_COUNT; i++) {
        const struct setting *option = option_table[i];
        struct option_value *value = &options->values[i];
        if (!serves(options, option) || value->source != SOURCE_NONE) continue;
        if (option->required & options->command->bit && !is_replaced(options, option)) return missing(options, option);
        if (!option->fallback) continue;
        BUG_IF(option_value_set(option, option->name, option->fallback, value) != STATUS_OK, "default of --%s: %s",
               option->name, status_message());
        value->source = SOURCE_DEFAULT;
    }
    return STATUS_OK;
}

static enum status check_arguments(const struct options *options) {
    const struct command *command = options->command;
    int count = (int)options->arguments.count;
    enum status status = STATUS_OK;
    if (count < command->min)
        status = status_set(STATUS_BAD_INPUT, "ballast %s: needs %s", command->name, command->arguments);
    else if (command->max >= 0 && count > command->max)
        status = status_set(STATUS_BAD_INPUT, "ballast %s: '%s' is one argument too many", command->name,
                            options->arguments.items[command->max]);
    if (status == STATUS_OK) return STATUS_OK;
    return status_hint(status, "usage: ballast %s %s [options]", command->name, command->arguments);
}

/* Reads options from a --config file: a JSON object with options by their keys, or a run's run.json
 * (step_options.c). */

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

/* Converts a value to text for the command line's parser, so that both follow the same rules. NULL: wrong type. */
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
    if (!text)
        return status_set(STATUS_BAD_INPUT, "%s: has the wrong type" HINT "must be %s", where, type_rule(option));
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
    /* One file may serve several commands, so an option of another command is not an error. */
    if (!(option->commands & options->command->bit)) {
        log_note("note: %s: %s: not used by `ballast %s`", path, key, options->command->name);
        return STATUS_OK;
    }
    const char *where = scratch_format(&options->memory, "%s: %s", path, key);
    return where ? options_set_json(where, id, json, SOURCE_CONFIG, options) : STATUS_FAILED;
}

/* Refuses config files in other trainers' formats. */
static enum status check_format(const char *path, const char *command_name) {
    bool yaml = path_ends(path, ".yaml") || path_ends(path, ".yml");
    if (!yaml && !path_ends(path, ".toml")) return STATUS_OK;
    enum status status =
        status_set(STATUS_BAD_INPUT, "--config: %s: is %s, and must be JSON", path, yaml ? "YAML" : "TOML");
    return status_hint(status,
                       "write it as {\"steps\": 1000, \"lr\": 3e-4}; `ballast %s --help-all` lists the options, "
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

/* Reads the options that the command line does not give from a config file. */
static enum status options_read_config(const char *path, struct options *options) {
    json_auto_t *object = NULL;
    TRY(check_format(path, options->command->name));
    enum status status = json_read_object(path, CONFIG_FILE_LIMIT_BYTES, &object);
    if (status == STATUS_OK) status = options_read_object(path, object, options);
    return status_hint_else(status, "a --config file holds a JSON object, such as {\"steps\": 1000, \"lr\": 3e-4}");
}

static enum status parse(int count, char **arguments, struct options *options) {
    struct arguments all = {.items = arguments, .count = count};
    TRY(read_arguments(options, &all));
    if (options->help) return STATUS_OK;
    const char *config = options_text(options, OPT_config);
    if (config) TRY(options_read_config(config, options));
    TRY(check_arguments(options));
    TRY(exclude_others(options));
    return fill_defaults(options);
}

enum status options_parse(const struct command *command, int count, char **arguments, struct options *out) {
    *out = (struct options){.command = command};
    return parse(count, arguments, out);
}

void options_free(struct options *options) {
    for (int i = 0; i < OPT_COUNT; i++)
        vec_free(&options->values[i].texts);
    vec_free(&options->arguments);
    scratch_free(&options->memory);
}

bool options_flag(const struct options *options, enum option_id id) { return options->values[id].value.int_value; }
int64_t options_int(const struct options *options, enum option_id id) { return options->values[id].value.int_value; }
double options_float(const struct options *options, enum option_id id) { return options->values[id].value.float_value; }
const char *options_text(const struct options *options, enum option_id id) { return options->values[id].value.text; }
bool options_given(const struct options *options, enum option_id id) {
    return options->values[id].source > SOURCE_DEFAULT;
}

enum status options_take(const struct options *options, const struct settings_holder *holder, void *out) {
    for (enum option_id i = 0; i < OPT_COUNT; i++) {
        enum setting_id id = setting_id_of(option_table[i]);
        char where[80];
        if (id == SETTING_COUNT || !settings_have(holder, id) || !options_given(options, i)) continue;
        snprintf(where, sizeof where, "--%s", option_table[i]->name);
        TRY(settings_store(holder, out, id, where, &options->values[i].value));
    }
    return STATUS_OK;
}
