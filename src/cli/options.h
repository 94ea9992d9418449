/* The options and arguments that a subcommand was given: from the command line, the --config file and the table's
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

/* By long name: of these commands, or, if they have none of that name, of others; OPT_COUNT when there is none. */
enum option_id option_find(unsigned commands, const char *name);
/* By a config file's key. */
enum option_id option_find_key(const char *key);
enum { OPTION_COMMANDS_BYTES = 128 };
/* Writes the names of its commands, "train, resume"; returns `list`. */
char *option_print_commands(const struct setting *option, char list[OPTION_COMMANDS_BYTES]);
/* What help calls its value; "" of a flag. */
const char *option_argument(const struct setting *option);
/* Writes the key; returns `key`. */
char *option_key(const struct setting *option, char key[64]);

struct command;

/* SOURCE_RUN: a run.json as the config file, which has all settings, whether or not somebody chose them. */
enum option_source { SOURCE_NONE, SOURCE_DEFAULT, SOURCE_RUN, SOURCE_CONFIG, SOURCE_COMMAND_LINE };

struct option_value {
    enum option_source source;
    struct setting_value value;
    VEC(const char *) texts; /* of SETTING_TEXTS */
};

struct options {
    const struct command *command;
    struct option_value values[OPT_COUNT];
    VEC(const char *) arguments; /* positional */
    struct scratch memory;       /* of texts from a config file */
    bool help, help_all;         /* --help or -h, or --help-all was given: the rest is not checked */
};

/* Reads what stands after the subcommand. BAD_INPUT names the option and the rule (and the file, for a config's key).
 * Free in any case with options_free. */
enum status options_parse(const struct command *command, int count, char **arguments, struct options *out);
void options_free(struct options *options);

/* Values; the type must be the option's. Without any source: 0, false, NULL. */
bool options_flag(const struct options *options, enum option_id id);
int64_t options_int(const struct options *options, enum option_id id);
double options_float(const struct options *options, enum option_id id);
const char *options_text(const struct options *options, enum option_id id);
/* True when the user gave it, on the command line or in the config file. */
bool options_given(const struct options *options, enum option_id id);

/* Sets each setting that was given, and that the struct has (plan/settings.h). BAD_INPUT for lanes that are none. */
enum status options_take(const struct options *options, const struct settings_holder *holder, void *out);

/* The parts of the parser, one file each. */

/* Sets a value from text; `where` ("--batch", "run.json: batch") begins messages. */
enum status option_value_set(const struct setting *option, const char *where, const char *text,
                             struct option_value *value);
/* The same from the file's object. */
enum status options_read_object(const char *path, json_t *object, struct options *options);
/* Sets a value that a config file gives, unless the command line has it. */
enum status options_set_json(const char *where, enum option_id id, const json_t *json, enum option_source source,
                             struct options *options);
/* Whether a config file is a run's run.json, and what is read from one. */
bool options_is_run(const json_t *object);
enum status options_read_run(const char *path, const json_t *object, struct options *options);

/* Names that other trainers (transformers, Megatron-LM, torchtune, axolotl, llm.c) and Ballast 0.1 give the options
 * (alias.c). Ballast refuses them with a hint that names its own option. */

struct option_alias {
    enum option_id option; /* the option that takes the same value; OPT_COUNT: none, see the note */
    const char *names;     /* with "-", separated by blanks */
    const char *note;      /* how its value or its use differs; NULL: it does not */
    bool argument;         /* there is no option, since it is an argument; the note says which */
    bool renamed;          /* the one name is Ballast 0.1's */
};
extern const struct option_alias option_aliases[];
extern const int option_alias_count;

/* By a name as it is typed or a config's key ("_" is as good as "-"); one whose option serves the command if there is
 * one. NULL: nobody calls an option so. */
const struct option_alias *option_alias_find(const struct command *command, const char *name);

/* Whether a list of words, separated by blanks, has the word. */
bool option_alias_lists(const char *list, const char *name);

/* Adds what does it here as the hint, and returns `status`. `config`: the name is a config's key. */
enum status option_alias_hint(enum status status, const struct command *command, const struct option_alias *alias,
                              bool config);

/* Options that were given and have no effect (effect.c): said once each, as a warning. */

struct train_info;

/* When it can be told that an option has no effect: by the options alone, or when the run's data are open. */
enum effect_phase { EFFECT_OF_OPTIONS, EFFECT_OF_DATA };

struct option_effect {
    enum option_id option;
    enum effect_phase phase;
    /* Whether it does nothing; asked only where it was given. `info` is NULL at the first phase. */
    bool (*is_idle)(const struct options *options, const struct train_info *info);
    const char *why; /* after "--NAME " */
};
extern const struct option_effect option_effects[];
extern const int option_effect_count;

/* Warns of those that do nothing by the options alone. */
void option_effects_warn(const struct options *options);
/* The same of those that do nothing with these data. `options` is a struct options: it is an event of train.h. */
void option_effects_warn_data(const void *options, const struct train_info *info);
