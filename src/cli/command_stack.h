/* The stack that commands run on. */
#ifndef BALLAST_CLI_COMMAND_STACK_H
#define BALLAST_CLI_COMMAND_STACK_H

/* Calls `run` with the arguments and returns its result. Where `ulimit -s` leaves less than COMMAND_STACK_BYTES, the
 * call is made in a thread with a stack of that size, and all further threads get one. The libraries' code generators
 * need hundreds of KiB. */
enum { COMMAND_STACK_BYTES = 8 << 20 };
int command_stack_run(int (*run)(int count, char **arguments), int count, char **arguments);

#endif
