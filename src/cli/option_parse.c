/* From the command line of a subcommand to its options and arguments. */
#include <stdio.h>
#include <string.h>

#include "base/nearest.h"
#include "cli/command.h"
#include "cli/option_alias.h"

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
    return status_hint(status, "`ballast %s --help` lists all", options->command->name);
}

/* An option of another command; its name may also be another trainer's name for one of this command. */
static enum status foreign_option(const struct options *options, const struct setting *option) {
    char list[OPTION_COMMANDS_BYTES];
    const struct option_alias *alias = option_alias_find(options->command, option->name);
    enum status status = status_set(STATUS_BAD_INPUT, "--%s: not an option of `ballast %s`, but of %s", option->name,
                                    options->command->name, option_print_commands(option, list));
    return alias ? option_alias_hint(status, options->command, alias, false) : status;
}

/* Whether the next word is the option's value. */
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
        enum status status = status_set(STATUS_BAD_INPUT, "%s: needs a value (%s)", where, option_argument(option));
        if (arguments->next < arguments->count)
            return status_hint(status, "a value that begins with -- is given as %s=VALUE", where);
        return status;
    }
    if (value->source == SOURCE_COMMAND_LINE && option->type != SETTING_TEXTS)
        return status_set(STATUS_BAD_INPUT, "%s: given twice", where);
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
    if (strcmp(name, "help") == 0 && !equals) {
        options->help = true;
        return STATUS_OK;
    }
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
    return status_hint(status, "`ballast %s --help` lists all", options->command->name);
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

/* Of two options that exclude each other, the command line's wins over the config file's. */
static enum status exclude_others(struct options *options) {
    for (int i = 0; i < OPT_COUNT; i++) {
        const char *excludes = option_table[i]->excludes;
        struct option_value *value = &options->values[i];
        if (!excludes || value->source == SOURCE_NONE) continue;
        struct option_value *other = &options->values[option_find(options->command->bit, excludes)];
        if (other->source == value->source)
            return status_set(STATUS_BAD_INPUT, "--%s and --%s: only one of them can be given", option_table[i]->name,
                              excludes);
        *(other->source < value->source ? other : value) = (struct option_value){0};
    }
    return STATUS_OK;
}

static bool is_replaced(const struct options *options, const struct setting *option) {
    return option->excludes &&
           options->values[option_find(options->command->bit, option->excludes)].source != SOURCE_NONE;
}

static enum status fill_defaults(struct options *options) {
    for (int i = 0; i < OPT_COUNT; i++) {
        const struct setting *option = option_table[i];
        struct option_value *value = &options->values[i];
        if (!serves(options, option) || value->source != SOURCE_NONE) continue;
        if (option->required && !is_replaced(options, option))
            return status_set(STATUS_BAD_INPUT, "ballast %s: --%s %s is missing", options->command->name, option->name,
                              option_argument(option));
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
