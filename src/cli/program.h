/* The command line: turns what a user types into calls of other modules, and their results into text, JSON and an exit
 * status. No other module prints to stdout or ends the process.
 *
 * Files, in the order to read them:
 *   main, program: the program, from its arguments to its exit status; limits how long OpenMP's threads spin;
 *   commands/: the subcommands, one file each;
 *   options, option_list: the table of options, and their values from arguments or a --config file; settings are in
 *       plan/setting_list.h;
 *   step_options: run.json as a --config file, and conversion to the options of session and generate;
 *   help, manual, completion: --help, docs/options.md and schemas; manual pages; shell completions;
 *   alias, effect: other trainers' names for options; options without an effect;
 *   ranks: the program on several ranks: starts them, prints their result, ends them; handles Ctrl-C;
 *   new_output: writes the file or directory of -o;
 *   line_edit, line_edit_absent: reads a line at a prompt, with or without libedit. */
#pragma once

/* Runs the program with the arguments after its name. Prints errors and returns the exit status. */
int cli_run(int count, char **arguments);
/* Calls `run` with the arguments and returns its result. If `ulimit -s` is below COMMAND_STACK_BYTES, calls it in a
 * thread with a stack of that size; all later threads get such a stack too. The code generators of libraries need
 * hundreds of KiB. */
int command_stack_run(int (*run)(int count, char **arguments), int count, char **arguments);

/* Limits the time for which OpenMP's threads spin. Programs and benchmarks that use kernels call it first. Restarts the
 * program with `arguments` (those of main), GOMP_SPINCOUNT=10000 and OMP_WAIT_POLICY=active. Does nothing if the
 * environment already controls how OpenMP waits or binds threads. The process keeps its name.
 *
 * GNU's default is 300000 turns of a loop. On a machine that other programs use too, a step then waits for threads that
 * are not running: a small model fell from 50000 to 600 tokens/s. With 10000 turns it kept 8000, and lost nothing on an
 * idle machine.
 *
 * If the teams of several streams have more threads than there are cores, GNU's default is 100 turns, less than a
 * wake-up takes. `active` makes it 1000, which shortened steps of plans that move states by 11 to 15%. */
void limit_spinning(char **arguments);
