/* --help and docs/options.md, from the table of options. */

#include "base/json.h"
#include "cli/commands/command.h"
#include "session/options.h"

enum { HELP_COLUMN = 30, HELP_WIDTH = 100 };

/* Words of `text` in lines of at most HELP_WIDTH columns, each line indented; the first begins at `column`. */
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

/* The command that a part of a help text is for, "plan: ...", and what follows; NULL: all commands. */
static const struct command *command_of(const char *part, const char **text) {
    for (int i = 0; i < COMMAND_COUNT; i++) {
        size_t length = strlen(commands[i]->name);
        if (strncmp(part, commands[i]->name, length) != 0 || strncmp(part + length, ": ", 2) != 0) continue;
        *text = part + length + 2;
        return commands[i];
    }
    return NULL;
}

static const char plan_value[] = "or the value in the plan file", run_value[] = "the run's value";

static bool reads_plan_file(const struct command *command) {
    return (option_table[OPT_plan_path]->commands & command->bit) != 0;
}

/* Bytes of a part of a computed default in a command's help. Only commands with --plan take values from plan files. */
static int part_length(const char *part, int length, const struct command *command) {
    const char *value = strstr(part, plan_value);
    if (!value || value >= part + length) return length;
    if (reads_plan_file(command)) return (int)(value - part) + (int)strlen(plan_value);
    return value - part >= 2 ? (int)(value - part) - 2 : 0; /* without ", " */
}

/* The default in a command's help: the part for this command ("plan: ...") where there is one, else the common parts.
 * `resume` takes values of plan files from its run. */
static void default_of_command(const struct setting *option, const struct command *command, char *text, size_t bytes) {
    const char *fallback = option->fallback, *computed = option->computed;
    size_t used = (size_t)snprintf(text, bytes, "%s", !fallback ? "" : fallback[0] ? fallback : "\"\"");
    if (command->bit == COMMAND_RESUME && strstr(computed, plan_value)) {
        snprintf(text, bytes, "%s", run_value);
        return;
    }
    for (const char *part = computed, *end; *part; part = *end ? end + 2 : end) {
        const char *own = part;
        const struct command *only = command_of(part, &own);
        end = strstr(part, "; ");
        if (!end) end = part + strlen(part);
        if (only == command) {
            snprintf(text, bytes, "%.*s", (int)(end - own), own);
            return;
        }
        int length = only ? 0 : part_length(part, (int)(end - part), command);
        if (length == 0 || used >= bytes) continue;
        used +=
            (size_t)snprintf(text + used, bytes - used, "%s%.*s", used > 0 && *part != ',' ? "; " : "", length, part);
    }
}

/* `command` NULL: the defaults of all commands. */
static void default_text(const struct setting *option, const struct command *command, char *text, size_t bytes) {
    const char *fallback = option->fallback;
    char own[256];
    if (option->required && option->excludes)
        snprintf(text, bytes, " [required without --%s]", option->excludes);
    else if (option->required)
        snprintf(text, bytes, " [required]");
    else if (option->computed && command) {
        default_of_command(option, command, own, sizeof own);
        snprintf(text, bytes, " [default: %s]", own);
    } else if (fallback)
        snprintf(text, bytes, " [default: %s%s]", fallback[0] ? fallback : "\"\"",
                 option->computed ? option->computed : "");
    else if (option->computed)
        snprintf(text, bytes, " [default: %s]", option->computed);
    else if (option->type == SETTING_FLAG)
        snprintf(text, bytes, " [default: off]");
    else
        snprintf(text, bytes, " [default: none]");
}

/* The parts, separated by "; ", that are for the command. */
static void help_text(const struct setting *option, const struct command *command, char *text, size_t bytes) {
    size_t used = 0;
    text[0] = '\0';
    for (const char *part = option->help, *end; *part; part = *end ? end + 2 : end) {
        const char *name = part;
        const struct command *only = command_of(part, &name);
        end = strstr(part, "; ");
        if (!end) end = part + strlen(part);
        if (only && only != command) continue;
        used += (size_t)snprintf(text + used, bytes - used, "%s%.*s", used > 0 ? "; " : "", (int)(end - name), name);
        if (used >= bytes) return;
    }
}

static void print_option(FILE *out, const struct setting *option, const struct command *command) {
    char left[80], right[900], help[600], fallback[320];
    print_left(option, left, sizeof left);
    default_text(option, command, fallback, sizeof fallback);
    help_text(option, command, help, sizeof help);
    snprintf(right, sizeof right, "%s%s", help, fallback);
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
    fputs("  help       print this text; `ballast help COMMAND` (or `ballast COMMAND --help`) shows all options and\n"
          "             their defaults; `ballast help options` prints docs/options.md, `ballast help models` "
          "docs/models.md,\n"
          "             `ballast help tokenizers` docs/tokenizers.md, `ballast help templates` docs/chat.md;\n"
          "             `ballast help presets` lists published models that `ballast plan` knows by name\n"
          "  version    print the program's version\n\n"
          "exit status:\n",
          out);
#define PRINT_STATUS(name, value, text) fprintf(out, "  %-10d %s\n", value, text);
    STATUS_LIST(PRINT_STATUS)
#undef PRINT_STATUS
}

void help_print_command(const struct command *command, FILE *out) {
    fprintf(out, "ballast %s: %s\n\nusage: ballast %s %s [options]\n\n", command->name, command->summary, command->name,
            command->arguments);
    print_wrapped(out, command->details, 0, 0);
    fputs("\noptions:\n", out);
    for (int i = 0; i < OPT_COUNT; i++)
        if (option_table[i]->commands & command->bit) print_option(out, option_table[i], command);
    fprintf(out, "  -h, --help%*s", HELP_COLUMN - 12, "");
    fputs("this text\n", out);
}

static void print_row(FILE *out, const struct setting *option) {
    char key[64], fallback[320];
    default_text(option, NULL, fallback, sizeof fallback);
    const char *argument = option_argument(option);
    fprintf(out, "| `--%s%s%s`", option->name, argument[0] ? " " : "", argument);
    if (option->letter) fprintf(out, ", `-%c`", option->letter);
    fprintf(out, " | `%s` | ", option_key(option, key));
    const char *separator = "";
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (option->commands & (1u << i)) fprintf(out, "%s%s", separator, commands[i]->name), separator = ", ";
    fprintf(out, " | %s%s |\n", option->help, fallback);
}

void help_print_document(FILE *out) {
    fputs(
        "# Options\n\nMade by `ballast help options > docs/options.md`; a test compares.\n\n"
        "Each option is also a key of a `--config FILE`, a JSON object. The command line wins over the file, the file "
        "over the\ndefault. With --plan, or if the file is a run's run.json, Ballast refuses options that differ from "
        "the "
        "recipe, which\nfixes the bits of the result. Sizes are written `512M`, `8G`, `1.5T` (powers of "
        "1024) or plain bytes.\n\n## Commands\n\n",
        out);
    for (int i = 0; i < COMMAND_COUNT; i++)
        fprintf(out, "- `ballast %s %s`: %s. %s\n", commands[i]->name, commands[i]->arguments, commands[i]->summary,
                commands[i]->details);
    fputs("\n## Options\n\n| option | key | commands | meaning and default |\n|---|---|---|---|\n", out);
    for (int i = 0; i < OPT_COUNT; i++)
        if (option_table[i]->commands) print_row(out, option_table[i]);
}

/* The settings as parts of a JSON schema, from which scripts/formats.py makes those of recipes and run.json. */

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
