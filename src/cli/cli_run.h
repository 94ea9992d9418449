/* The command line: what a user types becomes calls of the modules below, and what they return becomes text, JSON and
 * an exit status. Nothing outside this module prints to stdout or ends the process.
 *
 * Files, in the order to read them:
 *   main, cli_run: the program, from its arguments to its exit status;
 *   commands/: the subcommands, one each;
 *   options, option_list: options, and the values that were given by arguments or a --config file; the settings among
 * them stand in plan/setting_list.h; run_config: a run's run.json as such a file; step_options: from options to those
 * of session and generate; help: --help, docs/options.md and schemas; alias, effect: other trainers' names for options,
 * and options that change nothing here; ranks: the program on several ranks: who starts them, prints, and ends;
 * stop_signal: how Ctrl-C stops a run; new_output: what -o names, whole or not at all; line_edit, line_edit_absent: a
 * line typed at a prompt, with or without libedit; limit_spinning: how long OpenMP's threads wait in a loop. */
#pragma once

/* The whole program: `arguments` are those after the program's name. Prints errors and returns the exit status. */
int cli_run(int count, char **arguments);
/* Calls `run` with the arguments and returns its result. Where `ulimit -s` leaves less than COMMAND_STACK_BYTES, the
 * call is made in a thread with a stack of that size, and all further threads get one. The libraries' code generators
 * need hundreds of KiB. */
int command_stack_run(int (*run)(int count, char **arguments), int count, char **arguments);
