/* The command line: what a user types becomes calls of the modules below, and what they return becomes text, JSON and
 * an exit status. Nothing outside this module prints to stdout or ends the process.
 *
 * Files, in the order to read them:
 *   main, cli_run: the program, from its arguments to its exit status;
 *   command: a subcommand, and the list of them; command_init, command_plan, command_train, command_resume,
 *       command_eval, command_generate, command_chat, command_merge, command_profile, command_simulate,
 *       command_inspect, command_report: one each;
 *   option_table, option_list: the options, a row each; what values they take stands in plan/settings.h;
 *   options, option_parse, option_config, option_run: the values that were given, from arguments, a
 * --config file, or a run's run.json; option_help, option_schema: --help and docs/options.md from the table;
 * option_alias, option_effect: other trainers' names for options, and options that change nothing here; step_options:
 * from these to the options of session and generate; ranks: the program on several ranks: who starts them, talks, and
 * ends; run_views, stop_signal: who watches a run, its --json, and how Ctrl-C and other signals stop it; new_output,
 * new_model: what -o names, whole or not at all, and a model made from scratch; inspect, inspect_files,
 * inspect_folders, inspect_verify, inspect_print: what `inspect` shows of each kind of thing; scale_plan, scale_view:
 * layouts for many devices, of `plan --devices`; prediction: the simulated step of `simulate` and `report`;
 *   typed_lines, line_edit, line_edit_absent: what is typed at a prompt, with or without libedit;
 *   limit_spinning: how long OpenMP's threads wait in a loop;
 *   command_stack: the stack that commands run on. */
#ifndef BALLAST_CLI_COMMAND_H
#define BALLAST_CLI_COMMAND_H

#include <jansson.h>

#include "cli/options.h"

struct command {
    enum command_bit bit;
    const char *name;
    const char *arguments; /* "MODEL_DIR DATA..." */
    int min, max;          /* positional arguments; max -1: any number */
    const char *summary;   /* one line */
    const char *details;   /* a paragraph for `ballast NAME --help` */
    enum status (*run)(const struct options *options);
};

extern const struct command command_init, command_plan, command_train, command_resume, command_eval, command_generate,
    command_profile, command_simulate, command_inspect, command_merge, command_report, command_chat;
extern const struct command *const commands[COMMAND_COUNT];

/* The whole program: `arguments` are those after the program's name. Prints errors and returns the exit status. */
int cli_run(int count, char **arguments);

/* Prints one JSON document on stdout and drops it; NULL is passed on as STATUS_FAILED. */
enum status cli_print_json(json_t *document);

#endif
