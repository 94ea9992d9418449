/* The program on several ranks.
 *
 * A process is one of three: alone; the parent of `--ranks N`, which starts the program again on N ranks and tells what
 * came of them; or a rank, of such a parent or of an mpirun or srun. Commands that train and evaluate (COMMANDS_RANKS)
 * are carried out by all ranks together. Any other is rank 0's, and the other ranks do nothing, so that a script may
 * have `srun ballast inspect run` too.
 *
 * Rank 0 alone talks: the others' standard output goes nowhere, and they keep warnings and notes to themselves. An
 * error is told by the one rank that comm_speaks names, through the parent where there is one.
 *
 *     ranks_join();                               first of all
 *     ranks_open(&options, parsed);               MPI begins; nothing where the process is alone
 *     … the command …
 *     status = ranks_close(status);               MPI ends, where all went well; of a stop is told before
 *     if (ranks_should_report(status)) …;                  this process prints the error
 *     ranks_leave(status);                        ends the other ranks after a failure */
#pragma once

#include "base/base.h"
#include "cli/options.h"
#include "comm/comm.h"
#include "session/options.h"

/* SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 while the program trains: the `stop` of its train_events. The first asks
 * for a stop, and stderr says so at once. A second SIGINT or SIGTERM ends the process with STATUS_QUIT and says what is
 * lost. A second of the others asks for nothing new: shells and terminals send several SIGHUP, and schedulers SIGUSR1;
 * so does one within a tenth of a second after the first, as timeout(1) sends two. The last two count as SIGTERM: they
 * are what mpirun passes on to its ranks without ending them. */

/* As struct train_events has it; the payload is not used. The first call, before the first step, installs the handlers:
 * until then, while a model is loaded, a signal ends the process. An ignored signal (nohup) stays ignored. */
enum status stop_signal_poll(void *payload, int64_t step, int64_t saved_step);
/* Puts back what was set before the first call. */
void stop_signal_end(void);

/* Which ranks carry the command out, by its bit. */
enum ranks_part { RANKS_ALONE, RANKS_PARENT, RANKS_MEMBER, RANKS_IDLE };

/* Joins the parent of --ranks, where it has one. All but rank 0 fall silent. FAILED where the parent is gone. */
enum status ranks_join(void);
/* Whether it is alone, or rank 0. May be called by a signal handler. */
bool ranks_talk(void);
/* What this process is for the command; of options that were refused, RANKS_PARENT never. */
enum ranks_part ranks_part(const struct options *options, enum status parsed);

/* The parent: starts `ballast NAME arguments` on as many ranks as --ranks says and returns what came of them. A failure
 * names the last checkpoint of the run. */
enum status ranks_launch(const struct options *options, int count, char **arguments);

/* A member: opens MPI and agrees with the other ranks on `parsed`, what came of the command line on each. BAD_INPUT, on
 * all ranks, where they are not of the same program or have other options, and where --ranks is another number. */
enum status ranks_open(const struct options *options, enum status parsed);
/* The job's ranks, and how many share this one's cores; without ranks nothing is set. */
void ranks_give(struct plan_options *out);
/* NULL: alone. */
struct comm *ranks_comm(void);

/* MPI's end, unless `status` is a failure. */
enum status ranks_close(enum status status);
/* Reports to the parent where that tells; else whether this process does. */
bool ranks_should_report(enum status status);
/* Returns unless other ranks are to be ended. */
void ranks_leave(enum status status);
