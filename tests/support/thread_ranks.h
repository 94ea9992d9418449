/* Ranks as threads of one process, connected by mailboxes: tests the engine of many ranks without MPI, under
 * sanitizers, in random schedules with a seed. */
#pragma once

#include "comm/comm.h"

enum { THREAD_RANKS_MAX = 16 };

struct thread_ranks {
    int ranks;
    uint64_t seed; /* messages are late at random */
    struct comm_settings settings;
    enum status (*body)(struct comm *comm, void *payload); /* of each rank */
    void *payload;
    bool may_fail; /* false: a body that fails ends the process at once, since the other ranks may wait for its rank */
};

/* Opens, runs the body and closes in each rank; the first status that is not OK, by rank, with its message. Ends the
 * process where a ready send finds no posted receive, or a message is not as long as its receive. */
enum status thread_ranks_run(const struct thread_ranks *ranks);
