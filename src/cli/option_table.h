/* The one table of options: it makes the parser, --help, the keys of a --config file, and docs/options.md.
 *
 * An option's key in a --config file is its name with "_" for "-". */
#ifndef BALLAST_CLI_OPTION_TABLE_H
#define BALLAST_CLI_OPTION_TABLE_H

#include <stdbool.h>
#include <stdint.h>

enum option_type {
    OPTION_FLAG,  /* takes no value; --name=false turns off what a config file turned on */
    OPTION_WHOLE, /* a whole number within least..most */
    OPTION_REAL,  /* a finite number within real_least..real_most; not real_least itself where `above` */
    OPTION_SIZE,  /* base/size.h; at least 1 byte */
    OPTION_TEXT,  /* text and paths, not empty unless `may_be_empty` */
    OPTION_TEXTS, /* the same, may be given several times; a string or a list of strings in a config file */
    OPTION_CHOICE /* one of `choices` */
};

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
};

struct option {
    const char *name; /* without the dashes */
    char letter;      /* of the short form; 0: none */
    enum option_type type;
    const char *argument; /* what help calls the value */
    unsigned commands;    /* bits of enum command_bit */
    int64_t least, most;
    double real_least, real_most;
    bool above, may_be_empty;
    const char *choices;  /* "bf16|fp32" */
    const char *fallback; /* the default, as text that the parser takes; NULL: none, or a computed one */
    const char *computed; /* what the default is computed from, for people; or what happens without the option */
    bool required;
    const char *refusal;  /* not NULL: accepted by name only to say that this version does not support it */
    const char *excludes; /* the name of one that says the same in another way; NULL: none */
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

/* By long name; OPTION_COUNT when there is none. */
enum option_id option_find(const char *name);
/* By a config file's key. */
enum option_id option_find_key(const char *key);
enum { OPTION_COMMANDS_BYTES = 128 };
/* Writes the names of its commands, "train, resume"; returns `list`. */
char *option_print_commands(const struct option *option, char list[OPTION_COMMANDS_BYTES]);
/* Writes the key; returns `key`. */
char *option_key(const struct option *option, char key[64]);

#endif
