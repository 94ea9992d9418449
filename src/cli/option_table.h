/* The table of options: it makes the parser, --help, the keys of a --config file, and docs/options.md. Names, legal
 * values and defaults of what a run or a text is made with stand in plan/settings.h; here are the words for them, and
 * the options that only the command line has.
 *
 * An option's key in a --config file is its name with "_" for "-". */
#ifndef BALLAST_CLI_OPTION_TABLE_H
#define BALLAST_CLI_OPTION_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "plan/settings.h"

/* Subcommands, as bits: which of them an option serves. */
#define COMMAND_LIST(X)                                                                                                \
    X(INIT, init)                                                                                                      \
    X(PLAN, plan)                                                                                                      \
    X(TRAIN, train)                                                                                                    \
    X(RESUME, resume)                                                                                                  \
    X(REPORT, report)                                                                                                  \
    X(MERGE, merge)                                                                                                    \
    X(EVAL, eval)                                                                                                      \
    X(GENERATE, generate)                                                                                              \
    X(CHAT, chat)                                                                                                      \
    X(PROFILE, profile)                                                                                                \
    X(SIMULATE, simulate)                                                                                              \
    X(INSPECT, inspect)
enum command_index {
#define COMMAND_INDEX(id, name) COMMAND_INDEX_##id,
    COMMAND_LIST(COMMAND_INDEX) COMMAND_COUNT
#undef COMMAND_INDEX
};
enum command_bit {
#define COMMAND_BIT(id, name) COMMAND_##id = 1 << COMMAND_INDEX_##id,
    COMMAND_LIST(COMMAND_BIT)
#undef COMMAND_BIT
        COMMANDS_ALL = (1 << COMMAND_COUNT) - 1,
    COMMANDS_TEXT = COMMAND_GENERATE | COMMAND_CHAT,
    COMMANDS_STEP = COMMAND_PLAN | COMMAND_TRAIN | COMMAND_RESUME | COMMAND_EVAL | COMMAND_GENERATE | COMMAND_PROFILE,
    COMMANDS_MODEL = COMMANDS_STEP | COMMAND_CHAT, /* those that compute with one */
    COMMANDS_RANKS =
        COMMAND_TRAIN | COMMAND_RESUME | COMMAND_EVAL | COMMAND_PROFILE, /* those that all ranks carry out together */
};

struct option {
    const struct setting *setting; /* name, type, legal values, default */
    char letter;                   /* of the short form; 0: none */
    const char *key;               /* of config files; NULL: the name, with _ for - */
    const char *argument;          /* what help calls the value; NULL: N, X or SIZE, by its type */
    const char *bare;              /* of a choice: its value where none follows; NULL: one must */
    unsigned commands;             /* bits of enum command_bit */
    /* What the default is computed from, for people, or what happens without the option; where the setting has a
     * default, what follows it in the sentence: ", or the value in the plan file". */
    const char *computed;
    const char *excludes; /* the name of one that says the same in another way; NULL: none */
    bool required;        /* unless that one is given */
    const char *help;
};

#include "cli/option_list.h"

enum option_id {
#define OPTION_ID(id, ...) OPT_##id,
    OPTION_LIST(OPTION_ID) OPTION_COUNT
#undef OPTION_ID
};
extern const struct option option_table[OPTION_COUNT];
extern const char *const command_names[COMMAND_COUNT];

/* By long name: of these commands, or, if they have none of that name, of others; OPTION_COUNT when there is none. */
enum option_id option_find(unsigned commands, const char *name);
/* By a config file's key. */
enum option_id option_find_key(const char *key);
enum { OPTION_COMMANDS_BYTES = 128 };
/* Writes the names of its commands, "train, resume"; returns `list`. */
char *option_print_commands(const struct option *option, char list[OPTION_COMMANDS_BYTES]);
/* What help calls its value; "" of a flag. */
const char *option_argument(const struct option *option);
/* Writes the key; returns `key`. */
char *option_key(const struct option *option, char key[64]);

#endif
