/* Options and arguments of a subcommand. Values come from the command line, the --config file and the table's
 * defaults, in this order of precedence. */
#pragma once

#include <jansson.h>

#include "base/base.h"
#include "cli/option_list.h"
#include "plan/settings.h"

/* The table of options: the settings (plan/setting_list.h) and the options that only the program has
 * (cli/option_list.h). It makes the parser, --help, the keys of a --config file, and docs/options.md.
 *
 * An option's key in a --config file is its name with "_" for "-". */

enum option_id {
#define OPTION_ID(field, ...) OPT_##field,
    OPTION_LIST(OPTION_ID) OPT_COUNT
#undef OPTION_ID
};
extern const struct setting *const option_table[OPT_COUNT];
extern const char *const command_names[COMMAND_COUNT];

/* Finds an option by its long name: among those of the commands, or else among all. OPT_COUNT if there is none. */
enum option_id option_find(unsigned commands, const char *name);
/* Finds an option by its key in a config file. */
enum option_id option_find_key(const char *key);
enum { OPTION_COMMANDS_BYTES = 128 };
/* Writes the names of the option's commands ("train, resume") and returns `list`. */
char *option_print_commands(const struct setting *option, char list[OPTION_COMMANDS_BYTES]);
/* Returns the name of the option's value in help ("N"), or "" for a flag. */
const char *option_argument(const struct setting *option);
/* Writes the option's key in a config file and returns `key`. */
char *option_key(const struct setting *option, char key[64]);

struct command;

/* SOURCE_RUN: a run.json as the config file, which has all settings, including defaults. */
enum option_source { SOURCE_NONE, SOURCE_DEFAULT, SOURCE_RUN, SOURCE_CONFIG, SOURCE_COMMAND_LINE };

struct option_value {
    enum option_source source;
    struct setting_value value;
    VEC(const char *) texts; /* for SETTING_TEXTS */
};

struct options {
    const struct command *command;
    struct option_value values[OPT_COUNT];
    VEC(const char *) arguments; /* positional */
    struct scratch memory;       /* holds texts from a config file */
    bool help, help_all;         /* --help, -h or --help-all was given; nothing else is checked */
};

/* Parses the arguments after the subcommand. BAD_INPUT names the option and the rule, and for a config file its key.
 * Free with options_free, also after a failure. */
enum status options_parse(const struct command *command, int count, char **arguments, struct options *out);
void options_free(struct options *options);

/* Return an option's value; the option must have the function's type. Without a value: 0, false, NULL. */
bool options_flag(const struct options *options, enum option_id id);
int64_t options_int(const struct options *options, enum option_id id);
double options_float(const struct options *options, enum option_id id);
const char *options_text(const struct options *options, enum option_id id);
/* Whether the user gave the option, on the command line or in the config file. */
bool options_given(const struct options *options, enum option_id id);

/* Stores in a struct each of its settings (plan/settings.h) that was given. Returns BAD_INPUT for malformed lanes. */
enum status options_take(const struct options *options, const struct settings_holder *holder, void *out);

/* Parts of the parser. */

/* Sets a value from text; `where` ("--batch", "run.json: batch") begins messages. */
enum status option_value_set(const struct setting *option, const char *where, const char *text,
                             struct option_value *value);
/* Sets options from the object in a config file. */
enum status options_read_object(const char *path, json_t *object, struct options *options);
/* Sets a value from a config file, unless the command line gives the option. */
enum status options_set_json(const char *where, enum option_id id, const json_t *json, enum option_source source,
                             struct options *options);
/* Whether a config file is a run's run.json; and reads one. */
bool options_is_run(const json_t *object);
enum status options_read_run(const char *path, const json_t *object, struct options *options);

/* Names of the options in other trainers (transformers, Megatron-LM, torchtune, axolotl, llm.c) and in Ballast 0.1
 * (alias.c). Ballast refuses them with a hint that names its own option. */

struct option_alias {
    enum option_id option; /* the option with the same value; OPT_COUNT: none, see the note */
    const char *names;     /* with "-", separated by blanks */
    const char *note;      /* how its value or use differs; NULL: they do not */
    bool argument;         /* it is an argument in Ballast; the note names it */
    bool renamed;          /* the only name is that of Ballast 0.1 */
};
extern const struct option_alias option_aliases[];
extern const int option_alias_count;

/* Finds an alias by a typed name or a config file's key ("_" equals "-"). Prefers an alias whose option the command
 * has. Returns NULL if no trainer uses the name. */
const struct option_alias *option_alias_find(const struct command *command, const char *name);

/* Whether a list of words, separated by blanks, contains a word. */
bool option_alias_lists(const char *list, const char *name);

/* Adds Ballast's own option as the hint, and returns `status`. `config`: the name is a key in a config file. */
enum status option_alias_hint(enum status status, const struct command *command, const struct option_alias *alias,
                              bool config);

/* Warnings about options that were given and have no effect (effect.c), once per option. */

struct train_info;

/* When a rule can decide: from the options alone, or after the run's data are open. */
enum effect_phase { EFFECT_OF_OPTIONS, EFFECT_OF_DATA };

struct option_effect {
    enum option_id option;
    enum effect_phase phase;
    /* Whether the option has no effect. Called only if it was given. `info` is NULL in the first phase. */
    bool (*is_idle)(const struct options *options, const struct train_info *info);
    const char *why; /* follows "--NAME " in the warning */
};
extern const struct option_effect option_effects[];
extern const int option_effect_count;

/* Warns about options without an effect, judging by the options alone. */
void option_effects_warn(const struct options *options);
/* Warns about options that have no effect with the run's data. `options` is a struct options: this is a callback of
 * train.h. */
void option_effects_warn_data(const void *options, const struct train_info *info);
