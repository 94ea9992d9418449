/* Starts ranks on this machine: the parent of `--ranks N`, and a rank's connection to it.
 *
 * The parent starts mpirun in a session of its own, so that the terminal's signals reach the parent alone, which hands
 * them on to the ranks; mpirun and all ranks end with the parent, however it ends. Each rank joins the parent over a
 * socket that is named in the environment (launch_join) and gets the parent's own standard output and error by it, so
 * that a terminal is one for the ranks too. mpirun's own messages are printed only if it fails and no rank reports why.
 * Before a rank ends, it reports its status (launch_report). A rank that ends without a report has died. The launch's
 * status is that of the rank that failed first. */
#pragma once

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#include "base/base.h"

/* The directories of a launch's mpirun: one below TMPDIR for its session, one in /dev/shm for the memory that its ranks
 * share. Both have the launch's name and are locked while the launching process or its mpirun lives, so that a later
 * launch recognizes the directories that a SIGKILL left behind. */

/* "ballast-PROCESS-MARK", the name of a launch. */
enum { LAUNCH_NAME_BYTES = 64 };
void launch_print_name(pid_t process, uint64_t mark, char name[LAUNCH_NAME_BYTES]);

enum launch_place { LAUNCH_SESSION, LAUNCH_SHARED, LAUNCH_PLACES };

struct launch_places {
    char *path[LAUNCH_PLACES]; /* NULL: there is none; /dev/shm may be missing */
    int lock[LAUNCH_PLACES];   /* held where the path is set */
};
/* FAILED when TMPDIR takes no directory. */
enum status launch_places_create(const char *name, struct launch_places *out);
/* Removes them with all in them; a failure is ignored. */
void launch_places_remove(struct launch_places *places);
/* Removes the directories of dead launches: of this user, named by a process that is not there, and not locked. */
void launch_places_clear(void);

struct launch_settings {
    int ranks;
    const char *mpi;        /* "openmpi" or "mpich"; NULL: BALLAST_MPI, else the first that has mpirun and plugin */
    char *const *arguments; /* of each rank: the program's path, its arguments, NULL */
};

/* Starts the ranks and returns when all have ended, with the status, message and hint of the rank that failed first. A
 * rank that died is FAILED, with its number and host. BAD_INPUT, with the package to install, if there is no MPI.
 * Forwards SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 to the ranks. Signals that are ignored at the call (nohup) stay
 * ignored. Call it from the process's first thread, before it starts others. */
enum status launch_ranks(const struct launch_settings *settings);

/* Whether such a parent started this process. */
bool launch_is_rank(void);
/* At a process's very beginning; does nothing where no parent of this kind started it. FAILED where the parent cannot
 * be reached. */
enum status launch_join(void);
/* Whether this process is a rank of a launch: its messages are the parent's to print. */
bool launch_joined(void);
/* The hint to print where this process dies from here on without a report. "": none. */
void launch_expect_death(const char *hint);
/* At the end, with the thread's message and hint. */
void launch_report(enum status status);
/* The same with this message, for signal handlers. */
void launch_report_signal(enum status status, const char *message);
/* Hides this rank's output from now on: MPI prints messages of its own for an abort. */
void launch_hush(void);

/* The socket between the parent of a launch and its ranks; for launch.c. Its name is in the environment and in no
 * filesystem; only processes of the same user may join. */

#define LAUNCH_VARIABLE "BALLAST_LAUNCH"

/* A rank's message: when it joins, where it may die with a known cause (`hint`), and when it ends. */
struct launch_record {
    bool ends;
    int rank; /* by the launcher's environment; -1: not said there */
    pid_t process;
    enum status status;
    char host[64], message[600], hint[300];
};

/* The address where the parent of that name listens. Returns the address's length. */
socklen_t launch_address(const char *name, struct sockaddr_un *out);

/* The parent's side. */
struct launch_ranks_seen;
enum status launch_listen(int ranks, struct launch_ranks_seen **out, const char **name);
void launch_unlisten(struct launch_ranks_seen *seen);
/* mpirun, once started. */
struct launch_started {
    pid_t process;
    int handle;  /* its pidfd */
    int output;  /* its output */
    int signals; /* a signalfd of the signals that are forwarded to the ranks */
};
/* Handles messages of ranks, and signals, until mpirun has ended and nothing is left to read. Keeps the last of
 * mpirun's output. Kills mpirun where it hangs although its ranks are gone, or although a signal came before they
 * began; `killed` is set then. */
enum status launch_watch(struct launch_ranks_seen *seen, const struct launch_started *started, bool *killed);
/* The status of the first rank that failed; OK if none did. A signal that came before all ranks had joined counts as a
 * failure of its own. `all_joined`: whether every rank was seen. */
enum status launch_first_failure(const struct launch_ranks_seen *seen, bool *all_joined);
/* Whether a signal was passed on. */
bool launch_was_signalled(const struct launch_ranks_seen *seen);
/* The last part of mpirun's output, or "". */
const char *launch_last_output(const struct launch_ranks_seen *seen);
