/* The socket between the parent of a launch and its ranks; for launch.c. Its name is in the environment and in no
 * filesystem; only processes of the same user may join. */
#pragma once

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#include "base/base.h"

#define LAUNCH_VARIABLE "BALLAST_LAUNCH"

/* A rank's message: when it joins, where it may die with a known cause (`hint`), and when it ends. */
struct launch_record {
    bool ends;
    int rank; /* by the launcher's environment; -1: not said there */
    pid_t process;
    enum status status;
    char host[64], message[600], hint[300];
};

/* Where the parent of that name listens; the address's length. */
socklen_t launch_address(const char *name, struct sockaddr_un *out);

/* The parent's side. */
struct launch_ranks_seen;
enum status launch_listen(int ranks, struct launch_ranks_seen **out, const char **name);
void launch_unlisten(struct launch_ranks_seen *seen);
/* mpirun, once started. */
struct launch_started {
    pid_t process;
    int handle;  /* its pidfd */
    int output;  /* what it prints */
    int signals; /* a signalfd of those that go to the ranks */
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
/* The last of what mpirun printed, or "". */
const char *launch_last_output(const struct launch_ranks_seen *seen);
