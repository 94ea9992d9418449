/* The command line: what a user types becomes calls of the modules below, and what they return becomes text, JSON and
 * an exit status. Nothing outside this module prints to stdout or ends the process.
 *
 * Files, in the order to read them:
 *   main, program: the program, from its arguments to its exit status; how long OpenMP's threads wait in a loop;
 *   commands/: the subcommands, one each;
 *   options, option_list: the table of options, and the values given by arguments or a --config file; settings are in
 *       plan/setting_list.h;
 *   step_options: run.json as a --config file, and options as those of session and generate;
 *   help, manual, completion: --help, docs/options.md and schemas; manual pages; completions for shells;
 *   alias, effect: other trainers' names for options; options that have no effect;
 *   ranks: the program on several ranks: who starts them, prints, and ends; how Ctrl-C stops a run;
 *   new_output: the file or directory of -o, whole or not at all;
 *   line_edit, line_edit_absent: a line typed at a prompt, with or without libedit. */
#pragma once

/* The whole program: `arguments` are those after the program's name. Prints errors and returns the exit status. */
int cli_run(int count, char **arguments);
/* Calls `run` with the arguments and returns its result. Where `ulimit -s` leaves less than COMMAND_STACK_BYTES, the
 * call is made in a thread with a stack of that size, and all further threads get one. The libraries' code generators
 * need hundreds of KiB. */
int command_stack_run(int (*run)(int count, char **arguments), int count, char **arguments);

/* The first thing that a program does whose kernels run concurrently with other programs, benchmarks included: starts
 * it again with `arguments` (main's), GOMP_SPINCOUNT=10000 and OMP_WAIT_POLICY=active, unless the environment says how
 * OpenMP waits or binds its threads. The process keeps the name of its program.
 *
 * In turns of a loop: GNU's default of 300000 makes a step on a machine that others use too wait for threads that are
 * not running: a small model fell from 50000 to 600 tokens/s. 10000 turns lose nothing on an idle machine and kept 8000
 * there. Where teams of several streams have more threads than there are cores, GNU's default are 100 turns, less than
 * a wake takes; `active` makes them 1000, and steps of plans that move states 11 to 15% shorter. */
void limit_spinning(char **arguments);
