#include "cli/help.h"

#include <ctype.h>

#include "base/json.h"
#include "cli/commands/command.h"
#include "session/options.h"

enum { HELP_COLUMN = 30, HELP_WIDTH = 100 };

/* Wraps `text` at HELP_WIDTH columns and indents each line. The first line begins at `column`. */
static void print_wrapped(FILE *out, const char *text, int indent, int column) {
    while (*text) {
        int length = (int)strcspn(text, " ");
        if (column > indent && column + 1 + length > HELP_WIDTH) {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
        } else if (column > indent) {
            fputc(' ', out);
            column++;
        }
        fprintf(out, "%.*s", length, text);
        column += length;
        text += length;
        text += strspn(text, " ");
    }
    fputc('\n', out);
}

static void print_left(const struct setting *option, char *left, size_t bytes) {
    const char *argument = option_argument(option), *space = argument[0] ? " " : "";
    if (option->letter)
        snprintf(left, bytes, "  -%c, --%s%s%s", option->letter, option->name, space, argument);
    else
        snprintf(left, bytes, "  --%s%s%s", option->name, space, argument);
}

/* Returns the command of a part of a help text ("plan: ..."), or NULL for all commands. `text` receives the rest. */
static const struct command *command_of(const char *part, const char **text) {
    for (int i = 0; i < COMMAND_COUNT; i++) {
        size_t length = strlen(commands[i]->name);
        if (strncmp(part, commands[i]->name, length) != 0 || strncmp(part + length, ": ", 2) != 0) continue;
        *text = part + length + 2;
        return commands[i];
    }
    return NULL;
}

/* Copies the part of `text` for the command: the part that begins with its name ("plan: ..."), or else the common
 * part. If `command` is NULL, copies the whole text. "; " separates parts. */
static void part_of_command(const char *text, const struct command *command, char out[HELP_TEXT_BYTES]) {
    const size_t bytes = HELP_TEXT_BYTES;
    size_t used = 0;
    snprintf(out, bytes, "%s", command ? "" : text);
    if (!command) return;
    for (const char *part = text, *end; *part; part = *end ? end + 2 : end) {
        end = strstr(part, "; ");
        if (!end) end = part + strlen(part);
        const char *own = part;
        const struct command *only = command_of(part, &own);
        if (only == command) {
            snprintf(out, bytes, "%.*s", (int)(end - own), own);
            return;
        }
        if (only || used >= bytes) continue;
        used += (size_t)snprintf(out + used, bytes - used, "%s%.*s", used > 0 ? "; " : "", (int)(end - part), part);
    }
}

char *help_phrase(const struct setting *option, const struct command *command, char text[HELP_TEXT_BYTES]) {
    part_of_command(option->help, command, text);
    return text;
}

char *help_default(const struct setting *option, const struct command *command, char text[HELP_DEFAULT_BYTES]) {
    const size_t bytes = HELP_DEFAULT_BYTES;
    const char *fallback = !option->fallback ? "" : option->fallback[0] ? option->fallback : "\"\"";
    char computed[HELP_TEXT_BYTES];
    part_of_command(option->computed ? option->computed : "", command, computed);
    unsigned required = command ? option->required & command->bit : option->required;
    if (required && option->excludes)
        snprintf(text, bytes, " [required without --%s]", option->excludes);
    else if (required == option->commands || (required && command))
        snprintf(text, bytes, " [required]");
    else if (command && command->bit == COMMAND_RESUME && option->saved)
        snprintf(text, bytes, " [default: the run's]");
    else if (!option->fallback && !option->computed)
        snprintf(text, bytes, " [default: %s]", option->type == SETTING_FLAG ? "off" : "none");
    else
        snprintf(text, bytes, " [default: %s%s]", computed[0] == ',' || !computed[0] ? fallback : "", computed);
    return text;
}

static void print_option(FILE *out, const struct setting *option, const struct command *command) {
    char left[80], right[HELP_TEXT_BYTES + HELP_DEFAULT_BYTES], phrase[HELP_TEXT_BYTES], fallback[HELP_DEFAULT_BYTES];
    print_left(option, left, sizeof left);
    snprintf(right, sizeof right, "%s%s", help_phrase(option, command, phrase),
             help_default(option, command, fallback));
    fprintf(out, "%s", left);
    if (strlen(left) + 2 > HELP_COLUMN)
        fprintf(out, "\n%*s", HELP_COLUMN, "");
    else
        fprintf(out, "%*s", HELP_COLUMN - (int)strlen(left), "");
    print_wrapped(out, right, HELP_COLUMN, HELP_COLUMN);
}

void help_print_program(FILE *out) {
    fputs("ballast: trains large language models within a memory budget known before the first step\n\n"
          "usage: ballast COMMAND ARGUMENTS... [options]\n\ncommands:\n",
          out);
    for (int i = 0; i < COMMAND_COUNT; i++)
        fprintf(out, "  %-10s %s\n", commands[i]->name, commands[i]->summary);
    fputs("  version    print the program's version\n"
          "  help       print this text; `ballast help presets` lists published models that `plan` knows by name\n\n"
          "`ballast COMMAND --help` shows the options that people use, `ballast COMMAND --help-all` shows all.\n\n"
          "exit status:\n",
          out);
#define PRINT_STATUS(name, value, text) fprintf(out, "  %-10d %s\n", value, text);
    STATUS_LIST(PRINT_STATUS)
}

const char *const option_group_titles[GROUP_COUNT] = {
#define GROUP_TITLE(id, title) title,
    OPTION_GROUP_LIST(GROUP_TITLE)};

bool help_shows(const struct command *command, const struct setting *option, bool all) {
    return option->commands & command->bit && (all || option->common & command->bit);
}

