/* Who is silent. Each rank counts its own beats, how many operations it has started, and the periods in which it did
 * anything, and passes on what it knows of all others to ranks 1, 2, 4, … further in turn, so that news of a rank
 * reaches all after log2(ranks) passings. A rank whose beats have not risen for the time allowed is dead or stopped.
 * The one that has started fewest operations is what the others wait for: as long as it works they wait, however long
 * its step is; where it does nothing for the time allowed, it hangs. No messages here: mpi_heartbeat.c sends them. */
#ifndef BALLAST_COMM_HEARTBEAT_H
#define BALLAST_COMM_HEARTBEAT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct heartbeat_entry {
    uint32_t beat, started, worked;
};

struct heartbeat {
    int ranks, me;
    struct heartbeat_entry *entry; /* by rank */
    int64_t *heard_ns;             /* when the beat was last seen to rise */
    int64_t *worked_ns;            /* the same of its work */
    int64_t even_ns; /* since then all have started as many operations as this rank; -1: some rank has not */
    int64_t timeout_ns;
};

enum status heartbeat_create(int ranks, int me, int64_t timeout_ns, int64_t now_ns, struct heartbeat *out);
void heartbeat_free(struct heartbeat *heartbeat);
/* Once a period: one's own. `worked`: it did something since the last beat. A rank that was itself stopped for half the
 * timeout has heard nobody meanwhile: it begins to wait anew. */
void heartbeat_beat(struct heartbeat *heartbeat, uint32_t started, bool worked, int64_t now_ns);
/* What another rank knows. */
void heartbeat_merge(struct heartbeat *heartbeat, const struct heartbeat_entry *theirs, int64_t now_ns);
/* The lowest rank of those not heard of for longer than the timeout, or -1. */
int heartbeat_silent(const struct heartbeat *heartbeat, int64_t now_ns);
/* The lowest of the ranks that have started fewest operations, where that is fewer than this rank; else -1. */
int heartbeat_behind(const struct heartbeat *heartbeat);
/* That rank, or one that has started no more, where it has done nothing for longer than the timeout; else -1. */
int heartbeat_hanging(const struct heartbeat *heartbeat, int64_t now_ns);
/* How many ranks each passes on to; the k-th, from 0, is 2^k further. */
int heartbeat_distances(int ranks);

#endif
