/* The program on several ranks.
 *
 * A process has one of three roles: alone; the parent of `--ranks N`, which starts the program again on N ranks and
 * reports their result; or a rank, started by such a parent or by mpirun or srun. All ranks together execute the
 * commands that train and evaluate (COMMANDS_RANKS). Rank 0 executes other commands, and the other ranks do nothing, so
 * a script may contain `srun ballast inspect run`.
 *
 * Only rank 0 prints. The other ranks discard their standard output, warnings and notes. The rank that comm_speaks
 * selects reports an error, through the parent if there is one.
 *
 *     ranks_join();                               before anything else
 *     ranks_open(&options, parsed);               opens MPI; does nothing if the process is alone
 *
 *     … the command …
 *
 *     if (stopped && ranks_should_report(status)) …;       a stop is reported before MPI closes
 *     status = ranks_close(status);               closes MPI, unless the command failed
 *     if (ranks_should_report(status)) …;                  this process prints the error
 *     ranks_leave(status);                        ends the other ranks after a failure */
#pragma once

#include "base/base.h"
#include "cli/options.h"
#include "comm/comm.h"
#include "session/options.h"

/* Handles SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 during training, as the `stop` of train_events.
 *
 * The first signal requests a stop and prints a message on stderr at once. A second SIGINT or SIGTERM ends the
 * process with STATUS_QUIT and reports which steps are lost. A second signal of the other kinds has no effect,
 * because shells and terminals send several SIGHUP, and schedulers several SIGUSR1. Neither has a second signal
 * within a tenth of a second, because timeout(1) sends two. SIGUSR1 and SIGUSR2 count as SIGTERM: mpirun forwards
 * them to its ranks without ending the ranks. */

/* The `stop` of struct train_events; does not use the payload. The first call, before the first step, installs the
 * handlers. Until then, while a model is loaded, a signal ends the process. An ignored signal (nohup) stays ignored. */
enum status stop_signal_poll(void *payload, int64_t step, int64_t saved_step);
/* Restores the handlers that were installed before the first call. */
void stop_signal_end(void);

/* The role of this process for a command. */
enum ranks_part { RANKS_ALONE, RANKS_PARENT, RANKS_MEMBER, RANKS_IDLE };

/* Joins the parent of --ranks, if there is one. Silences all ranks but rank 0. FAILED if the parent is gone. */
enum status ranks_join(void);
/* Whether this process prints: it is alone, or rank 0. Async-signal-safe. */
bool ranks_talk(void);
/* Returns this process's role for the command. Never RANKS_PARENT if the options were refused. */
enum ranks_part ranks_part(const struct options *options, enum status parsed);

/* In the parent: starts `ballast NAME arguments` on --ranks ranks and returns their status. The hint of a failure
 * names the run's last checkpoint. */
enum status ranks_launch(const struct options *options, int count, char **arguments);

/* In a rank: opens MPI and agrees with the other ranks on `parsed`, the status of parsing the command line. Returns
 * BAD_INPUT on all ranks if they run different programs, have different options, or if --ranks is not their number. */
enum status ranks_open(const struct options *options, enum status parsed);
/* Sets the job's ranks, and the number of ranks that share this one's cores. Sets nothing if the process is alone. */
void ranks_give(struct plan_options *out);
/* NULL if the process is alone. */
struct comm *ranks_comm(void);

/* Closes MPI, unless `status` is a failure. Returns `status`, or the failure of closing. */
enum status ranks_close(enum status status);
/* Whether this process should print the result. With --ranks, sends it to the parent, which prints it, and returns
 * false. */
bool ranks_should_report(enum status status);
/* Ends the other ranks after a failure. Returns if MPI is not open. */
void ranks_leave(enum status status);
