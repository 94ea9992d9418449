/* Subcommands: one file each. */
#ifndef BALLAST_CLI_COMMAND_H
#define BALLAST_CLI_COMMAND_H

#include <jansson.h>

#include "cli/options.h"

struct command {
    enum command_bit bit;
    const char *name;
    const char *arguments; /* "MODEL_DIR DATA..." */
    int least, most;       /* positional arguments; most -1: any number */
    const char *summary;   /* one line */
    const char *details;   /* a paragraph for `ballast NAME --help` */
    enum status (*run)(const struct options *options);
};

extern const struct command command_init, command_plan, command_train, command_resume, command_eval, command_generate,
    command_profile, command_simulate, command_inspect, command_merge, command_report, command_chat;
extern const struct command *const commands[COMMAND_COUNT];
/* NULL when there is none of that name. */
const struct command *command_find(const char *name);

/* The whole program: `words` are those after the program's name. Prints errors and returns the exit status. */
int cli_run(int count, char **words);

/* Prints one JSON document on stdout and drops it; NULL is passed on as STATUS_FAILED. */
enum status cli_print_json(json_t *document);

#endif