static void print_group(FILE *out, const struct command *command, enum option_group group, bool all) {
    bool any = false;
    for (int i = 0; i < OPT_COUNT; i++) {
        if (option_table[i]->group != group || !help_shows(command, option_table[i], all)) continue;
        if (!any) fprintf(out, "\n%s:\n", option_group_titles[group]);
        any = true;
        print_option(out, option_table[i], command);
    }
}

void help_print_command(const struct command *command, bool all, FILE *out) {
    fprintf(out, "ballast %s: %s\n\nusage: ballast %s %s [options]\n\n", command->name, command->summary, command->name,
            command->arguments);
    print_wrapped(out, command->details, 0, 0);
    if (all) {
        fputc('\n', out);
        print_wrapped(out, command->notes, 0, 0);
    }
    fprintf(out, "\nexample:\n  %s\n", command->example);
    for (enum option_group group = 0; group < GROUP_COUNT; group++)
        print_group(out, command, group, all);
    int hidden = 0;
    for (int i = 0; i < OPT_COUNT; i++)
        hidden += help_shows(command, option_table[i], true) && !help_shows(command, option_table[i], all);
    fputc('\n', out);
    if (hidden > 0) fprintf(out, "`ballast %s --help-all` shows %d more options.\n", command->name, hidden);
    fputs("docs/options.md explains each option.\n", out);
}

bool help_is_recipe(const struct setting *option) {
    enum setting_id id = setting_id_of(option);
    return id == SETTING_lora || id == SETTING_freeze || (id < SETTING_COUNT && settings_have(&recipe_settings, id));
}

static void print_row(FILE *out, const struct setting *option) {
    char key[64], fallback[HELP_DEFAULT_BYTES];
    const char *argument = option_argument(option);
    fprintf(out, "| `--%s%s%s`", option->name, argument[0] ? " " : "", argument);
    if (option->letter) fprintf(out, ", `-%c`", option->letter);
    fprintf(out, " | `%s` | ", option_key(option, key));
    const char *separator = "";
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (option->commands & (1u << i)) fprintf(out, "%s%s", separator, commands[i]->name), separator = ", ";
    fprintf(out, " | %s.", option->help);
    if (option->details) fprintf(out, " %s", option->details);
    fprintf(out, "%s%s |\n", help_is_recipe(option) ? " Part of the recipe." : "",
            help_default(option, NULL, fallback));
}

void help_print_document(FILE *out) {
    fputs(
        "# Options\n\nMade by `ballast help options > docs/options.md`; a test compares.\n\n"
        "Each option is also a key of a `--config FILE`, a JSON object. The command line wins over the file, the file "
        "over the\ndefault. Sizes are written `512M`, `8G`, `1.5T` (powers of 1024) or plain bytes.\n\n"
        "The recipe fixes the bits of the result. With --plan, or if the --config file is a run's run.json, its "
        "options come from\nthere, and Ballast refuses other values. `resume` takes options from its run. Among the "
        "other options under memory and\nranks, only --device changes a result.\n\n## Commands\n\n",
        out);
    for (int i = 0; i < COMMAND_COUNT; i++)
        fprintf(out, "- `ballast %s %s`: %s. %s %s\n", commands[i]->name, commands[i]->arguments, commands[i]->summary,
                commands[i]->details, commands[i]->notes);
    for (enum option_group group = 0; group < GROUP_COUNT; group++) {
        const char *title = option_group_titles[group];
        fprintf(out, "\n## %c%s\n\n| option | key | commands | meaning and default |\n|---|---|---|---|\n",
                toupper(title[0]), title + 1);
        for (int i = 0; i < OPT_COUNT; i++)
            if (option_table[i]->commands && option_table[i]->group == group) print_row(out, option_table[i]);
    }
}

/* The settings as parts of a JSON schema. scripts/formats.py generates the schemas of recipes and run.json from
 * them. */

static json_t *names_to_json(const char *names) {
    json_t *array = json_array();
    for (const char *name = names; name; name = strchr(name, '|') ? strchr(name, '|') + 1 : NULL)
        (void)json_array_append_new(array, json_stringn(name, strcspn(name, "|")));
    return array;
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

/* Returns a setting's schema. `null`: the value may be null, for a setting that was not given. */
static json_t *describe(const struct setting *setting, bool null) {
    static const char *const types[] = {
        [SETTING_FLAG] = "boolean", [SETTING_INT] = "integer",  [SETTING_FLOAT] = "number",
        [SETTING_SIZE] = "integer", [SETTING_TEXT] = "string",  [SETTING_TEXTS] = "string",
        [SETTING_DATE] = "integer", [SETTING_LANES] = "string", [SETTING_CHOICE] = "string"};
    const char *type = setting->flag_in_files ? "boolean" : types[setting->type];
    json_t *out = json_object();
    (void)json_object_set_new(out, "type", null ? json_pack("[s, s]", type, "null") : json_string(type));
    if (setting->type == SETTING_FLOAT) {
        json_put(&out, setting->above ? "exclusiveMinimum" : "minimum", json_real(setting->float_min));
        json_put(&out, "maximum", json_real(setting->float_max));
    }
    if (setting->type == SETTING_INT || setting->type == SETTING_DATE) {
        json_put(&out, "minimum", json_integer(setting->min));
        json_put(&out, "maximum", json_integer(setting->max));
    }
    if (setting->type == SETTING_CHOICE && !setting->flag_in_files)
        (void)json_object_set_new(
            out, "enum", names_to_json(setting->names_in_files && setting->names ? setting->names : setting->choices));
    (void)json_object_set_new(out, "description", description(setting, null));
    return out;
}

/* Describes the settings that `holder` has and `without` lacks. */
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
